"""Which approval counts: for this pool, this plan, not older than it, not too long, and vouching for all."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from kvgate.api.approval import ApprovalSpec
from kvgate.api.words import Approval, ApprovalState, Capability
from kvgate.core.approvals import KEEPS, GivenApproval, Plan, Standing, standing
from tests.core.cases import NOW, POOL_UID

HASH = "v1:sha256:" + "a" * 64
OTHER_HASH = "v1:sha256:" + "b" * 64
PROPOSED = NOW - timedelta(hours=2)
CREATED = NOW - timedelta(hours=1)


def plan(
    needed: Approval = Approval.REQUIRED,
    plan_hash: str = HASH,
    proposed_at: datetime | None = PROPOSED,
    attestations: tuple[str, ...] = (),
) -> Plan:
    return Plan("qwen3", POOL_UID, Capability.DISAGGREGATION, plan_hash, proposed_at, needed, attestations)


def given(
    name: str = "by-jane",
    created_at: datetime = CREATED,
    life: timedelta = timedelta(days=30),
    pool: str = "qwen3",
    uid: str = POOL_UID,
    **fields: object,
) -> GivenApproval:
    document: dict[str, object] = {
        "poolRef": {"name": pool, "uid": uid},
        "capability": "Disaggregation",
        "planHash": HASH,
        "approver": "jane@example.com",
        "expiresAt": created_at + life,
    }
    return GivenApproval(name, created_at, ApprovalSpec.model_validate({**document, **fields}))


def stands(*approvals: GivenApproval, of: Plan | None = None, now: datetime = NOW) -> Standing:
    return standing(of or plan(), approvals, now)


@pytest.mark.parametrize(
    ("approval", "state"),
    [
        pytest.param(given(), ApprovalState.VALID, id="this pool's, this plan's, in time"),
        pytest.param(given(uid="re-created"), ApprovalState.MISSING, id="a pool of the same name, re-created"),
        pytest.param(given(pool="other"), ApprovalState.MISSING, id="another pool's name"),
        pytest.param(given(capability="KVStorage"), ApprovalState.MISSING, id="another capability"),
        pytest.param(given(planHash=OTHER_HASH), ApprovalState.PLAN_CHANGED, id="another plan"),
        pytest.param(
            given(created_at=PROPOSED - timedelta(seconds=1)), ApprovalState.PLAN_CHANGED, id="older than the proposal"
        ),
        pytest.param(given(created_at=PROPOSED), ApprovalState.VALID, id="as old as the proposal"),
        pytest.param(
            given(created_at=CREATED, life=NOW - CREATED), ApprovalState.EXPIRED, id="expires at this very moment"
        ),
        pytest.param(given(life=NOW - CREATED + timedelta(seconds=1)), ApprovalState.VALID, id="expires in a second"),
        pytest.param(given(life=timedelta(days=90)), ApprovalState.VALID, id="runs for 90 days, the limit"),
        pytest.param(
            given(life=timedelta(days=90, seconds=1)), ApprovalState.EXPIRED, id="runs for a second more than 90 days"
        ),
        pytest.param(
            given(created_at=NOW + timedelta(days=80), life=timedelta(days=11)),
            ApprovalState.EXPIRED,
            id="says it was created in 80 days, and ends in 91",
        ),
    ],
)
def test_the_state_of_one_approval(approval: GivenApproval, state: ApprovalState) -> None:
    found = stands(approval)
    assert found.state is state
    assert found.permits is (state is ApprovalState.VALID)
    assert found.permits or f"an approver must create a GateApproval for Disaggregation with planHash {HASH}" in (
        found.message
    )


@pytest.mark.parametrize(
    ("asked", "attested", "state"),
    [
        pytest.param((), (), ApprovalState.VALID, id="none asked, none given"),
        pytest.param(("A", "B"), ("B", "A"), ApprovalState.VALID, id="all asked are given, in any order"),
        pytest.param(("A",), ("A", "B"), ApprovalState.VALID, id="more than asked"),
        pytest.param(("A", "B"), ("A",), ApprovalState.ATTESTATIONS_MISSING, id="one is missing"),
        pytest.param(("A",), ("a",), ApprovalState.ATTESTATIONS_MISSING, id="another spelling is another word"),
    ],
)
def test_attestations(asked: tuple[str, ...], attested: tuple[str, ...], state: ApprovalState) -> None:
    found = stands(given(attestations=attested), of=plan(attestations=asked))
    assert found.state is state
    assert found.permits or "an approver must create a GateApproval" in found.message
    assert all(
        word in found.message for word in asked if state is ApprovalState.ATTESTATIONS_MISSING and word not in attested
    )


@pytest.mark.parametrize(
    ("approvals", "state"),
    [
        pytest.param((), ApprovalState.MISSING, id="nothing given"),
        pytest.param((given(planHash=OTHER_HASH), given()), ApprovalState.VALID, id="a valid one beside an old one"),
        pytest.param(
            (given(planHash=OTHER_HASH), given(life=timedelta(minutes=1))),
            ApprovalState.EXPIRED,
            id="an expired one says more than one of another plan",
        ),
    ],
)
def test_the_best_of_many_counts(approvals: tuple[GivenApproval, ...], state: ApprovalState) -> None:
    assert stands(*approvals).state is state
    assert stands(*reversed(approvals)).state is state


def test_expiry_bounds_enabling_and_not_staying_enabled() -> None:
    found = stands(given(life=timedelta(minutes=1)))
    assert (found.permits, found.state in KEEPS) == (False, True)


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param((), id="a deleted approval"),
        pytest.param((given(planHash=OTHER_HASH),), id="an approval of another plan"),
    ],
)
def test_a_lost_approval_keeps_nothing(lost: tuple[GivenApproval, ...]) -> None:
    assert stands(*lost).state not in KEEPS


def test_without_a_plan_nothing_can_be_approved() -> None:
    assert stands(given(), of=plan(plan_hash="")).state is ApprovalState.PLAN_CHANGED
    assert "no plan" in stands(of=plan(plan_hash="")).message


def test_what_is_missing_names_who_must_act_and_the_hash_to_copy() -> None:
    message = stands().message
    assert "approver" in message
    assert HASH in message
    assert "Disaggregation" in message


REASONS = ("EndpointUnmeasured",)


@pytest.mark.parametrize(
    ("approval", "of", "accepted"),
    [
        pytest.param(
            given(acceptInconclusive=REASONS),
            plan(),
            {"EndpointUnmeasured"},
            id="a valid approval accepts what it names",
        ),
        pytest.param(given(), plan(), set(), id="an approval that names nothing accepts nothing"),
        pytest.param(
            given(life=timedelta(minutes=1), acceptInconclusive=REASONS),
            plan(),
            set(),
            id="an expired one accepts nothing",
        ),
        pytest.param(
            given(planHash=OTHER_HASH, acceptInconclusive=REASONS),
            plan(),
            set(),
            id="one of another plan accepts nothing",
        ),
        pytest.param(
            given(acceptInconclusive=REASONS),
            plan(attestations=("A",)),
            set(),
            id="one that attests too little accepts nothing",
        ),
        pytest.param(
            given(acceptInconclusive=REASONS),
            plan(Approval.NOT_REQUIRED),
            {"EndpointUnmeasured"},
            id="one that was not required may accept",
        ),
        pytest.param(
            given(planHash=OTHER_HASH, acceptInconclusive=REASONS),
            plan(Approval.NOT_REQUIRED),
            set(),
            id="not required, and of another plan, accepts nothing",
        ),
    ],
)
def test_which_inconclusive_reasons_are_accepted(approval: GivenApproval, of: Plan, accepted: set[str]) -> None:
    assert stands(approval, of=of).accepted == accepted


def test_an_approval_that_is_not_required_permits() -> None:
    found = stands(of=plan(Approval.NOT_REQUIRED))
    assert (found.state, found.permits, found.state in KEEPS) == (ApprovalState.NOT_REQUIRED, True, True)
