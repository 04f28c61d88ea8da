"""The world as it was read, once, before anything is decided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from kvgate.api.pool import PoolSpec
from kvgate.api.status import PoolStatus, SweepJob
from kvgate.core.ab.evidence import BenchmarkEvidence, BenchmarkGround, TraceSeen
from kvgate.core.approvals import GivenApproval
from kvgate.core.estimate import KVSize
from kvgate.core.events_seen import EventsSeen
from kvgate.core.evidence import Evidence, NodeIdentity, Path
from kvgate.core.metrics_seen import MetricsSeen
from kvgate.core.runs import RunningJob
from kvgate.core.serving import ServingSeen
from kvgate.core.target import TargetProblem, TargetView
from kvgate.core.vetoes import Veto
from kvgate.core.workers import WorkerPod


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
    finalizer: bool | None = None
    """Whether our finalizer stands on it; None where pools have none."""

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
    """Why the size of the KV cache is not known, and who must act; and within what time it may be known though nothing
    that is watched changes."""

    reason: str
    message: str
    look_again_seconds: float = math.inf


@dataclass(frozen=True)
class Nodes:
    """The nodes that this pool's prefill and decode workers may use; `problem` says why there are none."""

    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()
    problem: str = ""
    identities: tuple[NodeIdentity, ...] = ()
    vetoes: tuple[Veto, ...] = ()
    """What the cluster's own health tools say against any of them."""
    unpaired: str = ""
    """Why no second walker can stand on a node with an address of its own, and who must act; empty where one can."""

    @cached_property
    def sides(self) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(self.prefill), frozenset(self.decode)

    @cached_property
    def shared(self) -> frozenset[str]:
        """Those that both kinds of workers may use."""
        return self.sides[0] & self.sides[1]

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Every prefill → decode pair; a node with both roles has a path onto itself."""
        return tuple(Path(source, destination) for source in self.prefill for destination in self.decode)

    @property
    def testable(self) -> tuple[Path, ...]:
        """Those that walkers can measure: none of a node to itself where no second one can stand."""
        return tuple(path for path in self.paths if not path.same_node) if self.unpaired else self.paths


class WalkerState(StrEnum):
    """How far one node's walker is; `Gone` is a Job that somebody else deleted."""

    PENDING = "Pending"
    RUNNING = "Running"
    ENDED = "Ended"
    GONE = "Gone"


@dataclass(frozen=True)
class Walker:
    """A node's walker in a sweep, or the `companion` that it has there: its address once it has one, whether there is a
    partner's that it has yet to be told, and what troubles it. One that is `stuck` will not start while the deployment
    stays what it is."""

    node: str
    job_uid: str
    state: WalkerState
    address: str = ""
    untold: bool = False
    trouble: str = ""
    stuck: bool = False
    companion: bool = False

    def __str__(self) -> str:
        return f"{self.node} (its companion)" if self.companion else self.node


@dataclass(frozen=True)
class Sweep:
    """A sweep that is under way, as its Jobs and pods show it."""

    run_id: str
    started_at: datetime
    walkers: tuple[Walker, ...]


@dataclass(frozen=True)
class World:
    """All that was seen. `evidence` is newest first; `pods` are the target's, frontends among them.

    Where sweeps take many turns, `sweep` is the one under way and `sweep_jobs` are its Jobs that are ours;
    `sweep_problem` says why none can be started, `sweep_waits` which other pools' sweeps and which limit one would wait
    for, and `least_sweep_interval` how long after a pool's last sweep its next scheduled one may begin.
    """

    target: TargetView | TargetProblem
    kv: KVKnown | KVUnknown
    nodes: Nodes
    evidence: tuple[Evidence, ...] = ()
    pods: tuple[WorkerPod, ...] = ()
    events: EventsSeen | None = None
    """The workers' KV events; None where nobody looks at them: no routing criteria, or no pods."""
    metrics: MetricsSeen | None = None
    """What a Prometheus told; None where the pool names none, or nobody would ask one."""
    approvals: tuple[GivenApproval, ...] = ()
    claimed_by: str = ""
    sweep: Sweep | None = None
    sweep_jobs: tuple[SweepJob, ...] = ()
    sweep_problem: str = ""
    sweep_waits: str = ""
    least_sweep_interval: timedelta = timedelta(0)
    evidence_problem: str = ""
    benchmarks: tuple[BenchmarkEvidence, ...] = ()
    """Routing A/Bs, newest first."""
    benchmark_problem: str = ""
    benchmark_ground: BenchmarkGround | None = None
    """What an A/B would run on; None where none is asked for, or nobody could run one."""
    benchmark_job: RunningJob | None = None
    trace: TraceSeen | None = None
    """The trace that an A/B would send; None where the pool names none, or where none is to be looked for."""
    listener: RunningJob | None = None
    """The event probe's Job that is under way; None where there is none of ours."""
    listener_problem: str = ""
    """Why none can be made."""
    patch_problem: str = ""
    """Why the patch that is meant could not be written when it was last tried."""
    patch_landed: str = ""
    """The operation of the last patch that was accepted; forgotten when kvgate starts anew."""
    serving: ServingSeen | None = None
    """The running deployment; None where there are no pods to look at, as in a directory."""
    observed_requests_per_second: float | None = None
