"""The world as it was read, once, before anything is decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from kvgate.api.pool import PoolSpec
from kvgate.api.status import PoolStatus
from kvgate.core.approvals import GivenApproval
from kvgate.core.estimate import KVSize
from kvgate.core.evidence import Evidence, NodeIdentity, Path
from kvgate.core.target import TargetProblem, TargetView


@dataclass(frozen=True)
class Pool:
    """An InferencePool as the ring handles it: who it is, what it asks, and what was last written about it."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: PoolSpec
    status: PoolStatus
    created_at: datetime
    measure_requested_at: str = ""
    deleted: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class KVKnown:
    """How large the KV cache is: its size, the tokens per block, the source, and how it was derived."""

    size: KVSize
    bytes_per_token: int
    block_tokens: int
    source: str
    derivation: str
    digest: str


@dataclass(frozen=True)
class KVUnknown:
    """Why the size of the KV cache is not known, and who must act."""

    reason: str
    message: str


@dataclass(frozen=True)
class Nodes:
    """The nodes that this pool's prefill and decode workers may use; `problem` says why there are none."""

    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()
    problem: str = ""
    identities: tuple[NodeIdentity, ...] = ()

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Every prefill → decode pair; a node with both roles has a path onto itself."""
        return tuple(Path(source, destination) for source in self.prefill for destination in self.decode)


@dataclass(frozen=True)
class World:
    """All that was seen. `evidence` is newest first."""

    target: TargetView | TargetProblem
    kv: KVKnown | KVUnknown
    nodes: Nodes
    evidence: tuple[Evidence, ...] = ()
    approvals: tuple[GivenApproval, ...] = ()
    claimed_by: str = ""
    sweeping: bool = False
    evidence_problem: str = ""
    observed_requests_per_second: float | None = None
    can_verify: bool = False
