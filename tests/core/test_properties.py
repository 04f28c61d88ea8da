"""Laws of the whole judgement over generated worlds: total, honest, and still when nothing moves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.api.approval import ApprovalSpec
from kvgate.api.pool import PoolSpec
from kvgate.api.status import CapabilityStatus, HistoryEntry, Operation, PoolStatus, SweepStatus, TargetStatus
from kvgate.api.wire import Wire
from kvgate.api.words import Capability, Memory, Mode, Outcome, Phase
from kvgate.core.approvals import GivenApproval
from kvgate.core.decide import decide
from kvgate.core.evidence import Evidence, Failure, FailureKind, Layer, NodeIdentity, Path, Sample, Uplink
from kvgate.core.findings import Finding
from kvgate.core.judging import Case
from kvgate.core.memory import Action
from kvgate.core.steps import Enable, Measure
from kvgate.core.switching import Move
from kvgate.core.target import FabricClass, Switch, TargetProblem, TargetView, Toggle
from kvgate.core.verdicts import judge
from kvgate.core.world import KVKnown, KVUnknown, Nodes, Pool, Sweep, Walker, WalkerState, World
from tests.core import cases, worlds
from tests.invariants import broken

Model = TypeVar("Model", bound=Wire)
T = TypeVar("T")
NOW = cases.NOW
SPLIT = Capability.DISAGGREGATION
EDGES = (0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e300)
rates = st.one_of(st.sampled_from(EDGES), st.floats(1e6, 1e10), st.floats(allow_nan=True, allow_infinity=True))
moments = st.one_of(
    st.integers(-400, 400).map(lambda hours: NOW + timedelta(hours=hours)),
    st.sampled_from((datetime.min.replace(tzinfo=UTC) + timedelta(days=2), datetime.max.replace(tzinfo=UTC))),
)
hashes = st.one_of(st.just(""), st.sampled_from([f"v1:sha256:{digit * 64}" for digit in "ab"]))


def wire(model: type[Model], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[Model]:
    return st.fixed_dictionaries(fields).map(model.model_validate)


names = st.sampled_from(("p1", "p2", "d1", "d2", "x"))
paths = st.builds(Path, names, names)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    failure = draw(st.none() | st.builds(Failure, st.sampled_from(FailureKind), st.just("as the tool said")))
    return Sample(
        run_id=draw(st.sampled_from((cases.RUN, cases.RUN, cases.RUN, "run-of-another"))),
        path=draw(paths),
        layer=draw(st.sampled_from(Layer)),
        tool=draw(st.sampled_from(("iperf3", "ucx_get"))),
        operation="stream",
        memory=draw(st.sampled_from(Memory)),
        transport=draw(st.sampled_from(("tcp", "tcp", "rc"))),
        phase=draw(st.sampled_from(Phase)),
        streams=4,
        measured_at=draw(moments),
        bytes_per_second=None if failure else draw(rates),
        failure=failure,
        serving_bytes_per_second=draw(st.none() | rates),
    )


evidences = st.builds(
    Evidence,
    run_id=st.sampled_from((cases.RUN, "run-2")),
    pool_uid=st.sampled_from((cases.POOL_UID, cases.POOL_UID, "another-pool")),
    planned=st.lists(paths, max_size=6).map(tuple),
    samples=st.lists(samples(), max_size=12).map(tuple) | st.just(cases.everywhere()),
    measured_at=moments,
    nodes=st.just(cases.identities()) | st.builds(NodeIdentity, names, names, names).map(lambda one: (one,)),
    uplinks=st.lists(st.builds(Uplink, st.just("spine"), rates, rates), max_size=2).map(tuple),
    problems=st.lists(st.just("a line was ignored"), max_size=1).map(tuple),
)
specs = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(Mode),
        "suspend": st.booleans(),
        "enforcement": st.fixed_dictionaries({"adopt": st.booleans()}),
        "criteria": st.fixed_dictionaries(
            {},
            optional={
                "routing": st.just({"kvEvents": "Ignored"}),
                "disaggregation": st.fixed_dictionaries(
                    {"ttftBudget": st.sampled_from(("1ms", "2s", "60s"))},
                    optional={
                        "minThroughput": st.sampled_from(("1Mbit/s", "10GB/s")),
                        "minCoverage": st.sampled_from(("0%", "50%", "100%")),
                        "slowestPercentOfPaths": st.integers(1, 100),
                        "approval": st.sampled_from(("Required", "NotRequired")),
                    },
                ),
                "kvStorage": st.just(
                    {"reloadVersusRecompute": {"storageThroughput": "2GB/s", "prefillTokensPerSecond": 20000}}
                ),
            },
        ),
        "rollback": st.fixed_dictionaries(
            {
                "onEvidenceLost": st.sampled_from(("Hold", "Revert")),
                "onApprovalLost": st.sampled_from(("Hold", "Revert")),
                "cooldown": st.sampled_from(("0s", "1h", "9999999h9999999h9999999h9999999h")),
            }
        ),
        "changeWindows": st.sampled_from(
            ((), ({"schedule": "0 2 * * 6", "duration": "4h", "timeZone": "Europe/Berlin"},))
        ),
        "workload": st.sampled_from(
            (
                {"prompts": [{"tokens": 3000}]},
                {"prompts": [{"tokens": 3000}], "peakRequestsPerSecond": "0.2"},
                {"prompts": [{"tokens": 1 << 24}], "peakRequestsPerSecond": "999999999999"},
            )
        ),
        "fabric": st.sampled_from(
            ({}, {"probe": {"endpoint": {"tool": "none"}, "phases": ["Isolated"]}}, {"evidenceTTL": "9999999h"})
        ),
    }
)


def toggles(capability: Capability) -> st.SearchStrategy[Toggle]:
    switched = st.sampled_from(Switch).map(lambda switch: worlds.toggle(capability, switch))
    refused = st.sampled_from(Switch).map(lambda switch: worlds.refused(capability, switch))
    return st.one_of(switched, switched.map(lambda found: replace(found, conflict="argocd")), refused)


targets: st.SearchStrategy[TargetView | TargetProblem] = st.one_of(
    st.just(TargetProblem("TargetNotFound", "it is not there")),
    st.builds(
        TargetView,
        uid=st.sampled_from(("target-uid", "target-uid", "another-uid", "")),
        fabric_class=st.sampled_from(FabricClass),
        toggles=st.fixed_dictionaries({}, optional={c: toggles(c) for c in Capability if c is not worlds.STORAGE}),
    ),
)
approvals = st.builds(
    lambda created, capability, digest, expires, accepted: GivenApproval(
        "approval",
        created,
        ApprovalSpec.model_validate(
            {
                "poolRef": {"name": "qwen3", "uid": cases.POOL_UID},
                "capability": capability,
                "planHash": digest or f"v1:sha256:{'c' * 64}",
                "approver": "ann",
                "expiresAt": expires,
                "acceptInconclusive": accepted,
            }
        ),
    ),
    moments,
    st.sampled_from(Capability),
    hashes,
    moments,
    st.lists(
        st.sampled_from(("Unmeasured", "EndpointUnmeasured", "Declared", "NotMeasured", "TTFTBudgetExceeded")),
        max_size=5,
    ),
)
entries = wire(
    HistoryEntry,
    time=st.integers(0, 100).map(lambda hours: NOW - timedelta(hours=hours)),
    action=st.sampled_from(Action),
    capability=st.sampled_from(Capability),
    reason=st.just("CriteriaMet"),
    plan_hash=hashes,
)
fences = wire(
    SweepStatus,
    run_id=st.sampled_from((cases.RUN, "run-9")),
    started_at=st.just(NOW - timedelta(minutes=9)),
    reason=st.just("no evidence yet"),
)
sweeps = st.builds(
    Sweep,
    run_id=st.sampled_from((cases.RUN, "run-9")),
    started_at=moments,
    walkers=st.lists(st.builds(Walker, names, names, st.sampled_from(WalkerState)), max_size=2).map(tuple),
)
baselines = st.sampled_from(Capability).map(lambda capability: worlds.toggle(capability, Switch.ON).baseline)
statuses = wire(
    PoolStatus,
    observed_generation=st.integers(-1, 3),
    permitted=st.lists(st.sampled_from(Capability), unique=True).map(tuple),
    capabilities=st.lists(
        wire(
            CapabilityStatus,
            name=st.sampled_from(Capability),
            outcome=st.sampled_from(Outcome),
            plan_hash=st.just(f"v1:sha256:{'a' * 64}"),
            proposed_at=st.just(NOW - timedelta(hours=2)),
            epoch=st.integers(0, 3),
            enabled=st.booleans(),
        ),
        unique_by=lambda held: held.name,
    ).map(tuple),
    target=st.none() | wire(TargetStatus, uid=st.sampled_from(("", "target-uid")), baseline=baselines),
    sweep=st.none() | fences,
    operation=st.none()
    | wire(
        Operation,
        id=st.just("0123456789ab"),
        capability=st.sampled_from(Capability),
        plan_hash=hashes,
        step=st.sampled_from((Move.ENABLE, Move.REVERT, "Dance")),
        started_at=st.just(NOW - timedelta(minutes=9)),
    ),
    history=st.lists(entries, max_size=10).map(
        lambda held: tuple(sorted(held, key=lambda entry: entry.time, reverse=True))
    ),
)


def spec_of(changes: Mapping[str, object]) -> dict[str, object]:
    return {
        "targetRef": {"name": "qwen3"},
        "model": {"name": "Qwen/Qwen3-0.6B"},
        **changes,
    }


PASSING: dict[str, object] = {
    "mode": "Enforce",
    "workload": {"prompts": [{"tokens": 3000}], "peakRequestsPerSecond": "0.2"},
    "fabric": {"probe": {"endpoint": {"tool": "none"}, "phases": ["Isolated"]}},
    "criteria": {"disaggregation": {"ttftBudget": "2s", "approval": "NotRequired"}},
}
KEYS = ("mode", "suspend", "enforcement", "criteria", "rollback", "changeWindows", "workload", "fabric")
sizes: st.SearchStrategy[KVKnown | KVUnknown] = st.sampled_from(
    (cases.kv(1 << 40), cases.kv(block_tokens=0), KVUnknown("KVBytesUnknown", "supply bytesPerToken"))
)
places = st.sampled_from(
    (
        Nodes(),
        Nodes(problem="no label"),
        cases.nodes(("p1",), ("p1", "d1")),
        cases.nodes(("p1",), ("p1",)),
        cases.nodes(("p1", "p3"), ("d1",)),
    )
)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Pool, World]:
    """A pool that passes, of which some parts are anything else."""
    odd = draw(st.sets(st.sampled_from((*KEYS, "status", "deleted", "target", "kv", "nodes", "evidence", "more"))))

    def either(part: str, plain: T, strange: st.SearchStrategy[T]) -> T:
        return draw(strange) if part in odd else plain

    strange = draw(specs)
    wild = {key: strange[key] for key in KEYS if key in odd}
    swept = cases.evidence(cases.everywhere(draw(st.sampled_from((worlds.FAST, worlds.SLOW)))))
    before = replace(swept, run_id="run-0", samples=tuple(replace(one, run_id="run-0") for one in swept.samples))
    view = TargetView("target-uid", toggles={SPLIT: draw(st.sampled_from(Switch).map(_split))})
    ours = PoolStatus(target=TargetStatus(uid="target-uid", baseline=_split(Switch.ON).baseline))
    pool = Pool(
        name="qwen3",
        namespace="serving",
        uid=cases.POOL_UID,
        generation=2,
        spec=PoolSpec.model_validate(spec_of({**PASSING, **wild})),
        status=either("status", draw(st.sampled_from((PoolStatus(), ours))), statuses),
        created_at=NOW - timedelta(days=1),
        measure_requested_at=draw(st.sampled_from(("", "now"))),
        deleted="deleted" in odd,
    )
    world = World(
        target=either("target", view, targets),
        kv=draw(sizes) if "kv" in odd else cases.kv(),
        nodes=either("nodes", cases.nodes(), places),
        evidence=either("evidence", (swept, before), st.lists(evidences, max_size=2).map(tuple)),
        approvals=draw(st.lists(approvals, max_size=3).map(tuple)),
        claimed_by=either("more", "", st.sampled_from(("", "elder"))),
        sweep=either("more", None, st.none() | sweeps),
        evidence_problem=either("more", "", st.sampled_from(("", "report x: digest differs"))),
        observed_requests_per_second=either("more", None, st.none() | rates),
    )
    return pool, world


def _split(switch: Switch) -> Toggle:
    return worlds.toggle(SPLIT, switch)


many = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@many
@given(scenes())
def test_decide_is_total_and_its_status_holds_and_survives_json(scene: tuple[Pool, World]) -> None:
    pool, world = scene
    status = decide(pool, world, NOW).status
    assert broken(status, pool.generation, NOW) == []
    text = json.dumps(status.model_dump(mode="json", by_alias=True), allow_nan=False)
    assert PoolStatus.model_validate_json(text) == status


@many
@given(scenes())
def test_only_a_pass_that_is_permitted_is_ever_enabled(scene: tuple[Pool, World]) -> None:
    pool, world = scene
    decision = decide(pool, world, NOW)
    outcomes = {held.name: held.outcome for held in decision.status.capabilities}
    for step in decision.patches:
        assert pool.spec.mode is Mode.ENFORCE
        assert not pool.spec.suspend
        assert not world.claimed_by
        if isinstance(step, Enable):
            assert outcomes[step.capability] is Outcome.PASS
            assert step.capability in decision.status.permitted
            assert not pool.deleted
    assert len(decision.patches) <= 1


@many
@given(scenes())
def test_every_patch_is_written_down_before_it_is_made(scene: tuple[Pool, World]) -> None:
    decision = decide(*scene, NOW)
    for step in decision.patches:
        operation = decision.status.operation
        assert operation is not None
        assert (operation.id, operation.capability) == (step.operation_id, step.capability)
        assert decision.status.target is not None
        fields = step.steps if isinstance(step, Enable) else step.baseline
        assert fields
        held = {(entry.component, entry.env) for entry in decision.status.target.baseline}
        assert {(field.component, field.env) for field in fields} <= held


@many
@given(scenes())
def test_a_still_world_comes_to_rest_and_a_minute_changes_not_one_byte(scene: tuple[Pool, World]) -> None:
    pool, world = scene
    for _ in range(6):
        decision = decide(pool, world, NOW)
        if decision.status == pool.status:
            break
        pool = replace(pool, status=decision.status)
    later = decide(pool, world, NOW + timedelta(minutes=1))
    assert later.status.model_dump_json() == pool.status.model_dump_json()
    assert later.patches == decision.patches


@many
@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_of_samples_approvals_and_nodes_changes_nothing(scene: tuple[Pool, World], random: Random) -> None:
    pool, world = scene

    def shuffled(held: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(random.sample(held, len(held)))

    again = tuple(replace(one, samples=shuffled(one.samples), nodes=shuffled(one.nodes)) for one in world.evidence)
    mixed = replace(world, evidence=again, approvals=shuffled(world.approvals))
    assert decide(pool, mixed, NOW) == decide(pool, world, NOW)


@many
@given(scenes())
def test_without_evidence_nothing_of_the_split_passes(scene: tuple[Pool, World]) -> None:
    pool, world = scene
    gone = [replace(world, evidence=()), replace(world, evidence=tuple(replace(e, samples=()) for e in world.evidence))]
    for less in gone:
        decision = decide(pool, less, NOW)
        assert all(held.outcome is not Outcome.PASS for held in decision.status.capabilities if held.name is SPLIT)
        assert not any(isinstance(step, Enable) and step.capability is SPLIT for step in decision.steps)


@many
@given(scenes(), st.integers(0, 20))
def test_one_sample_less_never_makes_a_pass(scene: tuple[Pool, World], index: int) -> None:
    pool, world = scene
    if not world.evidence or len(world.evidence[0].samples) <= index:
        return
    kept = tuple(one for number, one in enumerate(world.evidence[0].samples) if number != index)
    lost = world.evidence[0].samples[index]
    less = replace(world.evidence[0], samples=kept)
    if lost.failure is not None or any(one.path == lost.path for one in kept):
        return
    before, after = verdict(pool, world, world.evidence[0]), verdict(pool, world, less)
    assert not any(_passes(after, finding) and finding.reason == "CoverageTooLow" for finding in before)


def verdict(pool: Pool, world: World, evidence: Evidence) -> tuple[Finding, ...]:
    return judge(Case(pool, world, evidence, NOW), SPLIT).findings


def _passes(findings: tuple[Finding, ...], like: Finding) -> bool:
    return any(found.criterion == like.criterion and found.outcome is Outcome.PASS for found in findings)


@many
@given(scenes(), paths, st.floats(1, 1e3))
def test_more_throughput_never_turns_a_pass_into_a_fail(scene: tuple[Pool, World], path: Path, factor: float) -> None:
    pool, world = scene
    for evidence in world.evidence:
        faster = replace(evidence, samples=tuple(_faster(one, path, factor) for one in evidence.samples))
        passed = {found.criterion for found in verdict(pool, world, evidence) if found.outcome is Outcome.PASS}
        failed = {found.criterion for found in verdict(pool, world, faster) if found.outcome is Outcome.FAIL}
        assert not passed & failed


def _faster(sample: Sample, path: Path, factor: float) -> Sample:
    rate = sample.bytes_per_second
    if sample.path != path or rate is None or not 0 < rate <= 1e10:
        return sample
    return replace(sample, bytes_per_second=rate * factor)


@many
@given(st.lists(st.floats(1e6, 4e8), min_size=4, max_size=4), st.integers(0, 3), st.floats(1, 1e3))
def test_more_throughput_on_a_whole_fabric_never_turns_its_pass_into_a_fail(
    carried: list[float], index: int, factor: float
) -> None:
    def outcome(numbers: list[float]) -> Outcome:
        found = tuple(cases.sample(path, rate) for path, rate in zip(cases.PATHS, numbers, strict=True))
        return judge(cases.case(measured=cases.evidence(found)), SPLIT).outcome

    faster = [rate * factor if number == index else rate for number, rate in enumerate(carried)]
    if outcome(carried) is Outcome.PASS:
        assert outcome(faster) is not Outcome.FAIL


@many
@given(scenes())
def test_no_sweep_is_started_for_a_pool_that_must_not_act(scene: tuple[Pool, World]) -> None:
    pool, world = scene
    decision = decide(pool, world, NOW)
    sweeps = [step for step in decision.steps if isinstance(step, Measure)]
    if pool.spec.suspend or pool.deleted or world.claimed_by:
        assert sweeps == []
    if world.nodes.unpaired:
        assert all(not path.same_node for sweep in sweeps for path in sweep.paths)
    if pool.status.sweep is None:
        assert not (sweeps and decision.patches)
