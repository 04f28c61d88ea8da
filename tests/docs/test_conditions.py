"""docs/conditions.md says every word that a condition, a finding or the history can carry, and no other."""

from __future__ import annotations

import pytest

from kvgate.api.words import ApprovalState, Capability, ConditionType
from kvgate.core.conditions import TABLE
from kvgate.core.evidence import FAULTS_OF_THE_PATH, FailureKind
from kvgate.core.links import SPANS, Link
from kvgate.core.memory import Action
from tests.docs import pages, reasons

PAGE = pages.page("conditions.md")
ACCEPTED = "RoutingAccepted, DisaggregationAccepted, KVStorageAccepted"
ENABLED = "RoutingEnabled, DisaggregationEnabled, KVStorageEnabled"
TOLD_UNDER = {
    "target_resolved": "TargetResolved",
    "fabric_measured": "FabricMeasured",
    "kv_events_healthy": "KVEventsHealthy",
    "metrics_healthy": "MetricsHealthy",
    "accepted": ACCEPTED,
    "approved": "Approved",
    "enabled": ENABLED,
    "verified": ENABLED,
    "drifted": "Drifted",
    "rolled_back": "RolledBack",
}
"""The section of the page for each function that tells a condition."""


def words(kind: str) -> list[str]:
    return [row.word for row in pages.rows(PAGE, kind)]


def reasons_under(heading: str) -> set[str]:
    return {row.word for row in pages.rows(PAGE, "reason") if row.heading == heading}


def test_every_condition_type_is_explained() -> None:
    assert words("condition") == list(ConditionType)


def test_every_function_that_tells_a_condition_has_its_section() -> None:
    assert set(reasons.told("conditions")) == set(TOLD_UNDER)
    told = {name.strip() for section in TOLD_UNDER.values() for name in section.split(",")}
    assert told == set(TABLE)


@pytest.mark.parametrize("section", dict.fromkeys(TOLD_UNDER.values()))
def test_each_section_has_exactly_the_reasons_of_its_condition(section: str) -> None:
    functions = [function for function, under in TOLD_UNDER.items() if under == section]
    told = reasons.told("conditions")
    assert reasons_under(section) == set().union(*(told[function] for function in functions))


def test_the_section_of_ready_has_exactly_the_reasons_of_the_kstatus_rows() -> None:
    told = set().union(*reasons.told("kstatus").values())
    assert reasons_under("Ready") == told


def test_every_word_that_holds_a_capability_is_explained() -> None:
    assert sorted(words("heldBy")) == sorted(reasons.held())


def test_every_state_of_an_approval_is_explained() -> None:
    assert words("approval") == list(ApprovalState)


def test_every_finding_stands_there_with_its_outcome() -> None:
    written = [(row.cells[1], row.word) for row in pages.rows(PAGE, "finding")]
    assert sorted(written) == sorted(reasons.found())


def test_every_link_stands_there_in_order_with_its_deadline() -> None:
    rows = {row.word: row.cells[3] for row in pages.rows(PAGE, "link")}
    assert list(rows) == list(Link)
    minutes = {link: f"{span.total_seconds() / 60:.0f} minutes" for link, span in SPANS.items()}
    assert [link for link, told in rows.items() if not told.startswith(minutes[Link(link)])] == []


def test_every_look_at_a_link_stands_there_with_what_it_comes_to() -> None:
    written = {(state.strip(), row.word) for row in pages.rows(PAGE, "look") for state in row.cells[1].split(",")}
    assert written == reasons.looks()


def test_every_failure_of_a_sample_is_explained_and_judged_as_the_code_does() -> None:
    judged = {row.word: row.cells[1] for row in pages.rows(PAGE, "failure")}
    assert judged == {kind: "Unreachable" if kind in FAULTS_OF_THE_PATH else "no answer" for kind in FailureKind}


def test_every_action_and_reason_of_the_history_is_explained() -> None:
    written = [(row.word, row.cells[1].strip("`")) for row in pages.rows(PAGE, "action")]
    assert {action for action, _ in written} == set(Action)
    assert {reason for _, reason in written if reason} == reasons.noted()


def test_a_rollback_is_told_by_the_capability() -> None:
    section = PAGE.split("### RolledBack\n")[1].split("\n###")[0]
    assert all(f"`{capability}`" in section for capability in Capability)


def test_every_row_says_what_it_means_and_who_must_act() -> None:
    actors = {"owner", "deployer", "network", "approver", "admin", "nobody"}
    rows = [row for kind in ("reason", "finding", "heldBy", "approval", "look") for row in pages.rows(PAGE, kind)]
    assert [row.word for row in rows if row.cells[-2] not in actors] == []
    assert [row.word for row in rows if row.cells[-2] != "nobody" and not row.cells[-1]] == []


def test_every_reason_that_the_prose_hands_on_is_one_of_the_findings() -> None:
    section = PAGE.split("### FabricMeasured\n")[1].split("|")[0]
    named = {part.split("`")[1] for part in section.split(",") if "`" in part}
    assert named <= set(words("finding"))
