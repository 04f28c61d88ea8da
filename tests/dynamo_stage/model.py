"""A model directory that Dynamo's frontend and mocker can load: a Qwen3-like config.json and a tokenizer of our own.

The mocker answers with token ids between 1000 and 2000; each of these is a pseudo-word here, so that answers have text.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

from kvgate.edge.mock_model import CHAT_TEMPLATE, SPECIAL, alphabet, tokenizer

NAME = "tiny"
BLOCK_SIZE_TOKENS = 16
_SYLLABLES = tuple(a + b for a, b in product("bdfgklmnprstvz", "aeiou"))[:48]
WORDS = tuple(a + b for a, b in product(_SYLLABLES, _SYLLABLES))


def token_id(word: str) -> int:
    """The one token that a word of WORDS is, where no other word touches it."""
    return _vocabulary()[word]


def word(token: int) -> str:
    """The text of a token; raises KeyError outside of the vocabulary."""
    return {number: text for text, number in _vocabulary().items()}[token]


def write_model(directory: Path) -> Path:
    """Write the four files that Dynamo reads into `directory`, which may not exist yet."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, document in _documents().items():
        (directory / name).write_text(json.dumps(document), "utf-8")
    return directory


def _documents() -> dict[str, object]:
    return {
        "config.json": _config(),
        "generation_config.json": {"eos_token_id": [SPECIAL.index("<|im_end|>")], "bos_token_id": 0},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 40960,
            "chat_template": CHAT_TEMPLATE,
        },
    }


def _config() -> dict[str, object]:
    """Qwen3-0.6B's shape: 28 layers × 2 × 8 heads × 128 × 2 bytes are 114,688 bytes of KV cache per token."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "vocab_size": len(_vocabulary()),
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": SPECIAL.index("<|im_end|>"),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
    }


def _vocabulary() -> dict[str, int]:
    return {text: number for number, text in enumerate((*SPECIAL, *alphabet(), *_SYLLABLES, *WORDS))}


def _merges() -> list[list[str]]:
    return [list(syllable) for syllable in _SYLLABLES] + [[a, b] for a, b in product(_SYLLABLES, _SYLLABLES)]


def _tokenizer() -> dict[str, object]:
    return tokenizer(
        {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": _vocabulary(),
            "merges": _merges(),
        }
    )
