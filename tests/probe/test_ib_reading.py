"""What ib_read_bw prints, by its documentation and by outputs that others recorded: no RDMA device is behind these."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.evidence import Failure, FailureKind
from kvgate.probe.ib_reading import read_ib
from kvgate.probe.measured import Accepted, Expected
from kvgate_probe.budget import Allowance
from kvgate_probe.ib_tool import IbReadBw, RdmaPort, rdma_port
from kvgate_probe.peers import Address
from kvgate_probe.wire import Role, Step, Trouble

EXPECTED = Expected("10.0.0.1", 5.0, 1, piece_bytes=65_536)
HEAD = """\
---------------------------------------------------------------------------------------
                    RDMA_Read BW Test
 Dual-port       : OFF          Device         : mlx5_0
 Number of qps   : 1            Transport type : IB
 Device         : mlx5_0
---------------------------------------------------------------------------------------
"""
GIGABITS = f"""{HEAD} #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      929300           0.00               97.43              0.185832
"""
MEGABYTES = f"""{HEAD} #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      929300           0.00               11614.60           0.185834
"""
REPORT = {
    "test_info": {"test": "RDMA_Read_BW", "Device": "mlx5_0"},
    "results": {"MsgSize": 65536, "n_iterations": 929300, "BW_peak": 0.0, "BW_average": 97.43, "MsgRate": 0.185832},
}


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        pytest.param(GIGABITS, 97.43e9 / 8, id="gigabits"),
        pytest.param(MEGABYTES, 11614.60 * 2**20, id="MB that are MiB"),
        pytest.param(json.dumps(REPORT), 97.43e9 / 8, id="JSON"),
    ],
)
def test_the_average_counts_in_the_unit_that_it_names(text: str, rate: float) -> None:
    outcome = read_ib(text, EXPECTED)
    assert isinstance(outcome, Accepted), outcome
    assert outcome.numbers.bytes_per_second == pytest.approx(rate)
    assert outcome.numbers.bytes_received == 65_536 * 929_300
    assert outcome.transport == "rdma"


@pytest.mark.parametrize("text", [GIGABITS, json.dumps(REPORT)], ids=["text", "JSON"])
def test_the_version_is_that_of_the_line_before_the_result(text: str) -> None:
    outcome = read_ib(f"Version: 6.20\n{text}", EXPECTED)
    assert isinstance(outcome, Accepted), outcome
    assert (outcome.version, outcome.numbers.bytes_received) == ("perftest 6.20", 65_536 * 929_300)


def test_the_walker_has_the_tool_say_its_version_before_its_result(tmp_path: Path) -> None:
    """A script plays ib_read_bw: `--version` and a result, as perftest prints them."""
    program = tmp_path / "ib_read_bw"
    program.write_text(
        f"#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'Version: 6.20'; exit; fi\ncat <<E\n{GIGABITS}E\n"
    )
    program.chmod(0o755)
    tool = IbReadBw(Step("ib_read_bw", 1, 5.0, piece_bytes=65_536), program=str(program), devices=tmp_path)
    ran = asyncio.run(tool.run(Address("10.0.0.1", 5202), Allowance(5.0)))
    outcome = read_ib(ran.document, EXPECTED)
    assert isinstance(outcome, Accepted), outcome
    assert outcome.version == "perftest 6.20"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("", FailureKind.UNREADABLE, id="nothing"),
        pytest.param(HEAD, FailureKind.UNREADABLE, id="no result"),
        pytest.param(
            GIGABITS.replace("[Gb/sec]", ""), FailureKind.UNREADABLE, id="N18 a number without a unit is no rate"
        ),
        pytest.param(GIGABITS.replace("65536 ", "4096 "), FailureKind.IMPLAUSIBLE, id="messages of another size"),
        pytest.param(GIGABITS.replace("929300", "9300"), FailureKind.TOO_SHORT, id="reads of a twentieth of a second"),
        pytest.param(GIGABITS.replace("97.43", "0.00"), FailureKind.TOO_SHORT, id="a rate of zero"),
        pytest.param("Couldn't connect to 10.0.0.1:5202", FailureKind.CONNECT_REFUSED, id="nothing listens"),
        pytest.param("No IB devices found", FailureKind.TOOL_FAILED, id="no device"),
        pytest.param("Couldn't allocate MR", FailureKind.TOOL_FAILED, id="memory that cannot be pinned"),
        pytest.param('{"results": {}}', FailureKind.UNREADABLE, id="JSON without its numbers"),
        pytest.param('{"results"', FailureKind.UNREADABLE, id="JSON that is cut"),
    ],
)
def test_what_is_no_measurement(text: str, kind: FailureKind) -> None:
    outcome = read_ib(text, EXPECTED)
    assert isinstance(outcome, Failure)
    assert outcome.kind is kind


@given(text=st.text(max_size=200), cut=st.integers(0, len(GIGABITS)))
def test_no_text_whatever_makes_the_reader_fail(text: str, cut: int) -> None:
    for said in (text, GIGABITS[:cut] + text, "{" + text):
        assert isinstance(read_ib(said, EXPECTED), Accepted | Failure)


def port(devices: Path, name: str, state: str, layer: str, gids: dict[int, tuple[str, str]]) -> None:
    folder = devices / name / "ports" / "1"
    (folder / "gids").mkdir(parents=True)
    (folder / "gid_attrs" / "types").mkdir(parents=True)
    (folder / "state").write_text(f"{state}\n")
    (folder / "link_layer").write_text(f"{layer}\n")
    for index, (gid, kind) in gids.items():
        (folder / "gids" / str(index)).write_text(f"{gid}\n")
        (folder / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")


LOCAL, MAPPED = "fe80:0000:0000:0000:0000:00ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:0a00:0001"
ROCE = {0: (LOCAL, "IB/RoCE v1"), 1: (LOCAL, "RoCE v2"), 2: (MAPPED, "IB/RoCE v1"), 3: (MAPPED, "RoCE v2")}


def test_a_roce_port_is_used_by_its_ipv4_address_for_roce_2(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "1: DOWN", "Ethernet", ROCE)
    port(tmp_path, "mlx5_1", "4: ACTIVE", "Ethernet", ROCE)
    assert rdma_port(tmp_path) == RdmaPort("mlx5_1", 1, 3)


def test_an_infiniband_port_needs_no_index(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "4: ACTIVE", "InfiniBand", {0: (LOCAL, "IB/RoCE v1")})
    assert rdma_port(tmp_path) == RdmaPort("mlx5_0", 1)


@pytest.mark.parametrize(
    ("name", "value", "device"),
    [
        pytest.param("NCCL_IB_HCA", "=mlx5_1:1", "mlx5_1", id="NCCL's device with its port"),
        pytest.param("UCX_NET_DEVICES", "mlx5_1:1", "mlx5_1", id="UCX's device"),
        pytest.param("NCCL_IB_HCA", "^mlx5_0", "mlx5_0", id="what NCCL is told to leave out is not a wish"),
        pytest.param("UCX_NET_DEVICES", "all", "mlx5_0", id="all is the first"),
    ],
)
def test_the_workers_own_variables_choose_the_device(
    name: str, value: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("mlx5_0", "mlx5_1"):
        port(tmp_path, each, "4: ACTIVE", "InfiniBand", {})
    monkeypatch.setenv(name, value)
    assert rdma_port(tmp_path) == RdmaPort(device, 1)


def test_both_ends_are_called_alike_and_the_destination_reads(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "4: ACTIVE", "Ethernet", ROCE)
    tool = IbReadBw(Step("ib_read_bw", 2, 5.0), devices=tmp_path)
    assert tool.starter is Role.DESTINATION
    assert tool.command(5202, 5.0) == (
        *("ib_read_bw", "-F", "--report_gbits", "-s", "65536", "-q", "2", "-D", "5", "-p", "5202"),
        *("-d", "mlx5_0", "-i", "1", "-x", "3"),
    )


def test_a_pod_without_a_device_says_what_it_needs(tmp_path: Path) -> None:
    problem = IbReadBw(Step("ib_read_bw", 1, 5.0), program="true", devices=tmp_path).problem()
    assert problem is not None
    assert problem.trouble is Trouble.TOOL_FAILED
    assert "RDMA" in problem.message
