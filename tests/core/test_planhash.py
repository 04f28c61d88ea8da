"""The plan hash: every input that an approver agrees to changes it, and nothing that a fresh sweep brings does."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta

import pytest

from kvgate.api.words import Capability, Memory, Phase
from kvgate.core.ab.evidence import TraceSeen
from kvgate.core.evidence import FailureKind, NodeIdentity
from kvgate.core.judging import Case
from kvgate.core.planhash import plan_hash
from kvgate.core.target import TargetProblem, ToggleStep
from kvgate.core.world import KVUnknown
from tests.core.cases import (
    MEASURED,
    NOW,
    PATHS,
    case,
    endpoint,
    everywhere,
    evidence,
    failed,
    identities,
    kv,
    nodes,
    sample,
    target,
    toggle,
)

SPLIT = Capability.DISAGGREGATION
PREFILL_LABEL = {"fabric.prefillNodes": {"matchLabels": {"pool": "prefill"}}}


def digest(seen: Case, capability: Capability = SPLIT, epoch: int = 0) -> str:
    return plan_hash(seen, capability, epoch)


def toggled(**fields: object) -> Case:
    return case(deployment=target(toggles={SPLIT: toggle(**fields)}))


def seen_by(**fields: object) -> Case:
    """The same numbers, come about another way."""
    return case(measured=evidence(dataclasses.replace(one, **fields) for one in everywhere()))  # type: ignore[arg-type]


PLAN = digest(case())


def test_plans_of_the_version_before_keep_their_hashes_while_no_later_field_is_set() -> None:
    """As that version wrote them: what a new field brings must not take approvals away."""
    assert PLAN == "v1:sha256:8de4c0d290624fff924cc1acac74d50450f953797594b7ba8c07d67a4d437833"
    routing = "v1:sha256:54a745e66f6f571143e804f5d533131bd274ce905c22109cf4b3eef7752bfe58"
    assert digest(case(), Capability.ROUTING) == routing


def test_a_hash_names_its_version_and_its_kind() -> None:
    assert re.fullmatch(r"v1:sha256:[0-9a-f]{64}", PLAN)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(digest(case(), Capability.ROUTING), id="another capability"),
        pytest.param(digest(case(), epoch=1), id="the epoch, so that a rolled-back split needs a new approval"),
        pytest.param(digest(case(pool_uid="re-created")), id="the pool's UID"),
        pytest.param(digest(case(deployment=target(uid="other"))), id="the target's UID"),
        pytest.param(
            digest(toggled(steps=(ToggleStep("Worker", "DYN_ENFORCE_DISAGG", "true"),))), id="a step's component"
        ),
        pytest.param(digest(toggled(steps=(ToggleStep("Frontend", "OTHER", "true"),))), id="a step's env"),
        pytest.param(digest(toggled(steps=(ToggleStep("Frontend", "DYN_ENFORCE_DISAGG", "1"),))), id="a step's value"),
        pytest.param(digest(toggled(projection='{"image":"b"}')), id="the projection: an image, args or resources"),
        pytest.param(digest(case({"criteria.disaggregation.ttftBudget": "3s"})), id="a criterion"),
        pytest.param(
            digest(case({"criteria.disaggregation.minThroughput": "1MB/s"})), id="a criterion that was not set"
        ),
        pytest.param(digest(case({"criteria.disaggregation.attestations": ["TenantIsolation"]})), id="an attestation"),
        pytest.param(digest(case({"model.name": "other"})), id="the model's name"),
        pytest.param(digest(case({"model.kvCache.dtype": "fp8"})), id="the KV cache's element type"),
        pytest.param(digest(case(size=kv(digest="other-config"))), id="the model's config.json"),
        pytest.param(digest(case({"fabric.probe.link.streams": 8})), id="how the link is probed"),
        pytest.param(digest(case({"fabric.probe.link.singleStream": True})), id="a test with one stream besides"),
        pytest.param(digest(case({"fabric.probe.endpoint.operation": "write"})), id="what the endpoint's tool does"),
        pytest.param(digest(case({"fabric.probe.endpoint.duration": "6s"})), id="how long the endpoint is probed"),
        pytest.param(digest(case({"fabric.probe.loadDerating": "0.9"})), id="the load derating"),
        pytest.param(digest(case({"fabric.probe.hostNetwork": True})), id="probing from the host's network"),
        pytest.param(digest(case(PREFILL_LABEL)), id="a node selector"),
        pytest.param(digest(seen_by(tool="other")), id="evidence by another tool"),
        pytest.param(digest(seen_by(operation="read")), id="evidence of another operation"),
        pytest.param(digest(seen_by(memory=Memory.GPU)), id="evidence of another memory"),
        pytest.param(digest(seen_by(transport="rdma")), id="evidence over another transport"),
        pytest.param(
            digest(case(measured=evidence([*everywhere(), *(endpoint(one) for one in PATHS)]))),
            id="evidence of another layer besides",
        ),
    ],
)
def test_what_changes_the_plan(changed: str) -> None:
    assert changed not in {"", PLAN}


def routing_digest(spec: dict[str, object] | None = None, trace: TraceSeen | None = None) -> str:
    """The routing plan of a pool whose A/B sends a trace, unless `spec` says otherwise."""
    named = {"configMapKeyRef": {"name": "trace", "key": "trace.jsonl"}} if trace else None
    benchmark = {"targetRef": {"name": "staging"}} | ({"trace": named} if named else {})
    plain = case({"criteria.routing": {"benchmark": benchmark}} | (spec or {}))
    return digest(dataclasses.replace(plain, world=dataclasses.replace(plain.world, trace=trace)), Capability.ROUTING)


@pytest.mark.parametrize(
    ("changed", "from_what"),
    [
        pytest.param(
            routing_digest(trace=TraceSeen("b")), routing_digest(trace=TraceSeen("a")), id="the trace's content"
        ),
        pytest.param(
            routing_digest({"workload.prompts": [{"tokens": 4000}]}),
            routing_digest(),
            id="the prompt sizes that the built-in workload is made of",
        ),
    ],
)
def test_the_workload_of_the_ab_is_part_of_the_routing_plan(changed: str, from_what: str) -> None:
    assert "" not in {changed, from_what}
    assert changed != from_what


def test_a_trace_that_cannot_be_read_leaves_no_plan_of_routing_and_the_split_its_own() -> None:
    lost = TraceSeen(problem="ConfigMap serving/trace, key trace.jsonl, does not exist")
    assert routing_digest(trace=lost) == ""
    plain = case()
    assert digest(dataclasses.replace(plain, world=dataclasses.replace(plain.world, trace=lost))) == PLAN


LATER = NOW + timedelta(hours=3)


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(
            case(
                measured=evidence(
                    everywhere(260e6, run_id="run-2", measured_at=MEASURED + timedelta(hours=2)),
                    run_id="run-2",
                    measured_at=MEASURED + timedelta(hours=2),
                    report="qwen3-run-2",
                ),
                now=LATER,
            ),
            id="a fresh sweep of the same class: run, numbers, time and report differ",
        ),
        pytest.param(case(measured=evidence(reversed(everywhere()))), id="samples in another order"),
        pytest.param(
            case(
                measured=evidence(nodes=identities(d1=NodeIdentity("d1", "new", "new", "new"))),
                on=nodes(identities=identities(d1=NodeIdentity("d1", "new", "new", "new"))),
            ),
            id="a node replaced and measured again",
        ),
        pytest.param(case(on=nodes(decode=("d1",))), id="one decode node fewer"),
        pytest.param(seen_by(interface="eth1", retransmits=9, streams=8), id="details of a sample"),
        pytest.param(seen_by(phase=Phase.CONCURRENT), id="the phase of a sample"),
        pytest.param(
            case(measured=evidence([*everywhere(), failed("p1→d1", FailureKind.SERVER_BUSY, tool="other")])),
            id="an attempt that gave no number",
        ),
        pytest.param(
            case(measured=evidence([*everywhere(), sample("x→y", transport="rdma")])),
            id="a sample of a path not in use",
        ),
        pytest.param(case({"mode": "Enforce"}), id="the mode"),
        pytest.param(case({"fabric.schedule.interval": "1h"}), id="the schedule"),
        pytest.param(case({"workload.peakRequestsPerSecond": "0.3"}), id="the peak rate"),
        pytest.param(case({"criteria.routing": {}}), id="the criteria of another capability"),
        pytest.param(
            case({"criteria.disaggregation.maxUtilization": "70%", "fabric.probe.port": 5201}),
            id="a default that is written out",
        ),
    ],
)
def test_what_keeps_the_plan(same: Case) -> None:
    assert digest(same) == PLAN


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(case(deployment=TargetProblem("TargetNotFound", "gone")), id="no target"),
        pytest.param(case(deployment=target(uid="")), id="a target without a UID"),
        pytest.param(case(size=KVUnknown("KVBytesUnknown", "supply bytesPerToken")), id="no KV size"),
    ],
)
def test_without_a_known_target_and_size_there_is_no_plan(unknown: Case) -> None:
    assert digest(unknown) == ""


def test_evidence_is_no_part_of_the_plan_for_routing() -> None:
    other = dataclasses.replace(case(), evidence=None)
    assert digest(other, Capability.ROUTING) == digest(case(), Capability.ROUTING)


def test_the_order_in_which_a_deployment_lists_its_components_is_no_part_of_the_plan() -> None:
    steps = (ToggleStep("a", "MODE", "prefill"), ToggleStep("b", "MODE", "decode"))
    assert digest(toggled(steps=steps)) == digest(toggled(steps=steps[::-1]))
