"""Which tests ran at once, by the times that the walkers wrote down."""

from __future__ import annotations

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
    assert found == ({(FIRST, results[0].step): 0, (SECOND, results[0].step): 0} if together else {})


def test_an_isolated_phase_has_no_slots() -> None:
    assert slots(schedule(Phase.ISOLATED), [result(FIRST, 0, 10), result(SECOND, 0, 10)]) == {}
