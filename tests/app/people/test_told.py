"""What people are told of a pool: one line, one screen, one condition, a readiness list, and a story."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from kvgate.api.objects import GateApproval
from kvgate.api.status import PoolStatus
from kvgate.api.words import ConditionType
from kvgate.app.people.audit import transitions
from kvgate.app.people.checklist import Facts, readiness
from kvgate.app.people.explain import condition_of, print_condition
from kvgate.app.people.states import age, passed, states, urgent
from kvgate.app.people.status import print_pool, print_pools
from kvgate.core.target import Switch
from kvgate.edge.cluster.desk import PoolEvent
from kvgate.edge.errors import EdgeError
from tests.core.worlds import SLOW, STORAGE, Scene, closed, opened, proposed, sweep

UNJUDGED = Scene()
FAILING = Scene(evidence=(sweep(SLOW, "run-1", Scene().now - timedelta(hours=1)),)).after()
SCENES = {
    "a pool that nobody judged": (UNJUDGED, [], False),
    "a plan that waits for an approval": (proposed(), [("held", "ApprovalMissing", "approver")], True),
    "a budget that is exceeded": (FAILING, [("held", "TTFTBudgetExceeded", "owner")], False),
    "a window that is closed": (
        proposed().approved().asking(changeWindows=[{"schedule": "0 2 * * 6", "duration": "1h"}]).after(),
        [("held", "HeldByWindow", "nobody")],
        True,
    ),
    "a split that is on": (opened(), [("on", "AwaitingVerification", "deployer")], True),
    "a split that was rolled back": (closed(), [("held", "TTFTBudgetExceeded", "owner")], False),
    "storage that is the user's to switch": (
        proposed().gating(STORAGE, Switch.UNREADABLE).after(),
        [("held", "ApprovalMissing", "approver"), ("held", "NotDeclared", "owner")],
        False,
    ),
}


@contextmanager
def paper() -> Iterator[tuple[Console, StringIO]]:
    written = StringIO()
    yield Console(file=written, width=200, highlight=False, markup=False), written


@pytest.mark.parametrize(("scene", "wanted", "passes"), SCENES.values(), ids=SCENES.keys())
def test_how_each_capability_stands(scene: Scene, wanted: list[tuple[str, str, str]], *, passes: bool) -> None:
    found = states(scene.pool)
    assert [(state.word, state.why, state.who) for state in found] == wanted
    assert passed(scene.pool) is passes


@pytest.mark.parametrize(("scene", "wanted", "passes"), SCENES.values(), ids=SCENES.keys())
def test_each_is_printed_on_one_screen(scene: Scene, wanted: list[tuple[str, str, str]], *, passes: bool) -> None:
    with paper() as (console, written):
        print_pools([scene.pool], scene.now, console, everywhere=True)
        print_pool(scene.pool, scene.now, console, "kubectl kvgate")
    said = written.getvalue()
    assert len(said.splitlines()) <= 24
    assert all(word in said for state in wanted for word in state)
    assert passes or scene is UNJUDGED or "ready" in said.lower()


def test_a_status_of_an_older_spec_is_not_told_as_news() -> None:
    stale = proposed().but(generation=2)
    assert not passed(stale.pool)
    with paper() as (console, written):
        print_pools([stale.pool], stale.now, console, everywhere=False)
        print_pool(stale.pool, stale.now, console, "kvgate")
    assert "ApprovalMissing (of an older spec)" in written.getvalue()
    assert "it saw generation 1, and it is at 2" in written.getvalue()


def test_a_spec_that_was_never_judged_has_no_older_one() -> None:
    with paper() as (console, written):
        print_pools([UNJUDGED.but(generation=1).pool], UNJUDGED.now, console, everywhere=False)
    assert "NotJudged" in written.getvalue()
    assert "admin" in written.getvalue()
    assert "older" not in written.getvalue()


def test_a_pool_that_nobody_judges_says_who_looks_where() -> None:
    with paper() as (console, written):
        print_pool(UNJUDGED.pool, UNJUDGED.now, console, "kvgate")
    said = " ".join(written.getvalue().split())
    assert "no operator has judged this pool yet, admin acts" in said
    assert "kubectl get pods -A -l app.kubernetes.io/name=kvgate" in said


def test_a_condition_of_a_pool_that_nobody_judges_says_who_looks_where() -> None:
    with paper() as (console, written):
        print_condition(UNJUDGED.pool, ConditionType.READY, UNJUDGED.now, console)
    said = " ".join(written.getvalue().split())
    assert "no operator has judged this pool yet Who acts admin Next See that kvgate runs" in said


def test_what_waits_for_a_person_comes_before_what_waits_for_time() -> None:
    window = [{"schedule": "0 2 * * 6", "duration": "1h"}]
    held = proposed().approved().asking(changeWindows=window).after()
    assert [state.who for state in states(held.pool)] == ["nobody"]
    first = urgent(states(held.gating(STORAGE, Switch.UNREADABLE).after().pool))
    assert first is not None
    assert (first.capability, first.who) == (STORAGE, "owner")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_ages_are_as_kubectl_writes_them(seconds: int, told: str) -> None:
    assert age(UNJUDGED.now - timedelta(seconds=seconds), UNJUDGED.now) == told


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("", ConditionType.APPROVED),
        ("fabricmeasured", ConditionType.FABRIC_MEASURED),
        ("split", ConditionType.DISAGGREGATION_ACCEPTED),
        ("routing", ConditionType.ROUTING_ACCEPTED),
    ],
)
def test_a_condition_is_found_by_its_type_or_by_what_it_is_of(word: str, kind: ConditionType) -> None:
    assert condition_of(proposed().pool, word) is kind


def test_a_word_that_means_no_condition_is_answered_with_those_that_do() -> None:
    with pytest.raises(EdgeError, match="FabricMeasured"):
        condition_of(proposed().pool, "bogus")


@pytest.mark.parametrize("kind", list(ConditionType))
def test_every_condition_can_be_explained(kind: ConditionType) -> None:
    with paper() as (console, written):
        print_condition(proposed().pool, kind, proposed().now, console)
    assert written.getvalue().startswith(kind)


def test_criteria_are_told_with_their_numbers() -> None:
    with paper() as (console, written):
        print_condition(FAILING.pool, ConditionType.DISAGGREGATION_ACCEPTED, FAILING.now, console)
    said = written.getvalue()
    assert "3000 tokens within 2s" in said
    assert "329.00 MiB add 13.10 s, 7.34 s of it waiting: Fail" in said
    assert "A faster path, a larger budget or shorter prompts" in said


def facts(scene: Scene, *approvals: GateApproval, declared: str = "") -> str:
    return "\n".join(readiness(Facts(scene.pool, approvals, declared, scene.now)))


def as_object(scene: Scene) -> GateApproval:
    given = scene.approvals[0]
    metadata = {"name": given.name, "creationTimestamp": given.created_at.isoformat()}
    return GateApproval.model_validate({"metadata": metadata, "spec": given.spec.model_dump(by_alias=True)})


def test_a_readiness_list_ticks_what_the_status_shows_and_no_more() -> None:
    waiting = facts(proposed())
    assert "- [x] Disaggregation: every criterion passes (Pass)" in waiting
    assert "- [ ] Disaggregation: approved (Missing)" in waiting
    assert "- [ ] Disaggregation: a rollback was tried on this pool" in waiting
    assert "None exists for this pool." in waiting
    assert "The KV transport: `fabric.probe.endpoint.tool` is `none`" in waiting
    assert "declares it: nothing" in waiting
    back = closed().after()
    tried = facts(back, as_object(back), declared="800G RoCE | rail-optimised")
    assert "- [x] Disaggregation: a rollback was tried on this pool" in tried
    assert "| approval-1 | Disaggregation | ann | the present one |" in tried
    assert "`800G RoCE \\| rail-optimised`" in tried


def test_what_was_never_judged_is_ready_for_nothing() -> None:
    said = facts(UNJUDGED)
    assert "[x]" not in said
    assert "No operator has judged this pool yet: nothing below rests on evidence (admin acts)." in said
    assert "older spec" not in said
    assert "The fabric: no sweep has ended." in said


def test_a_pool_that_nobody_judges_ticks_nothing_for_what_its_spec_asks() -> None:
    asked = UNJUDGED.asking(
        changeWindows=[{"schedule": "0 2 * * 6", "duration": "1h"}],
        monitor={"prometheusRef": {"name": "prometheus"}},
    )
    assert "[x]" not in facts(asked)


def test_the_last_transition_is_told_with_what_it_rested_on() -> None:
    back = closed()
    newest, first = transitions(back.pool, [as_object(back)], [])
    assert "kvgate switched the prefill/decode split back" in newest[0]
    assert "TTFTBudgetExceeded" in newest[1]
    assert "kvgate switched the prefill/decode split on" in first[0]
    said = "\n".join(first)
    assert "kvgate, approved by ann" in said
    assert "gateApproval approval-1" in said
    assert "VllmPrefillWorker/DYN_DISAGGREGATION_MODE=prefill" in said
    assert "ttftBudget" in said
    assert "VllmPrefillWorker/DYN_DISAGGREGATION_MODE removed" in "\n".join(newest)


def test_events_are_told_under_the_transition_before_them() -> None:
    back = closed()
    reverted, enabled = (entry.time for entry in back.pool.status.history)
    events = [
        PoolEvent(at.isoformat(), "Warning", f"E{number}", "said")
        for number, at in enumerate((enabled, reverted - timedelta(microseconds=1), reverted, reverted))
    ]
    newest, first = transitions(back.pool, [], [*events, PoolEvent("soon", "Normal", "NoTime", "")])
    assert [line.split()[2] for line in newest if " Warning " in line] == ["E2:", "E3:"]
    assert [line.split()[2] for line in first if " Warning " in line] == ["E0:", "E1:"]


def test_where_nothing_was_done_it_is_told_what_holds_it() -> None:
    (story,) = transitions(proposed().pool, [], [])
    assert "has done nothing to qwen3" in story[0]
    assert "no valid approval names the plan" in story[1]
    assert transitions(UNJUDGED.but(status=PoolStatus()).pool, [], [])[0][1:] == ()
