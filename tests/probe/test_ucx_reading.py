"""What ucx_perftest prints is a measurement, or is refused with the end and the reason that it points to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.evidence import Failure, FailureKind
from kvgate.probe.measured import Accepted, Expected
from kvgate.probe.ucx_reading import RDMA, SHARED_MEMORY, TCP, lanes_of, read_ucx, transport_of

PIECE = 32_768
EXPECTED = Expected("10.0.0.1", 3.0, 1, piece_bytes=PIECE)
HEADER = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
LOG = "[1796053059.285358] [vm:19998:0]     ucp_context.c:1849 UCX  INFO  "
LANES = f"{LOG}  ep_cfg[0]: rma_am(tcp/eth0)\n"
ROWS = (
    "[thread 0]3344,14.107,298.789,298.789,104.59,104.59,3347,3347\n"
    "[thread 0]6776,13.946,292.346,295.525,106.89,105.74,3421,3384\n"
    "[thread 0]10353,14.728,279.611,290.027,111.76,107.75,3576,3448\n"
)
"""As ucx_perftest 1.13 printed them of a link of 1 Gbit/s."""
GOOD = HEADER + LANES + ROWS
ERROR = "[1.5] [vm:1:0]    ucp_context.c:1276 UCX  ERROR "


def kind(outcome: Accepted | Failure) -> FailureKind | None:
    return outcome.kind if isinstance(outcome, Failure) else None


def test_the_last_row_counts_in_bytes_by_pieces_and_time() -> None:
    outcome = read_ucx(GOOD, EXPECTED)
    assert isinstance(outcome, Accepted)
    assert outcome.numbers.bytes_received == 10_353 * PIECE
    assert outcome.numbers.seconds == pytest.approx(3.0026, abs=1e-3)
    assert outcome.numbers.bytes_per_second == pytest.approx(112.98e6, rel=1e-3)
    assert (outcome.transport, outcome.lanes, outcome.sums_equal) == (TCP, ("tcp/eth0",), None)


def test_the_version_is_the_one_that_the_log_names() -> None:
    named = read_ucx(f"{HEADER}{LOG}Version 1.13.1 (loaded from /lib/libucp.so.0)\n{LANES}{ROWS}", EXPECTED)
    silent = read_ucx(GOOD, EXPECTED)
    assert isinstance(named, Accepted)
    assert isinstance(silent, Accepted)
    assert (named.version, silent.version) == ("UCX 1.13.1", "")


def test_the_header_says_which_column_is_which() -> None:
    other = read_ucx(f"iterations,overall_bw,overall_lat\n{LANES}10353,107.75,290.027\n", EXPECTED)
    assert isinstance(other, Accepted)
    assert other.numbers.seconds == pytest.approx(3.0026, abs=1e-3)
    assert kind(read_ucx(f"{LANES}{ROWS}", EXPECTED)) is FailureKind.TOOL_FAILED


def test_a_lane_that_would_write_on_a_terminal_is_of_no_known_transport() -> None:
    outcome = read_ucx(GOOD.replace("tcp/eth0", "\x1b[2Jtcp/eth0"), EXPECTED)
    assert kind(outcome) is FailureKind.UNREADABLE
    assert lanes_of(GOOD.replace("eth0", "eth0\x1b[2J\u202e")) == ("tcp/eth0?[2J?",)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        pytest.param("", FailureKind.UNREADABLE, id="nothing at all"),
        pytest.param(HEADER, FailureKind.UNREADABLE, id="a header alone"),
        pytest.param(HEADER + LANES, FailureKind.TOOL_FAILED, id="connected, and not one piece came"),
        pytest.param(HEADER + ROWS, FailureKind.UNREADABLE, id="E12 rows of which no lane is known"),
        pytest.param(
            GOOD.replace("tcp/eth0", "sysv/memory"), FailureKind.WRONG_HOST, id="pieces that came by shared memory"
        ),
        pytest.param(
            HEADER + LANES + ROWS.splitlines(keepends=True)[0],
            FailureKind.STALLED_FLOW,
            id="A12 pieces for a second and then none: no slow path",
        ),
        pytest.param(
            HEADER + LANES + "".join(ROWS.splitlines(keepends=True)[:2]),
            FailureKind.TOO_SHORT,
            id="pieces for most of the time",
        ),
        pytest.param(
            GOOD.replace(",107.75,", ",207.75,"), FailureKind.IMPLAUSIBLE, id="E09 a rate that is not its pieces'"
        ),
        pytest.param(
            f"{HEADER}{ERROR}no usable transports/devices (asked tcp on network:eth0 )\n",
            FailureKind.TOOL_FAILED,
            id="a device that is not there",
        ),
        pytest.param(
            f"{ERROR}connect(fd=9, dest_addr=10.0.0.1:40001) failed: Connection refused\n",
            FailureKind.CONNECT_REFUSED,
            id="nothing listens at the source",
        ),
        pytest.param(
            f"{HEADER}{LANES}{ERROR}recv(fd=21) failed: Connection reset by remote peer\n",
            FailureKind.SERVER_LOST,
            id="the source went away",
        ),
        pytest.param(f"{ERROR}of a kind never seen\n", FailureKind.TOOL_FAILED, id="any other error"),
    ],
)
def test_what_is_no_measurement(text: str, seen: FailureKind) -> None:
    assert kind(read_ucx(text, EXPECTED)) is seen


def test_more_than_the_line_rate_is_no_measurement() -> None:
    assert kind(read_ucx(GOOD, replace(EXPECTED, line_rate_bytes_per_second=1e8))) is FailureKind.IMPLAUSIBLE


@pytest.mark.parametrize(
    ("line", "lanes", "transport"),
    [
        pytest.param(
            "inter-node cfg#2 rma_am(tcp/eth0) amo_am(tcp/eth0) am(tcp/eth0 cuda_ipc/cuda)",
            ("tcp/eth0",),
            TCP,
            id="E12 cuda_ipc for active messages does not make it RDMA",
        ),
        pytest.param(
            "inter-node cfg#2 rma(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1) am(rc_mlx5/mlx5_0:1)",
            ("rc_mlx5/mlx5_0:1", "rc_mlx5/mlx5_1:1"),
            RDMA,
            id="E12 two rails of RDMA",
        ),
        pytest.param(
            "ep_cfg[1]: rma(rc_mlx5/mlx5_0:1 tcp/eth0)",
            ("rc_mlx5/mlx5_0:1", "tcp/eth0"),
            TCP,
            id="one lane of TCP beside RDMA is the slowest kind",
        ),
        pytest.param("ep_cfg[0]: rma(posix/memory)", ("posix/memory",), SHARED_MEMORY, id="memory of one host"),
        pytest.param("ep_cfg[0]: tag(tcp/eth0)", (), "", id="a log that speaks of no remote reads"),
    ],
)
def test_which_lanes_carry_reads_and_what_they_amount_to(line: str, lanes: tuple[str, ...], transport: str) -> None:
    assert lanes_of(LOG + line) == lanes
    assert transport_of(lanes) == transport


@given(text=st.text(max_size=300), cut=st.integers(0, len(GOOD)))
def test_no_text_whatever_makes_the_reader_fail(text: str, cut: int) -> None:
    for said in (text, GOOD[:cut] + text, text + GOOD[cut:], HEADER + LANES + text):
        assert isinstance(read_ucx(said, EXPECTED), Accepted | Failure)
