"""docs/kv-bytes.md and docs/concepts.md say the numbers and words that the derivation gives."""

from __future__ import annotations

import inspect
import json
import re

import pytest

from kvgate.api.pool import KVCache
from kvgate.core import text
from kvgate.core.estimate import Transfer, longest_prompt
from kvgate.core.kvcache.layout import Family
from kvgate.core.kvsource import ConfigTexts, kv_size
from kvgate.core.world import KVKnown, KVUnknown
from kvgate.dynamo import published
from kvgate.edge import worker_config
from tests.docs import pages

PAGE, CONCEPTS = pages.page("kv-bytes.md"), pages.page("concepts.md")
QWEN3 = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 1024,
    "torch_dtype": "bfloat16",
}
MIB_104 = 104 * 2**20


def derived(config: object) -> KVKnown | KVUnknown:
    return kv_size(KVCache(), ConfigTexts(config=config if isinstance(config, str) else json.dumps(config)))


def qwen3() -> KVKnown:
    known = derived(QWEN3)
    assert isinstance(known, KVKnown)
    return known


def test_the_derivation_on_the_page_is_that_of_the_code() -> None:
    assert qwen3().derivation in PAGE


def test_every_family_is_on_the_page() -> None:
    assert [row.word for row in pages.rows(PAGE, "family")] == list(Family)


def test_every_source_is_on_the_page() -> None:
    named = {row.cells[0].split("`")[1] for row in pages.rows(PAGE, "source")}
    assert named == {"bytesPerToken", "configFrom", "fromWorkers"}
    assert all(name in KVCache.model_json_schema(by_alias=True)["properties"] for name in named)


@pytest.mark.parametrize(
    ("config", "phrase"),
    [
        pytest.param("{", "are not JSON", id="a text that is cut short"),
        pytest.param("[]", "not a JSON object", id="a list"),
        pytest.param("GGUF" + "\0" * 8, "is a GGUF file", id="a GGUF file"),
        pytest.param(" " * (1 << 21), "the limit is", id="a file of 2 MiB"),
        pytest.param(QWEN3 | {"model_type": "newest"}, "is not known", id="a type without a row"),
        pytest.param({k: v for k, v in QWEN3.items() if k != "head_dim"}, "is missing", id="no head_dim"),
        pytest.param(QWEN3 | {"text_config": QWEN3 | {"head_dim": 64}}, "differ", id="two head_dims"),
    ],
)
def test_the_message_of_an_unknown_size_holds_what_the_page_says(config: object, phrase: str) -> None:
    unknown = derived(config)
    assert isinstance(unknown, KVUnknown)
    assert phrase in unknown.message
    assert phrase in {row.word for row in pages.rows(PAGE, "message holds")}


def test_the_words_of_workers_that_give_no_config_are_those_of_the_code() -> None:
    said = {row.word for row in pages.rows(PAGE, "message holds")}
    code = "".join(inspect.getsource(module) for module in (published, worker_config))
    named = {
        "no running worker's config.json was read",
        "publishes no config.json",
        "one pool judges one model",
        "names another host",
        "do not match the checksum",
        "did not arrive whole within",
        "no connection to the pod",
        "the pod answers",
    }
    assert (named - said, {word for word in named if word not in code}) == (set(), set())


def test_the_limits_on_a_workers_answer_are_those_of_the_code() -> None:
    limits = f"at most {worker_config.LONGEST_SECONDS:.0f} s and {worker_config.LARGEST_CONFIG_BYTES // 1024} KiB"
    assert limits in PAGE


def test_the_worked_example_is_what_the_estimate_gives() -> None:
    transfer = Transfer(qwen3().size, 16, 1, MIB_104)
    rows = pages.rows(CONCEPTS, "prompt")
    assert len(rows) == 2
    for row in rows:
        tokens = int(re.sub(r"\D", "", row.cells[0]))
        assert row.cells[1:] == (text.size(transfer.kv_bytes(tokens)), f"{transfer.seconds(tokens):.3f} s")


def test_the_longest_prompt_on_the_page_is_what_the_estimate_gives() -> None:
    assert f"200 ms at 104 MiB/s is {longest_prompt(Transfer(qwen3().size, 16, 1, MIB_104), 0.2)} tokens" in CONCEPTS
