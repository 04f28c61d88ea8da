"""The demo and the ring with real iperf3, on links that are shaped, on loopback that is paced, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.api.status import PoolStatus
from kvgate.app.demo import in_user_namespace, starved_pools
from kvgate.app.output import Report
from kvgate.core.evidence import Path as FabricPath
from kvgate.core.evidence import Sample
from kvgate.core.explain import explain
from kvgate.edge.lab import LabNode, lab, shape
from tests.app.test_bad_input import one_line
from tests.app.test_cli import run
from tests.app.yard import FAST, SLOW, Sweeps, Yard, condition, edit, kvgate, lay_out, link_sample, node, sample

COMMAND = [sys.executable, "-m", "kvgate.app"]
PACED = "paced, not a link: both ends are on one host"
LONGEST_SECONDS = 60.0


def _pools(printed: str) -> dict[str, dict[str, Any]]:
    return {pool["name"]: pool for pool in json.loads(printed)["pools"]}


def _as_promised(printed: str) -> dict[str, dict[str, Any]]:
    """The slow pool held, the fast one opened by a patch."""
    pools = _pools(printed)
    assert list(pools) == ["slow", "fast"]
    slow, fast = pools["slow"], pools["fast"]
    assert (slow["passed"], slow["patch"], slow["done"]) == (False, "", [])
    assert slow["status"]["capabilities"][0]["outcome"] == "Fail"
    assert fast["passed"]
    assert fast["done"] == ["Enabled Disaggregation in fast-deployment.yaml"]
    assert fast["status"]["capabilities"][0]["enabled"]
    return pools


class BusyMachine(Sweeps):
    """Plays walkers that did not get their processor, as the kernel's own counters tell them."""

    def _sample(self, run: str, path: FabricPath, ended: datetime) -> Sample:
        return link_sample(run, path, ended, self.bytes_per_second, starved="its sender was throttled for 40%")


@pytest.mark.parametrize(
    ("rate", "starved"), [(SLOW, ("qwen3",)), (FAST, ())], ids=["too few bytes", "enough all the same"]
)
def test_a_pool_that_a_busy_machine_could_not_measure_is_named(
    rate: float, starved: tuple[str, ...], tmp_path: Path
) -> None:
    turns, _ = Yard(lay_out(tmp_path), BusyMachine(rate)).settle()
    last = turns[-1]
    report = Report(last.pool, last.decision.status, explain(last.pool, last.world, last.at))
    assert starved_pools([report]) == starved


@pytest.mark.local
def test_the_demo_holds_one_pool_and_opens_the_other_within_a_minute(tmp_path: Path) -> None:
    start = time.monotonic()
    done = run("demo", "--keep", tmp_path / "kept", "-o", "json")
    seconds = time.monotonic() - start
    print(f"kvgate demo took {seconds:.1f} s")
    assert (done.returncode, seconds < LONGEST_SECONDS) == (0, True), done.stderr
    assert _pools(done.stdout)["slow"]["paths"][0]["notes"] == []
    for pool, near in (("slow", 1e9 / 8), ("fast", 2.5e9 / 8)):
        measured = _pools(done.stdout)[pool]["paths"][0]["linkBytesPerSecond"]
        assert 0.9 * near < measured < near
    _as_promised(done.stdout)
    _files_as_promised(tmp_path / "kept")
    again = run("reconcile", "-f", tmp_path / "kept", "-o", "json")
    assert again.returncode == 1
    assert [pool["done"] for pool in _pools(again.stdout).values()] == [[], []]


def _files_as_promised(kept: Path) -> None:
    slow, fast = (sample("deployment.yaml").replace("name: qwen3\n", f"name: {name}\n") for name in ("slow", "fast"))
    assert (kept / "slow-deployment.yaml").read_bytes() == slow.encode()
    lines = (kept / "fast-deployment.yaml").read_text().splitlines()
    changed = [(old.strip(), new.strip()) for old, new in zip(fast.splitlines(), lines, strict=True) if old != new]
    assert changed == [("value: agg", "value: decode"), ("value: agg", "value: prefill")]


