"""Which tests ran at once, by the times that the walkers wrote down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.api.words import Phase
from kvgate.probe.slots import slots
from kvgate_probe.wire import Pair, Result, Role, Schedule, Trouble

FIRST, SECOND = Pair("p1", "d1"), Pair("p2", "d2")


def schedule(phase: Phase = Phase.CONCURRENT) -> Schedule:
    return Schedule("run", "uid", "iperf3", ((FIRST, SECOND),), 10.0, 4, 5201, phase.value)


def result(pair: Pair, started_at: float, ended_at: float, **fields: object) -> Result:
    plain: dict[str, object] = {
        "run_id": "run",
        "pool_uid": "uid",
        "node": pair.source,
        "role": Role.SOURCE,
        "pair": pair,
        "round": 0,
        "phase": Phase.CONCURRENT.value,
        "tool": "iperf3",
        "streams": 4,
        "planned_seconds": 10.0,
        "started_at": started_at,
        "ended_at": ended_at,
        "attempts": 1,
    }
    return Result(**plain | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("results", "together"),
    [
        pytest.param([result(FIRST, 0, 10), result(SECOND, 0.5, 10.5)], True, id="nearly the whole time"),
        pytest.param([result(FIRST, 0, 10), result(SECOND, 2, 12)], True, id="exactly 80 %"),
        pytest.param([result(FIRST, 0, 10), result(SECOND, 2.1, 12.1)], False, id="less than 80 %"),
        pytest.param([result(FIRST, 0, 10), result(SECOND, 60, 70)], False, id="one after the other"),
        pytest.param([result(FIRST, 0, 10), result(SECOND, 0, 10, round=1)], False, id="in different rounds"),
        pytest.param([result(FIRST, 0, 10)], False, id="one alone"),
        pytest.param(
            [result(FIRST, 0, 10), result(SECOND, 0, 10, trouble=Trouble.PARTNER_LOST)], False, id="one that failed"
        ),
        pytest.param(
            [result(FIRST, 0, 10), result(SECOND, 0, 10, role=Role.DESTINATION)], False, id="no word of the source"
        ),
    ],
)
def test_what_ran_at_once(results: list[Result], together: bool) -> None:
    found = slots(schedule(), results)
    assert found == ({(FIRST, 0, 0): 0, (SECOND, 0, 0): 0} if together else {})


def test_a_straggler_is_left_out_and_the_others_ran_at_once() -> None:
    third = Pair("p3", "d3")
    found = slots(schedule(), [result(FIRST, 0, 10), result(SECOND, 0.5, 10.5), result(third, 7, 17)])
    assert found == {(FIRST, 0, 0): 0, (SECOND, 0, 0): 0}


def test_only_the_rounds_beside_have_slots_where_a_schedule_has_two_phases() -> None:
    plan = replace(schedule(Phase.ISOLATED), rounds=((FIRST, SECOND),) * 2, beside=(Phase.CONCURRENT.value, 1))
    ran = [result(pair, 20 * n, 20 * n + 10, round=n) for n in range(2) for pair in (FIRST, SECOND)]
    assert slots(plan, ran) == {(FIRST, 1, 0): 0, (SECOND, 1, 0): 0}


def test_an_isolated_phase_has_no_slots() -> None:
    assert slots(schedule(Phase.ISOLATED), [result(FIRST, 0, 10), result(SECOND, 0, 10)]) == {}
