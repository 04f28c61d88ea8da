"""Where the KV bytes per token come from: the pool's own number, a ConfigMap's config.json, or the running worker's."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from kvgate.api.pool import KVCache
from kvgate.api.words import KVDtype
from kvgate.core.kvcache import JSON, KVBytesUnknown, KVLayout, declared_layout, kv_layout, parse_config
from kvgate.core.world import KVKnown, KVUnknown

DEFAULT_BLOCK_TOKENS = 16


@dataclass(frozen=True)
class ConfigTexts:
    """What was read of the model's configuration: its texts, or the problem that kept them from being read.

    `look_again_seconds` says within what time the problem may be over by itself; `block_tokens` and `dtype` are what
    the worker's own args say, where they do.
    """

    config: str = ""
    quant_config: str = ""
    source: str = ""
    problem: str = ""
    look_again_seconds: float = math.inf
    block_tokens: int | None = None
    dtype: str = ""


def kv_size(asked: KVCache, texts: ConfigTexts) -> KVKnown | KVUnknown:
    """The size of the KV cache, or why it is not known and who must act. Total."""
    if asked.bytes_per_token is not None:
        declared = declared_layout(asked.bytes_per_token)
        return _known(declared, asked, texts, source="bytesPerToken", digest="")
    if texts.problem:
        return KVUnknown("KVBytesUnknown", texts.problem, texts.look_again_seconds)
    return _from_config(asked, texts)


def _from_config(asked: KVCache, texts: ConfigTexts) -> KVKnown | KVUnknown:
    config = parse_config(texts.config)
    quant = parse_config(texts.quant_config) if texts.quant_config else None
    for parsed in (config, quant):
        if isinstance(parsed, KVBytesUnknown):
            return KVUnknown("KVBytesUnknown", f"{texts.source}: {parsed.message}")
    layout = kv_layout(
        _mapping(config),
        quant_config=None if quant is None else _mapping(quant),
        dtype=(texts.dtype or None) if asked.dtype is KVDtype.AUTO else asked.dtype.value,
        speculative_layers=asked.speculative_layers,
        window_cap=asked.window_cap,
    )
    digest = hashlib.sha256(f"{texts.config}\0{texts.quant_config}".encode(errors="replace")).hexdigest()
    return _known(layout, asked, texts, source=texts.source, digest=digest)


def _mapping(parsed: Mapping[str, JSON] | KVBytesUnknown) -> Mapping[str, JSON]:
    return {} if isinstance(parsed, KVBytesUnknown) else parsed


def _known(
    layout: KVLayout | KVBytesUnknown, asked: KVCache, texts: ConfigTexts, *, source: str, digest: str
) -> KVKnown | KVUnknown:
    if isinstance(layout, KVBytesUnknown):
        where = f"{source}: " if source else ""
        return KVUnknown("KVBytesUnknown", f"{where}{layout.message}")
    block = asked.block_tokens or texts.block_tokens or DEFAULT_BLOCK_TOKENS
    told = "; ".join((layout.derivation, *layout.warnings))
    return KVKnown(layout, layout.bytes_per_token, block, source, told, digest)
