"""A model directory that Dynamo's frontend and mocker load: the shape of a real model, and one token for each byte."""

from __future__ import annotations

import json
from pathlib import Path

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(directory: Path, shape: dict[str, object]) -> None:
    """Write the four files that are read; `shape` is a config.json with the sizes from which KV bytes follow."""
    directory.mkdir(parents=True)
    for name, document in _documents(shape).items():
        (directory / name).write_text(json.dumps(document), encoding="utf-8")


def _documents(shape: dict[str, object]) -> dict[str, object]:
    first, last = 0, len(SPECIAL) - 1
    return {
        "config.json": {**shape, "vocab_size": len(_vocabulary()), "bos_token_id": first, "eos_token_id": last},
        "generation_config.json": {"bos_token_id": first, "eos_token_id": [last]},
        "tokenizer.json": tokenizer({"type": "BPE", "unk_token": None, "vocab": _vocabulary(), "merges": []}),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL[last],
            "pad_token": SPECIAL[first],
            "model_max_length": shape["max_position_embeddings"],
            "chat_template": CHAT_TEMPLATE,
        },
    }


def _vocabulary() -> dict[str, int]:
    return {text: number for number, text in enumerate((*SPECIAL, *alphabet()))}


def alphabet() -> tuple[str, ...]:
    """The printable character that stands for each byte in a byte-level tokenizer, as GPT-2 numbered them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    stands_for = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return tuple(stands_for[byte] for byte in range(256))


def tokenizer(model: dict[str, object]) -> dict[str, object]:
    """A tokenizer.json that cuts text into bytes, and joins them as the model says."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text, **flags} for number, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
