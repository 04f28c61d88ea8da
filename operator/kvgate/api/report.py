"""FabricReport: the whole evidence of a sweep, in shards that an index names."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvgate.api.wire import Cel, ObjectName, Text, Time, Wire, Word

Sha256 = Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]{64}$")]


class PoolRef(Wire):
    """The very pool, by name and UID."""

    name: ObjectName
    """Name of the pool."""
    uid: Annotated[str, Field(min_length=1, max_length=64)]
    """UID of the pool: one made anew under the same name is another."""


class ShardRef(Wire):
    """A shard and the digest of its data."""

    name: ObjectName
    """Name of the shard."""
    sha256: Sha256
    """SHA-256 of its data, in hex."""


class ReportSpec(Wire):
    """Either a shard (index, encoding, data, sha256) or the index, which names the shards and is written last."""

    run_id: Annotated[str, Field(alias="runID", min_length=1, max_length=64)]
    """The sweep that this is evidence of."""
    pool_ref: PoolRef
    index: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Place of this shard, from 0."""
    encoding: Word | None = None
    """How data is packed."""
    data: Annotated[str, Field(max_length=900_000)] | None = None
    """The samples."""
    sha256: Sha256 | None = None
    """SHA-256 of data, in hex."""
    shards: Annotated[tuple[ShardRef, ...], Field(max_length=1000)] = ()
    """The shards that count; others are ignored."""
    measured_at: Time | None = None
    """When the sweep ended."""
    paths: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Paths planned."""
    in_use: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Paths that could have been planned; more than were, where only some were due or too many for one sweep."""
    measured: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Paths that gave a number."""
    fabric_class: Word | None = None
    """What the vendor or network team declares; shown beside what was measured."""
    notes: Text | None = None
    """Free text."""


REPORT_RULES = (
    Cel("self == oldSelf", "a report is immutable: evidence is measured again, never edited"),
    Cel(
        "has(self.data) != (has(self.shards) && size(self.shards) > 0)",
        "a report is either a shard with data or an index with shards",
    ),
    Cel(
        "!has(self.data) || (has(self.index) && has(self.encoding) && has(self.sha256))",
        "a shard needs index, encoding and sha256 beside its data",
    ),
)
