"""The lab: links of the rate that was asked for, and nothing left of them, however the lab ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.api.words import Phase
from kvgate.core.evidence import FailureKind, Sample
from kvgate.core.evidence import Path as NodePath
from kvgate.edge.errors import EdgeError
from kvgate.edge.lab import LabNode, clear_leftovers, lab, require, shape, user_namespaces_work
from kvgate.edge.localjobs import Host, run_walkers
from kvgate.probe.plan import LinkTest, plan_paths
from kvgate.probe.results import Setting, read_logs
from tests.edge.rooted import as_root
from tests.probe.matrix import plan_sweep

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
]
ROOT = Path(__file__).parents[2]
PAYLOAD_SHARE = 1448 / 1514
"""TCP payload of an Ethernet frame at an MTU of 1500 with timestamps, as a shaper counts frames."""
GIGABIT = 1_000_000_000
RATES = {"slow-p": GIGABIT, "slow-d": GIGABIT, "fast-p": 2_500_000_000, "fast-d": 2_500_000_000}


def namespaces(owner: int | None = None) -> set[str]:
    folder = Path("/run/netns")
    owner = os.getpid() if owner is None else owner
    return {path.name for path in folder.glob(f"kvgate-{owner}-*")} if folder.is_dir() else set()


def measure(nodes: tuple[LabNode, ...], source: str, destination: str) -> Sample:
    by_name = {node.name: node for node in nodes}
    ends = [by_name[source], by_name[destination]]
    test = LinkTest(duration_seconds=2, streams=4, port=5201)
    plan = plan_sweep("run", "uid", [source], [destination], test, Phase.ISOLATED)
    walked = run_walkers(plan.schedule, [Host(n.name, n.address, 5201, n.namespace) for n in ends], 30)
    assert walked.problems == ()
    addresses = {node.name: frozenset({node.address}) for node in ends}
    (sample,) = read_logs(plan.schedule, walked.logs, Setting(datetime.now(UTC), addresses)).samples
    return sample


def paired(hosts: tuple[Host, Host], addresses: dict[str, frozenset[str]], *, loopback: bool) -> Sample:
    """What a node's walker and its companion measure."""
    test = LinkTest(duration_seconds=1, streams=1, port=hosts[0].port)
    plan = plan_paths("run", "uid", [NodePath("n", "n")], test, Phase.ISOLATED)
    walked = run_walkers(plan.schedule, hosts, 30)
    setting = Setting(datetime.now(UTC), addresses, loopback=loopback)
    (sample,) = read_logs(plan.schedule, walked.logs, setting).samples
    return sample


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[LabNode, ...]]:
    with lab(RATES) as made:
        yield made


@as_root
@pytest.mark.parametrize(
    ("source", "destination", "rate"),
    [
        pytest.param("slow-p", "slow-d", GIGABIT, id="1 Gbit/s"),
        pytest.param("fast-p", "fast-d", 2_500_000_000, id="2.5 Gbit/s"),
        pytest.param("slow-p", "fast-d", GIGABIT, id="the slower end of two decides"),
        pytest.param("fast-p", "slow-d", GIGABIT, id="also where it is the far end"),
    ],
)
def test_a_link_carries_its_rate_as_real_iperf3_sees_it(
    nodes: tuple[LabNode, ...], source: str, destination: str, rate: int
) -> None:
    sample = measure(nodes, source, destination)
    assert sample.failure is None
    assert sample.path == NodePath(source, destination)
    assert sample.bytes_per_second == pytest.approx(rate / 8 * PAYLOAD_SHARE, rel=0.05)
    assert sample.interface == "eth0"
    assert (sample.interface_bytes or 0) > (sample.bytes_moved or 0)
    assert not [note for note in sample.notes if "host" in note or "counters" in note]


@as_root
def test_a_link_can_be_given_another_rate(nodes: tuple[LabNode, ...]) -> None:
    by_name = {node.name: node for node in nodes}
    shape(by_name["slow-p"], 200_000_000)
    try:
        sample = measure(nodes, "slow-p", "slow-d")
    finally:
        shape(by_name["slow-p"], GIGABIT)
    assert sample.bytes_per_second == pytest.approx(200e6 / 8 * PAYLOAD_SHARE, rel=0.05)


