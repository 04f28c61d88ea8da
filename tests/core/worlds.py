"""A pool that lives from turn to turn: each scene is a pool, a world and a moment, and knows the scene after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

from kvgate.api.approval import ApprovalSpec
from kvgate.api.pool import PoolSpec
from kvgate.api.status import BaselineEntry, CapabilityStatus, PoolStatus, SweepJob, SweepStatus
from kvgate.api.wire import Condition
from kvgate.api.words import Capability, ConditionType, Outcome
from kvgate.core.approvals import GivenApproval
from kvgate.core.decide import decide
from kvgate.core.evidence import Evidence
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case
from kvgate.core.metrics_seen import MetricsSeen
from kvgate.core.serving import ServingSeen
from kvgate.core.steps import Decision
from kvgate.core.target import Switch, TargetProblem, TargetView, Toggle, ToggleStep
from kvgate.core.workers import WorkerPod
from kvgate.core.world import KVKnown, KVUnknown, Nodes, Pool, Sweep, Walker, WalkerState, World
from tests.core import cases
from tests.invariants import broken

NOW = cases.NOW
ROUTING, SPLIT, STORAGE = Capability.ROUTING, Capability.DISAGGREGATION, Capability.KV_STORAGE
FAST, SLOW = 250e6, 60e6
"""Bytes per second at which 3,000 tokens of Qwen3-0.6B keep the budget of 2 s, and at which they do not."""

_ENTRIES = {
    ROUTING: (("Frontend", "DYN_ROUTER_MODE", "kv", "round-robin"),),
    SPLIT: (
        ("VllmDecodeWorker", "DYN_DISAGGREGATION_MODE", "decode", "agg"),
        ("VllmPrefillWorker", "DYN_DISAGGREGATION_MODE", "prefill", "agg"),
    ),
    STORAGE: (),
}
REFUSAL = Finding(
    "target", Outcome.ERROR, "TargetNotToggleable", "args of Frontend override it: drop them", Concern.TARGET
)


def toggle(capability: Capability, switch: Switch, **fields: object) -> Toggle:
    """As the deployment room gives it: the baseline is what stands there, and never the switched-on value."""
    entries = _ENTRIES[capability]
    off = tuple(BaselineEntry(component=c, env=env, present=True, value=value) for c, env, _, value in entries)
    found = tuple(BaselineEntry(component=c, env=env, present=False) for c, env, _, _ in entries)
    plain = Toggle(
        switch,
        steps=tuple(ToggleStep(component, env, to) for component, env, to, _ in entries),
        projection='{"image":"vllm:1"}',
        baseline=off if switch is Switch.ON else found,
        off_values=off,
        off_words=frozenset(value for _, _, _, value in entries),
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def refused(capability: Capability, switch: Switch) -> Toggle:
    """As the deployment room gives it for a target that cannot be switched: no steps, and the reason."""
    return replace(toggle(STORAGE, switch), refusal=REFUSAL)


def sweep(rate: float | None, run: str, ended: datetime, **fields: object) -> Evidence:
    """A sweep over all four paths at one rate; None is a sweep that gave no number."""
    samples = () if rate is None else cases.everywhere(rate, run_id=run, measured_at=ended)
    return cases.evidence(samples, run_id=run, measured_at=ended, **fields)


BUSY = SweepStatus(
    run_id="busy",
    started_at=NOW,
    reason="no evidence yet",
    jobs=(SweepJob(node="p1", name="qwen3-busy-0", uid="job-uid"),),
)


@dataclass(frozen=True)
class Scene:
    """Everything that one turn looks at; the defaults are a pool in Enforce that passes and lacks its approval."""

    spec: PoolSpec = field(default_factory=lambda: cases.spec({"mode": "Enforce"}))
    status: PoolStatus = field(default_factory=PoolStatus)
    evidence: tuple[Evidence, ...] = field(default_factory=lambda: (sweep(FAST, "run-1", NOW - timedelta(hours=1)),))
    approvals: tuple[GivenApproval, ...] = ()
    toggles: Mapping[Capability, Toggle] = field(default_factory=lambda: {SPLIT: toggle(SPLIT, Switch.OFF)})
    target: TargetProblem | None = None
    target_uid: str = "target-uid"
    kv: KVKnown | KVUnknown = field(default_factory=cases.kv)
    nodes: Nodes = field(default_factory=cases.nodes)
    workers: tuple[WorkerPod, ...] = ()
    serving: ServingSeen | None = None
    metrics: MetricsSeen | None = None
    generation: int = 1
    asked: str = ""
    claimed_by: str = ""
    sweeping: bool = False
    deleted: bool = False
    finalizer: bool | None = None
    target_leaving: bool = False
    patch_problem: str = ""
    patch_landed: str = ""
    now: datetime = NOW

    @property
    def pool(self) -> Pool:
        return Pool(
            name="qwen3",
            namespace="serving",
            uid=cases.POOL_UID,
            generation=self.generation,
            spec=self.spec,
            status=self.status.model_copy(update={"sweep": BUSY}) if self.sweeping else self.status,
            created_at=NOW - timedelta(days=1),
            measure_requested_at=self.asked,
            deleted=self.deleted,
            finalizer=self.finalizer,
        )

    @property
    def world(self) -> World:
        return World(
            target=self.target or TargetView(self.target_uid, toggles=self.toggles, leaving=self.target_leaving),
            kv=self.kv,
            nodes=self.nodes,
            evidence=self.evidence,
            pods=self.workers,
            serving=self.serving,
            metrics=self.metrics,
            approvals=self.approvals,
            claimed_by=self.claimed_by,
            patch_problem=self.patch_problem,
            patch_landed=self.patch_landed,
            sweep_jobs=BUSY.jobs if self.sweeping else (),
            sweep=Sweep(BUSY.run_id, NOW, (Walker("p1", "job-uid", WalkerState.RUNNING),)) if self.sweeping else None,
        )

    @property
    def case(self) -> Case:
        return Case(self.pool, self.world, self.evidence[0] if self.evidence else None, self.now)

    def but(self, **changes: object) -> Self:
        return replace(self, **changes)  # type: ignore[arg-type]

    def asking(self, **dotted: object) -> Self:
        """With fields of the spec set, dots as double underscores: `rollback__cooldown="2h"`; a new generation."""
        changes = {name.replace("__", "."): value for name, value in dotted.items()}
        spec = PoolSpec.model_validate(cases.merged(self.spec.model_dump(mode="json", by_alias=True), changes))
        return self.but(spec=spec, generation=self.generation + 1)

    def gating(self, capability: Capability, switch: Switch) -> Self:
        """With another capability gated too."""
        block = {ROUTING: "routing", SPLIT: "disaggregation", STORAGE: "kvStorage"}[capability]
        toggles = {**self.toggles, capability: toggle(capability, switch)}
        return self.asking(**{f"criteria__{block}": {}}).but(toggles=toggles, generation=self.generation)

    def switched(self, switch: Switch, capability: Capability = SPLIT, **fields: object) -> Self:
        """The deployment as another look finds it."""
        return self.but(toggles={**self.toggles, capability: toggle(capability, switch, **fields)})

    def measured(self, rate: float | None, **fields: object) -> Self:
        """A further sweep has ended just now."""
        meant = self.status.sweep
        run = meant.run_id if meant else f"run-{len(self.evidence) + 1}"
        newest = sweep(rate, run, self.now, **fields)
        return self.but(evidence=(newest, *self.evidence))

    def later(self, **span: float) -> Self:
        return self.but(now=self.now + timedelta(**span))

    def decide(self) -> Decision:
        """The decision, after a look at the invariants of its status."""
        decision = decide(self.pool, self.world, self.now)
        assert broken(decision.status, self.generation, self.now, self.status) == []
        return decision

    def after(self, seconds: float = 1) -> Self:
        """The next turn, with what this one wrote; the deployment and the sweeps stay as they are."""
        return self.but(status=self.decide().status).later(seconds=seconds)

    def approved(self, capability: Capability = SPLIT, /, **fields: object) -> Self:
        """A person approves the plan that stands in the status."""
        return self.but(approvals=(*self.approvals, approval(self, capability, **fields)))


def approval(scene: Scene, capability: Capability = SPLIT, /, **fields: object) -> GivenApproval:
    wire = {
        "poolRef": {"name": "qwen3", "uid": cases.POOL_UID},
        "capability": capability,
        "planHash": entry(scene.status, capability).plan_hash,
        "approver": "ann",
        "expiresAt": scene.now + timedelta(days=30),
    }
    name = f"approval-{len(scene.approvals) + 1}"
    return GivenApproval(name, scene.now, ApprovalSpec.model_validate({**wire, **fields}))


def entry(status: PoolStatus, capability: Capability = SPLIT) -> CapabilityStatus:
    return next(found for found in status.capabilities if found.name is capability)


def condition(status: PoolStatus, kind: ConditionType) -> Condition:
    return next(found for found in status.conditions if found.type == kind)


def told(status: PoolStatus, kind: ConditionType) -> tuple[str, str]:
    """The status and reason of a condition; ("", "") where it is not present."""
    found = (held for held in status.conditions if held.type == kind)
    return next(((held.status.value, held.reason) for held in found), ("", ""))


def actions(status: PoolStatus) -> list[str]:
    """What the history tells, newest first."""
    return [held.action for held in status.history]


def proposed(scene: Scene | None = None) -> Scene:
    """The plan stands in the status, and lacks an approval."""
    return (scene or Scene()).after()


def opened(scene: Scene | None = None) -> Scene:
    """Approved, written and recorded: the split is on, and ours."""
    begun = proposed(scene).approved().after()
    assert begun.status.operation is not None
    return begun.switched(Switch.ON).after().after()


def closed(scene: Scene | None = None) -> Scene:
    """A failure was confirmed, the split was written back, and that is recorded."""
    failing = (scene or opened()).measured(SLOW).later(minutes=1).measured(SLOW).after()
    assert failing.status.operation is not None
    return failing.switched(Switch.OFF).after()


def kinds(decision: Decision) -> list[str]:
    return [type(step).__name__ for step in decision.steps]


def gaps(messages: Iterable[str], *wanted: str) -> list[str]:
    """The wanted words that no message holds."""
    whole = "\n".join(messages)
    return [word for word in wanted if word not in whole]
