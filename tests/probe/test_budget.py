"""How long a sender's next test may be, so that its share of the sweep's bytes is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvgate_probe.budget import Allowance, Budget
from kvgate_probe.fields import WireError
from kvgate_probe.host import speed_of
from kvgate_probe.iperf3_tool import sent_in
from kvgate_probe.watching import written_by
from kvgate_probe.wire import Pair, Schedule, decode_schedule, encode_schedule
from tests.probe.documents import REAL_CLIENT, REAL_SERVER

MB = 1_000_000
LEFT = "of this sender are sent and a second may take"
Sent = tuple[tuple[int, float], ...]
"""What each test so far has sent, and in how many seconds."""


def budget(share: int | None, tests: int, sent: Sent = ()) -> Budget:
    made = Budget(share, tests)
    for count, seconds in sent:
        made.charge(count, seconds)
        made.ended()
    return made


ALLOWED: dict[str, tuple[Budget, float | None, Allowance]] = {
    "no limit, the planned time": (budget(None, 4), None, Allowance(10)),
    "a first test at an unknown rate is short": (budget(900 * MB, 3), None, Allowance(1, 900 * MB)),
    "a first test that fits at the line rate is whole": (budget(900 * MB, 3), 10 * MB, Allowance(10, 900 * MB)),
    "a first test is cut to what fits at the line rate": (budget(900 * MB, 3), 50 * MB, Allowance(6, 900 * MB)),
    "a first test that does not fit at the line rate is short": (budget(900 * MB, 3), 1e9, Allowance(1, 900 * MB)),
    "what is left is shared by the tests that are left": (
        budget(610 * MB, 6, ((100 * MB, 10),)),
        None,
        Allowance(9, 510 * MB),
    ),
    "the fastest test so far foretells the next": (
        budget(1000 * MB, 4, ((100 * MB, 10), (100 * MB, 1))),
        None,
        Allowance(3, 800 * MB),
    ),
    "the line rate no longer counts once a rate is known": (
        budget(1000 * MB, 2, ((10 * MB, 1),)),
        1e9,
        Allowance(10, 990 * MB),
    ),
    "where not all can have a second, the next one gets it": (
        budget(130 * MB, 10, ((10 * MB, 1),)),
        None,
        Allowance(1, 120 * MB),
    ),
    "a test that sent nothing tells no rate": (budget(900 * MB, 3, ((0, 0),)), None, Allowance(1, 900 * MB)),
}


@pytest.mark.parametrize(("held", "line_rate", "allowed"), ALLOWED.values(), ids=ALLOWED)
def test_how_long_the_next_test_may_be(held: Budget, line_rate: float | None, allowed: Allowance) -> None:
    assert held.spent() == ""
    assert held.allowance(10, line_rate) == allowed


def test_a_short_plan_is_never_made_longer() -> None:
    assert budget(900 * MB, 1).allowance(0.2, None) == Allowance(0.2, 900 * MB)


SPENT: dict[str, tuple[Budget, str]] = {
    "no limit": (budget(None, 2, ((900 * MB, 1),)), ""),
    "nothing was sent yet": (budget(1, 2), ""),
    "a second still fits": (budget(121 * MB, 2, ((10 * MB, 1), (100 * MB, 10))), ""),
    "not even a second fits": (
        budget(120 * MB, 3, ((10 * MB, 1), (100 * MB, 10))),
        f"110000000 of the 120000000 bytes {LEFT} 11000000: probe.maxBytesPerSweep is spent",
    ),
    "no share at all": (
        budget(0, 1),
        f"0 of the 0 bytes {LEFT} 1: probe.maxBytesPerSweep is spent",
    ),
}


@pytest.mark.parametrize(("held", "why"), SPENT.values(), ids=SPENT)
def test_when_it_is_spent(held: Budget, why: str) -> None:
    assert held.spent() == why


@pytest.mark.parametrize("pace", [1 * MB, 7 * MB, 333 * MB, 12_500 * MB])
@pytest.mark.parametrize("share", [1, 5 * MB, 1_000 * MB, 40_000 * MB])
def test_a_fabric_of_one_rate_never_sends_more_than_the_share(pace: int, share: int) -> None:
    """Beyond its first second, which nobody can foretell: the kernel's count ends that one."""
    held, sent, tests = Budget(share, 12), 0, 0
    for _ in range(12):
        if held.spent():
            break
        allowed = held.allowance(10, None)
        moved = min(round(allowed.seconds * pace), held.left_bytes or 0)
        held.charge(moved, moved / pace)
        held.ended()
        sent, tests = sent + moved, tests + 1
    assert sent <= share
    assert tests == 12 or share < 12 * 1.1 * pace


