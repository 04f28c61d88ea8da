"""What serving moved beside a test: only what both ends' interfaces counted beyond the test's own bytes."""

from __future__ import annotations

import pytest

from kvgate.probe.ends import Ends
from kvgate.probe.measured import Numbers
from kvgate.probe.served import served
from kvgate_probe.wire import Pair, Result, Role

PAYLOAD, SEGMENT, SECONDS = 1_000_000_000, 1448, 10.0
WIRE = round(PAYLOAD * (1 + 66 / SEGMENT))
"""With Ethernet, IPv4 and TCP: what the counters show of a test that nothing ran beside."""
NUMBERS = Numbers(PAYLOAD, SECONDS, PAYLOAD / SECONDS, bytes_sent=PAYLOAD, retransmits=0, segment_bytes=SEGMENT)


def end(role: Role, counted: int | None, interface: str = "eth0", mtu: int | None = 1500) -> Result:
    return Result(
        run_id="run",
        pool_uid="uid",
        node="a",
        role=role,
        pair=Pair("a", "b"),
        round=0,
        phase="Isolated",
        tool="iperf3",
        streams=4,
        planned_seconds=SECONDS,
        started_at=100.0,
        ended_at=100.0 + SECONDS,
        attempts=1,
        interface=interface,
        mtu=mtu,
        interface_bytes_before=None if counted is None else 7,
        interface_bytes_after=None if counted is None else 7 + counted,
    )


def beside(sent: int | None, received: int | None, interface: str = "eth0") -> float | None:
    ends = Ends(end(Role.SOURCE, sent, interface), end(Role.DESTINATION, received, interface))
    return served(ends, NUMBERS)


@pytest.mark.parametrize(
    ("sent", "received", "rate"),
    [
        pytest.param(WIRE, WIRE, 0.0, id="nothing beside the test"),
        pytest.param(WIRE + 500_000_000, WIRE + 700_000_000, 48e6, id="the smaller of both ends"),
        pytest.param(WIRE + 500_000_000, WIRE, 0.0, id="the source alone, to other nodes: no capacity of this path"),
        pytest.param(WIRE + 20_000_000, WIRE + 20_000_000, 0.0, id="too little to say"),
        pytest.param(PAYLOAD, PAYLOAD, 0.0, id="counters that leave out headers"),
    ],
)
def test_what_both_ends_moved_beyond_the_test(sent: int, received: int, rate: float) -> None:
    assert beside(sent, received) == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(Ends(end(Role.SOURCE, None), end(Role.DESTINATION, WIRE)), id="counters not read"),
        pytest.param(Ends(end(Role.SOURCE, 2 * WIRE)), id="one end without a record"),
        pytest.param(
            Ends(end(Role.SOURCE, 2 * WIRE, "lo"), end(Role.DESTINATION, 2 * WIRE, "lo")), id="loopback is no link"
        ),
    ],
)
def test_what_is_not_told_by_both_ends_is_not_added(ends: Ends) -> None:
    assert served(ends, NUMBERS) is None
