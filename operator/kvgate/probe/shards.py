"""Shards of a report: a JSON object packed into text, and back again with its digest checked."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any, Protocol

from kvgate.api.report import PoolRef, ShardRef
from kvgate.core.digests import digest

ENCODING = "json+gzip+base64"
SHARD_CHARACTERS = 900_000
MOST_CHARACTERS = 64 * 1024 * 1024
"""Of one shard, unpacked: what packs better than this is no evidence of ours."""


class SpoiltError(ValueError):
    """A shard that is not what the index promises."""


class Sharded(Protocol):
    """What the specs of both kinds of report have in common."""

    @property
    def run_id(self) -> str: ...
    @property
    def pool_ref(self) -> PoolRef: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def data(self) -> str | None: ...


def packed(body: Mapping[str, Any]) -> str:
    """The same text for the same object."""
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def unpacked(ref: ShardRef, index: Sharded, by_name: Mapping[str, Sharded]) -> dict[str, Any]:
    """The object that a shard holds. Raises SpoiltError for one that is missing, altered, foreign or unreadable."""
    shard = by_name.get(ref.name)
    if shard is None or shard.data is None:
        raise SpoiltError(f"shard {ref.name} is missing")
    if digest(shard.data) != ref.sha256:
        raise SpoiltError(f"shard {ref.name} was altered: its digest is not the one in the index")
    if (shard.run_id, shard.pool_ref) != (index.run_id, index.pool_ref):
        raise SpoiltError(f"shard {ref.name} is of another run or pool")
    if shard.encoding != ENCODING:
        raise SpoiltError(f"shard {ref.name}: encoding must be {ENCODING}")
    try:
        text = zlib.decompressobj(wbits=31).decompress(base64.b64decode(shard.data, validate=True), MOST_CHARACTERS)
        body = json.loads(text)
    except (ValueError, zlib.error, RecursionError) as error:
        raise SpoiltError(f"shard {ref.name} cannot be unpacked") from error
    if not isinstance(body, dict):
        raise SpoiltError(f"shard {ref.name} holds no object")
    return body
