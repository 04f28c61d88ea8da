"""What the NIXL scripts print is a measurement only where the data arrived as they were sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.evidence import FAULTS_OF_THE_PATH, Failure, FailureKind
from kvgate.probe.measured import Accepted, Expected
from kvgate.probe.nixl_reading import read_nixl

EXPECTED = Expected("10.0.0.1", 3.0, 1, piece_bytes=32_768, operation="read")
LOG = (
    "[1796055078.709538] [vm:11877:1]      ucp_worker.c:1997 UCX  INFO    "
    "initiator-11877 inter-node cfg#1 rma_am(tcp/eth0)  amo_am(tcp/eth0)  am(tcp/eth0)  ka(tcp/eth0)\n"
)
TOLD = {
    "kvgateNixl": "nixl-cu12 1.5.1",
    "operation": "READ",
    "pieces": 2048,
    "pieceBytes": 32768,
    "bytes": 335544320,
    "seconds": 3.0891,
    "sentBytes": 469762048,
    "setUpSeconds": 0.4,
    "sumsEqual": True,
}


def text(**changes: Any) -> str:
    return LOG + json.dumps(TOLD | changes)


def test_a_whole_result_is_read_with_its_lanes_and_sums() -> None:
    outcome = read_nixl(text(), EXPECTED)
    assert isinstance(outcome, Accepted)
    assert outcome.numbers.bytes_per_second == pytest.approx(335_544_320 / 3.0891)
    assert (outcome.transport, outcome.lanes, outcome.sums_equal) == ("tcp", ("tcp/eth0",), True)
    assert outcome.set_up_seconds == 0.4
    assert outcome.version == "nixl-cu12 1.5.1"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        pytest.param(text(sumsEqual=False), FailureKind.DATA_CORRUPT, id="C1 fast, and the data are others"),
        pytest.param(text(operation="WRITE"), FailureKind.IMPLAUSIBLE, id="N3 another operation than planned"),
        pytest.param(text(pieceBytes=4096), FailureKind.IMPLAUSIBLE, id="N16 other pieces than planned"),
        pytest.param(text(bytes=0), FailureKind.TOO_SHORT, id="not one transfer"),
        pytest.param(text(seconds=0.01), FailureKind.TOO_SHORT, id="too short to tell"),
        pytest.param(json.dumps(TOLD), FailureKind.UNREADABLE, id="E12 no lane known"),
        pytest.param(text().replace("tcp/eth0", "posix/memory"), FailureKind.WRONG_HOST, id="by shared memory"),
        pytest.param(LOG, FailureKind.UNREADABLE, id="no result"),
        pytest.param(text() + "\n" + json.dumps(TOLD), FailureKind.UNREADABLE, id="two results"),
        pytest.param(
            '{"kvgateNixl": "nixl", "error": "ConnectionRefusedError: no"}', FailureKind.CONNECT_REFUSED, id="refused"
        ),
        pytest.param('{"kvgateNixl": "nixl", "error": "nixlBackendError"}', FailureKind.TOOL_FAILED, id="it failed"),
    ],
)
def test_what_is_no_measurement(said: str, kind: FailureKind) -> None:
    outcome = read_nixl(said, EXPECTED)
    assert isinstance(outcome, Failure)
    assert outcome.kind is kind


def test_changed_data_shut_the_gate() -> None:
    assert FailureKind.DATA_CORRUPT in FAULTS_OF_THE_PATH


@given(said=st.text(max_size=200), cut=st.integers(0, 400))
def test_no_text_whatever_makes_the_reader_fail(said: str, cut: int) -> None:
    for one in (said, text()[:cut] + said, text() + said):
        assert isinstance(read_nixl(one, EXPECTED), Accepted | Failure)
