"""The decision table of the judgement, row by row, and that it has exactly one answer for every situation."""

from __future__ import annotations

from itertools import product

import pytest

from kvgate.api.words import ApprovalState, LossAction, Outcome
from kvgate.core.switching import Held, Move, Ruling, Situation, Stands, rule

OFF, OURS, FOREIGN = Stands.OFF, Stands.ON_OURS, Stands.ON_FOREIGN
PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN
VALID, MISSING = ApprovalState.VALID, ApprovalState.MISSING

ROWS = {
    "off, Pass, valid: enable": (Situation(OFF, PASS, VALID), Ruling(Move.ENABLE)),
    "off, Pass, none needed: enable": (Situation(OFF, PASS, ApprovalState.NOT_REQUIRED), Ruling(Move.ENABLE)),
    "off, Pass, missing: hold": (Situation(OFF, PASS, MISSING), Ruling(Move.HOLD, Held.APPROVAL)),
    "off, Pass, expired: hold, for expiry bounds enabling": (
        Situation(OFF, PASS, ApprovalState.EXPIRED),
        Ruling(Move.HOLD, Held.APPROVAL),
    ),
    "off, Pass, plan changed: hold": (
        Situation(OFF, PASS, ApprovalState.PLAN_CHANGED),
        Ruling(Move.HOLD, Held.APPROVAL),
    ),
    "off, Pass, not attested: hold": (
        Situation(OFF, PASS, ApprovalState.ATTESTATIONS_MISSING),
        Ruling(Move.HOLD, Held.APPROVAL),
    ),
    **{
        f"off, {outcome}: hold": (Situation(OFF, outcome, VALID), Ruling(Move.HOLD, Held.CRITERIA))
        for outcome in Outcome
        if outcome is not PASS
    },
    **{
        f"off, Pass, valid, but {held}: hold": (Situation(OFF, PASS, VALID, obstacle=held), Ruling(Move.HOLD, held))
        for held in (Held.WINDOW, Held.COOLDOWN, Held.OPERATION, Held.CONFLICT)
    },
    **{
        f"off, {held}: hold, and say so before anything else": (
            Situation(OFF, UNKNOWN, MISSING, obstacle=held),
            Ruling(Move.HOLD, held),
        )
        for held in (Held.DRIFTED, Held.ROLLBACK_LOOP, Held.TARGET)
    },
    "on, ours, a first Fail: sweep again": (Situation(OURS, FAIL, VALID), Ruling(Move.SWEEP_AGAIN)),
    "on, ours, a first Fail, no approval: sweep again": (Situation(OURS, FAIL, MISSING), Ruling(Move.SWEEP_AGAIN)),
    "on, ours, confirmed Fail: revert": (Situation(OURS, FAIL, VALID, confirmed=True), Ruling(Move.REVERT)),
    "on, ours, confirmed Fail, window closed: revert": (
        Situation(OURS, FAIL, VALID, confirmed=True, obstacle=Held.WINDOW),
        Ruling(Move.REVERT),
    ),
    "on, ours, confirmed Fail in the cool-down: revert": (
        Situation(OURS, FAIL, VALID, confirmed=True, obstacle=Held.COOLDOWN),
        Ruling(Move.REVERT),
    ),
    **{
        f"on, ours, {outcome}, onEvidenceLost Hold: stay": (
            Situation(OURS, outcome, VALID),
            Ruling(Move.HOLD, Held.EVIDENCE),
        )
        for outcome in (UNKNOWN, Outcome.ERROR, Outcome.INCONCLUSIVE)
    },
    **{
        f"on, ours, {outcome}, onEvidenceLost Revert: revert": (
            Situation(OURS, outcome, VALID, on_evidence_lost=LossAction.REVERT),
            Ruling(Move.REVERT, Held.EVIDENCE),
        )
        for outcome in (UNKNOWN, Outcome.ERROR, Outcome.INCONCLUSIVE)
    },
    "on, ours, Pass, valid: stay": (Situation(OURS, PASS, VALID), Ruling(Move.STAY)),
    "on, ours, Pass, approval expired: stay, even if losing it reverts": (
        Situation(OURS, PASS, ApprovalState.EXPIRED, on_approval_lost=LossAction.REVERT),
        Ruling(Move.STAY),
    ),
    **{
        f"on, ours, Pass, {state}, onApprovalLost Hold: stay": (
            Situation(OURS, PASS, state),
            Ruling(Move.HOLD, Held.APPROVAL),
        )
        for state in (MISSING, ApprovalState.PLAN_CHANGED, ApprovalState.ATTESTATIONS_MISSING)
    },
    **{
        f"on, ours, Pass, {state}, onApprovalLost Revert: revert": (
            Situation(OURS, PASS, state, on_approval_lost=LossAction.REVERT),
            Ruling(Move.REVERT, Held.APPROVAL),
        )
        for state in (MISSING, ApprovalState.PLAN_CHANGED, ApprovalState.ATTESTATIONS_MISSING)
    },
    "on, not ours, Fail, everything reverts: leave alone": (
        Situation(FOREIGN, FAIL, MISSING, True, False, LossAction.REVERT, LossAction.REVERT),
        Ruling(Move.LEAVE_ALONE, Held.OUTSIDE_GATE),
    ),
    "on, not ours, adopt: take over": (Situation(FOREIGN, FAIL, MISSING, adopt=True), Ruling(Move.ADOPT)),
}


@pytest.mark.parametrize(("seen", "expected"), ROWS.values(), ids=ROWS)
def test_row(seen: Situation, expected: Ruling) -> None:
    assert rule(seen) == expected


def situations() -> list[Situation]:
    flags = (False, True)
    axes = product(Stands, Outcome, ApprovalState, flags, flags, LossAction, LossAction, (Held.NOTHING, Held.WINDOW))
    return [Situation(*values) for values in axes]


def test_opening_needs_a_pass_and_an_approval_in_every_situation() -> None:
    opened = [seen for seen in situations() if rule(seen).move is Move.ENABLE]
    assert opened
    for seen in opened:
        assert seen.outcome is PASS
        assert seen.approval in {VALID, ApprovalState.NOT_REQUIRED}
        assert seen.stands is OFF
        assert seen.obstacle is Held.NOTHING


def test_closing_needs_a_confirmed_fail_or_a_loss_that_the_spec_says_to_close_on() -> None:
    closed = [seen for seen in situations() if rule(seen).move is Move.REVERT]
    assert closed
    for seen in closed:
        assert seen.stands is OURS
        fresh_fail = seen.outcome is FAIL and seen.confirmed
        assert fresh_fail or LossAction.REVERT in {seen.on_evidence_lost, seen.on_approval_lost}


def test_what_another_hand_switched_on_is_never_patched() -> None:
    moves = {rule(seen).move for seen in situations() if seen.stands is FOREIGN}
    assert moves == {Move.LEAVE_ALONE, Move.ADOPT}


def test_every_hold_says_by_what() -> None:
    assert all(rule(seen).held for seen in situations() if rule(seen).move is Move.HOLD)
