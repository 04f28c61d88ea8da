"""How many token IDs a model knows, by its config.json."""

from __future__ import annotations

from collections.abc import Mapping

from kvgate.core.kvcache import JSON, KVBytesUnknown, parse_config
from kvgate.core.kvcache.document import LANGUAGE_PARTS


def vocabulary_size(config: str) -> int | None:
    """IDs from 0 up to, but not including, this one; the smallest of several sizes. None where none is said. Total."""
    root = parse_config(config)
    if isinstance(root, KVBytesUnknown):
        return None
    parts = (root.get(name) for name in LANGUAGE_PARTS)
    return min(filter(None, (_size(part) for part in (root, *parts))), default=None)


def _size(part: JSON) -> int | None:
    size = part.get("vocab_size") if isinstance(part, Mapping) else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None
