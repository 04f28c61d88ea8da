"""The size of a vocabulary, read of a config.json."""

from __future__ import annotations

import pytest

from kvgate.core.vocabulary import vocabulary_size


@pytest.mark.parametrize(
    ("config", "size"),
    [
        pytest.param('{"vocab_size": 2560}', 2560, id="it is said"),
        pytest.param('{"text_config": {"vocab_size": 300}}', 300, id="the language part says it"),
        pytest.param('{"vocab_size": 400, "llm_config": {"vocab_size": 300}}', 300, id="the smaller one is safe"),
        pytest.param('{"model_type": "qwen3"}', None, id="it is not said"),
        pytest.param('{"vocab_size": "many"}', None, id="it is no number"),
        pytest.param('{"vocab_size": true}', None, id="it is a flag"),
        pytest.param('{"vocab_size": 0}', None, id="it is nothing"),
        pytest.param("[]", None, id="the config is no object"),
        pytest.param("GGUF", None, id="the config is no JSON"),
    ],
)
def test_the_size_is_what_the_config_says(config: str, size: int | None) -> None:
    assert vocabulary_size(config) == size
