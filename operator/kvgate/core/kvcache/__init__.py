"""KV-cache bytes of a model from its config.json, with the derivation shown; unknown rather than guessed."""

from __future__ import annotations

from kvgate.core.kvcache.derive import kv_layout
from kvgate.core.kvcache.document import parse_config
from kvgate.core.kvcache.layout import Family, KVLayout, Window, declared_layout
from kvgate.core.kvcache.words import JSON, KVBytesUnknown, Reason

__all__ = [
    "JSON",
    "Family",
    "KVBytesUnknown",
    "KVLayout",
    "Reason",
    "Window",
    "declared_layout",
    "kv_layout",
    "parse_config",
]