LAB_THAT_WAITS = """
import time
from kvgate.edge.lab import lab
with lab({"a": 10**9, "b": 10**9}):
    print("ready", flush=True)
    time.sleep(60)
"""


def start_lab(*prefix: str) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-c", LAB_THAT_WAITS]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'probes'}"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@as_root
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGHUP, 129, id="SIGHUP"),
        pytest.param(signal.SIGINT, -signal.SIGINT, id="SIGINT"),
    ],
)
def test_a_signal_takes_the_lab_down(number: signal.Signals, code: int) -> None:
    process = start_lab()
    with process:
        assert len(namespaces(process.pid)) == 3
        process.send_signal(number)
        assert process.wait(20) == code
    assert namespaces(process.pid) == set()


@as_root
def test_what_a_killed_lab_left_is_cleared_and_what_lives_is_not() -> None:
    killed, living = start_lab(), start_lab()
    with killed, living:
        try:
            killed.kill()
            killed.wait(20)
            assert len(namespaces(killed.pid)) == 3
            clear_leftovers()
            assert namespaces(killed.pid) == set()
            assert len(namespaces(living.pid)) == 3
        finally:
            living.terminate()
    assert namespaces(living.pid) == set()


@as_root
def test_an_error_inside_takes_the_lab_down() -> None:
    before = namespaces()
    with pytest.raises(ZeroDivisionError):
        _fail_in_a_lab(before)
    assert namespaces() == before


def _fail_in_a_lab(before: set[str]) -> None:
    with lab({"x": GIGABIT}) as made:
        assert len(namespaces() - before) == 2
        raise ZeroDivisionError(made[0].name)


@as_root
def test_a_rate_that_the_kernel_refuses_is_an_error_of_one_line_and_leaves_nothing() -> None:
    before = namespaces()
    with pytest.raises(EdgeError) as caught, lab({"x": -1}):
        pass
    assert len(str(caught.value).splitlines()) == 1
    assert namespaces() == before


def test_a_missing_tool_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EdgeError, match=r"^iperf3, tc not found: apt-get install iperf3 iproute2 "):
        require(("iperf3", "tc"))


IN_USER_NAMESPACE = """
import sys
sys.path[:0] = [{operator!r}, {probes!r}, {root!r}]
from kvgate.edge.lab import lab
from tests.edge.test_lab import GIGABIT, PAYLOAD_SHARE, measure
with lab({{"a": GIGABIT, "b": GIGABIT}}) as nodes:
    print(measure(nodes, "a", "b").bytes_per_second / (GIGABIT / 8 * PAYLOAD_SHARE))
"""


def test_in_a_user_namespace_the_links_are_the_same() -> None:
    """`unshare -Urnm` and a /run of its own, as the demo starts itself again where it is not root."""
    if not user_namespaces_work():
        pytest.skip("this machine forbids user namespaces")
    text = IN_USER_NAMESPACE.format(operator=str(ROOT / "operator"), probes=str(ROOT / "probes"), root=str(ROOT))
    inner = 'mount -t tmpfs tmpfs /run && exec "$@"'
    command = ["unshare", "-Urnm", "sh", "-c", inner, "sh", sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(1, rel=0.05)


@as_root
def test_two_pods_of_one_node_are_measured_over_the_bridge_between_them(nodes: tuple[LabNode, ...]) -> None:
    one, other = nodes[:2]
    hosts = Host("n", one.address, 5201, one.namespace), Host("n/2", other.address, 5201, other.namespace)
    known = {"n": frozenset({one.address}), "n/2": frozenset({other.address})}
    sample = paired(hosts, known, loopback=False)
    assert sample.failure is None
    assert sample.path == NodePath("n", "n")
    assert sample.interface == "eth0"
    assert sample.bytes_per_second == pytest.approx(GIGABIT / 8 * PAYLOAD_SHARE, rel=0.1)


@pytest.mark.parametrize("loopback", [pytest.param(False, id="ever"), pytest.param(True, id="where loopback may be")])
def test_a_node_that_reaches_its_companion_by_loopback_is_refused(loopback: bool) -> None:
    hosts = Host("n", "127.0.0.1", 5301), Host("n/2", "127.0.0.1", 5321)
    sample = paired(hosts, {}, loopback=loopback)
    assert sample.failure is not None
    assert sample.failure.kind is FailureKind.WRONG_HOST