# --- the schedule -------------------------------------------------------------------------------------------------

PLAN = Schedule(
    run_id="run-1",
    pool_uid="uid",
    tool="iperf3",
    rounds=((Pair("p1", "d1"), Pair("p2", "d2")), (Pair("p1", "d2"),)),
    duration_seconds=10,
    streams=1,
    port=7000,
    phase="Isolated",
)


def test_each_sender_has_a_share_by_its_tests_and_together_they_keep_to_the_limit() -> None:
    limited = replace(PLAN, most_bytes=1000)
    assert [limited.share_of(node) for node in ("p1", "p2", "d1")] == [666, 333, 0]
    assert PLAN.share_of("p1") is None


def test_a_schedule_with_a_limit_is_of_a_version_that_older_walkers_refuse() -> None:
    limited = replace(PLAN, most_bytes=50_000 * MB)
    assert decode_schedule(encode_schedule(limited)) == limited
    assert '"version":2' in encode_schedule(limited)
    assert '"version":1' in encode_schedule(PLAN)
    with pytest.raises(WireError, match="version must be 2"):
        decode_schedule(encode_schedule(limited).replace('"version":2', '"version":1'))
    with pytest.raises(WireError, match="version must be 1"):
        decode_schedule(encode_schedule(PLAN).replace('"version":1', '"version":2'))


# --- what is read of a test ---------------------------------------------------------------------------------------

DOCUMENTS: dict[str, tuple[str, tuple[int | None, float]]] = {
    "a document that broke off counts its intervals": (
        '{"intervals":[{"sum":{"bytes":5,"seconds":1}},{"sum":{"bytes":7,"seconds":0.5}}],"end":{},"error":"x"}',
        (12, 1.5),
    ),
    "one without any interval has sent nothing": ('{"intervals":[],"end":{},"error":"refused"}', (0, 0.0)),
    "no document": ("", (None, 0.0)),
    "a document of another shape": ('{"end":[]}', (None, 0.0)),
}


@pytest.mark.parametrize(("document", "told"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_what_a_document_says_was_sent(document: str, told: tuple[int | None, float]) -> None:
    assert sent_in(document) == told


def test_what_real_documents_say_was_sent() -> None:
    sent, seconds = sent_in(REAL_CLIENT)
    assert sent is not None
    assert sent > MB
    assert 2.9 < seconds < 3.2
    assert sent_in(REAL_SERVER)[0] is not None


@pytest.mark.parametrize(
    ("told", "rate"),
    [("10000\n", 1.25e9), ("1000\n", 1.25e8), ("-1\n", None), ("0\n", None), ("fast", None), (None, None)],
)
def test_what_an_interface_says_it_carries(tmp_path: Path, told: str | None, rate: float | None) -> None:
    (tmp_path / "eth0").mkdir()
    if told is not None:
        (tmp_path / "eth0" / "speed").write_text(told)
    assert speed_of("eth0", tmp_path) == rate
    assert speed_of("", tmp_path) is None


def test_the_kernels_count_of_what_a_process_wrote(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "io").write_text("rchar: 5\nwchar: 12345\nread_bytes: 0\nwrite_bytes: 0\n")
    assert written_by(7, tmp_path) == 12345
    assert written_by(8, tmp_path) is None
    (tmp_path / "7" / "io").write_text("nothing of use\n")
    assert written_by(7, tmp_path) is None