@pytest.mark.local
def test_the_demo_runs_as_root_of_a_user_namespace() -> None:
    done = subprocess.run(
        in_user_namespace(["demo", "-o", "json"]), capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert PACED not in str(_as_promised(done.stdout))


@pytest.mark.local
def test_where_no_link_may_be_made_the_demo_paces_loopback_and_says_so() -> None:
    """What a container without CAP_NET_ADMIN and CAP_SYS_ADMIN allows."""
    barred = ["setpriv", "--bounding-set=-net_admin,-sys_admin", *COMMAND, "demo", "-o", "json"]
    done = subprocess.run(barred, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "It is paced, not a link." in done.stderr
    assert all(PACED in pool["paths"][0]["notes"] for pool in _as_promised(done.stdout).values())


@pytest.mark.local
def test_a_directory_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text("kind: Mine\n")
    assert kvgate("demo", "--keep", tmp_path) == 2
    assert "is not empty" in one_line(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_without_iperf3_it_says_how_to_install_it() -> None:
    done = run("demo", environment={**os.environ, "PATH": ""})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("kvgate: error: iperf3 not found: apt-get install iperf3 (macOS: brew install iperf3)\n")


def _namespaces(process: int) -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"kvgate-{process}-*")) if folder.is_dir() else []


def _speaking_of(folder: Path) -> list[int]:
    """The live processes on whose command line a folder stands."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(int(entry.parent.name))
    return found


@contextmanager
def _sweeping_demo(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo whose walkers are at work; its temporary files go into a folder of their own."""
    temporary.mkdir(exist_ok=True)
    command = [*COMMAND, "demo", "-o", "json"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            _until(lambda: len(_speaking_of(temporary)) >= 2, "two walkers at work")
            time.sleep(1)
            yield process
        finally:
            process.kill()


def _until(true: Any, what: str, seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, f"not seen within {seconds:.0f} s: {what}"
        time.sleep(0.1)


@pytest.mark.local
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "kvgate: error: stopped"), (signal.SIGTERM, 143, "")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_stopped_in_a_sweep_it_leaves_nothing(number: signal.Signals, code: int, said: str, tmp_path: Path) -> None:
    with _sweeping_demo(tmp_path / "temporary") as process:
        assert len(_namespaces(process.pid)) == 5
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert [line for line in err.splitlines() if line and not line.startswith("measuring ")] == ([said] if said else [])
    assert _namespaces(process.pid) == []
    assert _speaking_of(tmp_path) == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.local
def test_what_a_killed_demo_leaves_the_next_one_clears(tmp_path: Path) -> None:
    with _sweeping_demo(tmp_path / "temporary") as process:
        process.kill()
        process.communicate(timeout=30)
        _until(lambda: not _speaking_of(tmp_path), "the walkers have ended with it", 3)
        assert len(_namespaces(process.pid)) == 5
    with lab({"next": 10**9}):
        assert _namespaces(process.pid) == []


# A pool between two namespaces of a lab, with sweeps of one second.


@pytest.fixture
def links() -> Iterator[tuple[LabNode, ...]]:
    with lab({"prefill": 25 * 10**8, "decode": 25 * 10**8}) as nodes:
        yield nodes


def _played(made: LabNode) -> dict[str, Any]:
    manifest = node(made.name, made.name, **{"local.kvgate.dev/network-namespace": made.namespace})
    return manifest | {"status": {"addresses": [{"type": "InternalIP", "address": made.address}]}}


def _reconciled(folder: Path, capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    ended = kvgate("reconcile", "-f", folder, "-o", "json")
    said = capsys.readouterr()
    assert ended == code, said
    [entry] = json.loads(said.out)["pools"]
    assert isinstance(entry, dict)
    return entry


def _approve(folder: Path, entry: dict[str, Any]) -> None:
    spec = {
        "poolRef": {"name": entry["name"], "uid": entry["uid"]},
        "capability": "Disaggregation",
        "planHash": entry["status"]["capabilities"][0]["planHash"],
        "approver": "someone@example.com",
        "acceptInconclusive": ["ReducedCapacity"],
        "expiresAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)),
    }
    body = {"apiVersion": "kvgate.dev/v1alpha1", "kind": "GateApproval", "spec": spec}
    metadata = {"metadata": {"name": "split", "namespace": "serving"}}
    (folder / "approval.yaml").write_text(yaml.safe_dump(body | metadata))


@pytest.mark.local
def test_a_link_that_gets_slow_closes_what_it_had_opened(
    links: tuple[LabNode, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lay_out(tmp_path, *map(_played, links))
    edit(folder / "pool.yaml", {"spec|fabric|probe|link|duration": "1s"})
    _approve(folder, _reconciled(folder, capsys, 1))
    assert _reconciled(folder, capsys, 0)["status"]["capabilities"][0]["enabled"]
    for link in links:
        shape(link, 100_000_000)
    edit(folder / "pool.yaml", {"metadata|annotations": {"kvgate.dev/measure-requested-at": "after the change"}})
    closed = _reconciled(folder, capsys, 1)
    status = PoolStatus.model_validate(closed["status"])
    assert (folder / "deployment.yaml").read_text() == sample("deployment.yaml")
    assert closed["done"] == ["Reverted Disaggregation in deployment.yaml"]
    assert condition(status, "RolledBack") == ("True", "Disaggregation")
    assert (status.capabilities[0].enabled, status.capabilities[0].epoch) == (False, 1)
    assert status.last_handled_measure_at == "after the change"
    for link in links:
        shape(link, 25 * 10**8)
    edit(folder / "pool.yaml", {"metadata|annotations": {"kvgate.dev/measure-requested-at": "after the repair"}})
    held = PoolStatus.model_validate(_reconciled(folder, capsys, 1)["status"])
    assert (held.capabilities[0].approval.state, held.capabilities[0].enabled) == ("PlanChanged", False)
    assert (folder / "deployment.yaml").read_text() == sample("deployment.yaml")


@pytest.mark.local
def test_killed_in_a_sweep_the_next_run_measures_the_same_links(
    links: tuple[LabNode, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lay_out(tmp_path / "pools", *map(_played, links))
    edit(folder / "pool.yaml", {"spec|fabric|probe|link|duration": "5s"})
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*COMMAND, "reconcile", "-f", folder], env=environment, stderr=subprocess.DEVNULL) as process:
        _until(lambda: len(_speaking_of(tmp_path)) >= 3, "kvgate and two walkers at work")
        time.sleep(1.5)
        process.kill()
    edit(folder / "pool.yaml", {"spec|fabric|probe|link|duration": "1s"})
    entry = _reconciled(folder, capsys, 1)
    assert entry["paths"][0]["linkBytesPerSecond"] == pytest.approx(2.5e9 / 8, rel=0.1)


@pytest.mark.local
def test_loopback_of_this_host_is_paced_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paced = {"local.kvgate.dev/loopback": "true", "local.kvgate.dev/paced": "100Mbit/s"}
    folder = lay_out(tmp_path, node("prefill", "prefill", **paced), node("decode", "decode", **paced))
    edit(folder / "pool.yaml", {"spec|fabric|probe|link|duration": "2s", "spec|fabric|probe|port": 15201})
    entry = _reconciled(folder, capsys, 1)
    assert PACED in entry["paths"][0]["notes"]
    assert entry["paths"][0]["linkBytesPerSecond"] == pytest.approx(12.5e6, rel=0.05)
