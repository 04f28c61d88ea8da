"""Which stored pools count as sweeping, for how long, and when the operator looks at all of them anew."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from kvgate.api.status import PoolStatus, SweepStatus
from kvgate.core.world import Pool
from kvgate.dynamo.document import Document
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.cluster.slots import SweepSlots
from kvgate.edge.errors import WriteConflictError
from tests.core.worlds import Scene

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
BEGUN = SweepStatus(run_id="run-1", started_at=NOW, reason="no evidence yet")


def body(name: str, started_at: object = "2026-11-30T11:59:00Z", timeout: object = "3h") -> Document:
    """A pool as it is stored; a `started_at` of None is one that does not sweep."""
    spec = {"fabric": {"schedule": {"sweepTimeout": timeout}}}
    status = {} if started_at is None else {"sweep": {"runID": "run-1", "startedAt": started_at}}
    return {"metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"}, "spec": spec, "status": status}


def pool(name: str) -> Pool:
    return replace(Scene().pool, namespace="team", name=name, uid=f"uid-{name}")


@dataclass
class Bench:
    stored: list[Document]
    now: datetime = NOW
    lists: int = 0
    refuses: bool = False
    slots: SweepSlots = field(init=False)

    def __post_init__(self) -> None:
        self.slots = SweepSlots(self.listed, lambda: self.now)

    def listed(self) -> list[Document]:
        self.lists += 1
        if self.refuses:
            raise Unavailable("the API server answers with status 500")
        return list(self.stored)

    def waits(self, most: int = 1, name: str = "mine") -> str:
        return self.slots.waits(pool(name), most)


COUNTS: dict[str, tuple[Document, bool]] = {
    "one that sweeps": (body("b"), True),
    "one that does not": (body("b", None), False),
    "its own": (body("mine"), False),
    "one whose sweep began as long ago as it may last": (body("b", "2026-11-30T09:00:00Z"), True),
    "one whose sweep is over by its Jobs' deadlines": (body("b", "2026-11-30T08:49:00Z"), False),
    "one with a short timeout, long over": (body("b", "2026-11-30T11:40:00Z", "1m"), False),
    "one whose timeout cannot be read counts as the default": (body("b", "2026-11-30T09:00:00Z", 7), True),
    "one whose start is no time": (body("b", "yesterday"), False),
    "one whose start has no zone": (body("b", "2026-11-30T11:59:00"), False),
    "one without a spec": ({"metadata": {"uid": "x"}, "status": {"sweep": {}}}, False),
}


@pytest.mark.parametrize(("stored", "counts"), COUNTS.values(), ids=COUNTS)
def test_what_counts_as_a_sweep(stored: Document, counts: bool) -> None:
    assert bool(Bench([stored]).waits()) is counts


def test_it_says_who_sweeps_the_setting_and_the_limit() -> None:
    bench = Bench([body("b"), body("a")])
    assert bench.waits(3) == ""
    assert bench.waits(2) == "pools team/a, team/b sweep now, and the operator's probe.maxConcurrentSweeps is 2"
    del bench.stored[0]
    assert Bench(bench.stored).waits(1) == "pool team/a sweeps now, and the operator's probe.maxConcurrentSweeps is 1"


def test_the_pools_are_listed_once_in_a_while_and_anew_where_a_sweep_begins() -> None:
    bench = Bench([body("b", None)])
    assert [bench.waits(), bench.waits(), bench.lists] == ["", "", 1]
    bench.stored = [body("b")]
    assert bench.waits() == ""
    with pytest.raises(WriteConflictError, match="team/b sweeps now"), bench.slots.begin(pool("mine"), 1):
        raise AssertionError("it began")
    assert bench.waits()
    bench.stored = []
    bench.now += timedelta(seconds=31)
    assert bench.waits() == ""


def test_what_this_process_writes_is_known_at_once() -> None:
    bench = Bench([])
    assert bench.waits() == ""
    bench.slots.wrote(pool("b"), PoolStatus(sweep=BEGUN))
    assert "team/b" in bench.waits()
    assert bench.waits(name="b") == ""
    bench.slots.wrote(pool("b"), PoolStatus())
    assert bench.waits() == ""
    bench.slots.wrote(pool("b"), PoolStatus(sweep=BEGUN))
    bench.slots.forget("uid-b")
    assert bench.waits() == ""


def test_a_sweep_that_ends_while_the_pools_are_listed_keeps_nobody_waiting() -> None:
    bench = Bench([body("b")])

    def listed_before_it_ended() -> list[Document]:
        found = bench.listed()
        if bench.lists == 1:
            bench.slots.wrote(pool("b"), PoolStatus())
            bench.stored = []
        return found

    bench.slots = SweepSlots(listed_before_it_ended, lambda: bench.now)
    assert bench.waits() == ""
    assert bench.lists == 1


def test_a_sweep_that_begins_and_a_pool_that_goes_while_the_pools_are_listed_are_known() -> None:
    bench = Bench([body("b")])

    def listed_before_they_came_and_went() -> list[Document]:
        found = bench.listed()
        bench.slots.forget("uid-b")
        bench.slots.wrote(pool("c"), PoolStatus(sweep=BEGUN))
        return found

    bench.slots = SweepSlots(listed_before_they_came_and_went, lambda: bench.now)
    assert bench.waits().startswith("pool team/c sweeps now")


def test_a_pool_that_is_seen_for_the_first_time_while_the_pools_are_listed_is_not_taken_for_gone() -> None:
    """After a restart each pool is new to the process, and its sweep goes on."""
    bench = Bench([body("b")])

    def listed_while_it_is_first_seen() -> list[Document]:
        bench.slots.forget("")
        return bench.listed()

    bench.slots = SweepSlots(listed_while_it_is_first_seen, lambda: bench.now)
    assert bench.waits().startswith("pool team/b sweeps now")


def test_a_pool_that_went_before_this_process_read_it_is_counted_no_longer() -> None:
    bench = Bench([body("b"), body("c")])
    assert bench.waits(2)
    bench.slots.gone("team/b")
    assert (bench.waits(2), bench.waits(1).startswith("pool team/c sweeps"), bench.lists) == ("", True, 1)


def test_a_list_that_cannot_be_had_leaves_what_was_known() -> None:
    bench = Bench([body("b")])
    assert bench.waits()
    bench.refuses = True
    bench.now += timedelta(seconds=31)
    with pytest.raises(Unavailable):
        bench.waits()
    bench.slots.wrote(pool("b"), PoolStatus())
    bench.refuses, bench.stored = False, []
    assert bench.waits() == ""


def test_while_nobody_has_to_wait_all_pools_are_listed_once_however_many_statuses_are_written() -> None:
    """A thousand pools are 10 MB to list: neither a write nor time alone makes the next turn do it."""
    bench = Bench([])
    for number in range(20):
        assert bench.waits(name=f"p{number}") == ""
        bench.slots.wrote(pool(f"p{number}"), PoolStatus())
        bench.now += timedelta(minutes=1)
    assert bench.lists == 1
