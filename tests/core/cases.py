"""Small cases for the tables of this folder: each says only what differs from a pool that passes.

Two prefill and two decode nodes, 250 MB/s on every path, Qwen3-0.6B's 114,688 B per token, a budget of 2 s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from kvgate.api.pool import PoolSpec
from kvgate.api.status import PoolStatus
from kvgate.api.words import Capability, Memory, Phase
from kvgate.core.evidence import Evidence, Failure, FailureKind, Layer, NodeIdentity, Path, Sample, Uplink
from kvgate.core.judging import Case
from kvgate.core.kvcache import KVLayout, declared_layout
from kvgate.core.target import FabricClass, Switch, TargetProblem, TargetView, Toggle, ToggleStep
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.core.world import KVKnown, KVUnknown, Nodes, Pool, World

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MEASURED = NOW - timedelta(hours=1)
RUN = "run-1"
POOL_UID = "pool-uid"
MIB = 2**20
BYTES_PER_TOKEN = 114_688
GOOD = 250e6

PREFILL = ("p1", "p2")
DECODE = ("d1", "d2")
PATHS = tuple(Path(source, destination) for source in PREFILL for destination in DECODE)


def merged(base: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """`base` with the dotted fields of `changes` set; None takes a field away."""
    result = dict(base)
    for dotted, value in changes.items():
        head, _, rest = dotted.partition(".")
        if rest:
            below = result.get(head)
            result[head] = merged(below if isinstance(below, dict) else {}, {rest: value})
        elif value is None:
            result.pop(head, None)
        else:
            result[head] = value
    return result


PASSING_SPEC: dict[str, object] = {
    "targetRef": {"name": "qwen3"},
    "model": {"name": "Qwen/Qwen3-0.6B"},
    "workload": {"prompts": [{"tokens": 3000}], "peakRequestsPerSecond": "0.2"},
    "fabric": {"probe": {"endpoint": {"tool": "none"}, "phases": ["Isolated"]}},
    "criteria": {"disaggregation": {"ttftBudget": "2s"}},
}


def spec(changes: Mapping[str, object] | None = None) -> PoolSpec:
    return PoolSpec.model_validate(merged(PASSING_SPEC, changes or {}))


def kv(bytes_per_token: int = BYTES_PER_TOKEN, block_tokens: int = 16, digest: str = "config-digest") -> KVKnown:
    return KVKnown(layout(bytes_per_token), bytes_per_token, block_tokens, "bytesPerToken", "declared", digest)


def layout(bytes_per_token: int = BYTES_PER_TOKEN) -> KVLayout:
    found = declared_layout(bytes_per_token)
    assert isinstance(found, KVLayout)
    return found


def path(name: str) -> Path:
    """`path("p1→d2")`."""
    source, _, destination = name.partition("→")
    return Path(source, destination)


def sample(on: Path | str, bytes_per_second: float | None = GOOD, **fields: object) -> Sample:
    """A link sample by iperf3 over TCP; `bytes_per_second=None` with a `failure` carries no number."""
    plain = Sample(
        run_id=RUN,
        path=path(on) if isinstance(on, str) else on,
        layer=Layer.LINK,
        tool="iperf3",
        operation="stream",
        memory=Memory.HOST,
        transport="tcp",
        phase=Phase.ISOLATED,
        streams=4,
        measured_at=MEASURED,
        bytes_per_second=0.0,
    )
    return dataclasses.replace(plain, bytes_per_second=bytes_per_second, **fields)  # type: ignore[arg-type]


def failed(on: Path | str, kind: FailureKind, **fields: object) -> Sample:
    return sample(on, None, failure=Failure(kind, "as the tool said"), **fields)


def endpoint(on: Path | str, bytes_per_second: float | None = GOOD, **fields: object) -> Sample:
    kinds: dict[str, object] = {"layer": Layer.ENDPOINT, "tool": "ucx_get", "operation": "get"}
    return sample(on, bytes_per_second, **{**kinds, **fields})


def everywhere(bytes_per_second: float = GOOD, paths: Iterable[Path] = PATHS, **fields: object) -> tuple[Sample, ...]:
    return tuple(sample(one, bytes_per_second, **fields) for one in paths)


def evidence(samples: Iterable[Sample] | None = None, **fields: object) -> Evidence:
    """One sweep of this pool over all four paths; its nodes are those of `nodes()`."""
    whole = Evidence(
        run_id=RUN,
        pool_uid=POOL_UID,
        planned=PATHS,
        samples=everywhere() if samples is None else tuple(samples),
        measured_at=MEASURED,
        nodes=identities(),
    )
    return dataclasses.replace(whole, **fields)  # type: ignore[arg-type]


def identities(**changed: NodeIdentity) -> tuple[NodeIdentity, ...]:
    names = (*PREFILL, *DECODE)
    return tuple(changed.get(name, NodeIdentity(name, f"uid-{name}", f"boot-{name}", "6.18")) for name in names)


def nodes(prefill: tuple[str, ...] = PREFILL, decode: tuple[str, ...] = DECODE, **fields: object) -> Nodes:
    return dataclasses.replace(Nodes(prefill, decode, identities=identities()), **fields)  # type: ignore[arg-type]


def uplink(aggregate_bytes_per_second: float, traffic_share: float = 1.0) -> Uplink:
    return Uplink("spine", aggregate_bytes_per_second, traffic_share)


def pods(role: PodRole, *on: str, **fields: object) -> tuple[WorkerPod, ...]:
    """A Ready pod of this role on each of these nodes; a node that is named twice carries two."""
    plain = (WorkerPod(f"{role}-{n}", f"uid-{n}", role.value, role, node, ready=True) for n, node in enumerate(on))
    return tuple(dataclasses.replace(pod, **fields) for pod in plain)  # type: ignore[arg-type]


STEPS = (ToggleStep("Frontend", "DYN_ENFORCE_DISAGG", "true"),)


def toggle(**fields: object) -> Toggle:
    return dataclasses.replace(Toggle(Switch.OFF, steps=STEPS, projection='{"image":"a"}'), **fields)  # type: ignore[arg-type]


def target(fabric_class: FabricClass = FabricClass.TCP, **fields: object) -> TargetView:
    view = TargetView("target-uid", fabric_class, toggles=dict.fromkeys(Capability, toggle()))
    return dataclasses.replace(view, **fields)  # type: ignore[arg-type]


SWEPT = evidence()


def case(
    changes: Mapping[str, object] | None = None,
    *,
    measured: Evidence | None = SWEPT,
    on: Nodes | None = None,
    deployment: TargetView | TargetProblem | None = None,
    size: KVKnown | KVUnknown | None = None,
    now: datetime = NOW,
    pool_uid: str = POOL_UID,
    evidence_problem: str = "",
    workers: tuple[WorkerPod, ...] = (),
) -> Case:
    pool = Pool("qwen3", "serving", pool_uid, 1, spec(changes), PoolStatus(), NOW - timedelta(days=1))
    world = World(
        target=deployment or target(),
        kv=size or kv(),
        nodes=on or nodes(),
        evidence=(measured,) if measured else (),
        evidence_problem=evidence_problem,
        pods=workers,
    )
    return Case(pool, world, measured, now)
