"""What the harness makes of machines that are not this one: tables in the place of what a kernel would say."""

from pathlib import Path

import pytest

from tests.cluster import harness
from tests.cluster.cache import CannotRunError
from tests.cluster.cgroups import Hierarchies, Version, find_hierarchies, make_cgroup
from tests.cluster.leftovers import Kind, Ledger
from tests.cluster.network import free_second_octet

V1 = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
"""
IDLE_V2 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\nproc /proc proc rw 0 0\n"
MEMORY, CPUSET, UNIFIED = (Path("/sys/fs/cgroup", name) for name in ("memory", "cpuset", "unified"))


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        pytest.param(V1, Hierarchies(Version.V1, (MEMORY, CPUSET)), id="controllers each in a hierarchy are version 1"),
        pytest.param(
            V1 + IDLE_V2,
            Hierarchies(Version.V1, (MEMORY, CPUSET, UNIFIED)),
            id="version 1 beside an idle version 2 is version 1, and both are cleared",
        ),
        pytest.param(V2, Hierarchies(Version.V2, (Path("/sys/fs/cgroup"),)), id="one hierarchy for all is version 2"),
    ],
)
def test_the_version_of_control_groups_is_read_from_the_mounts(mounts: str, expected: Hierarchies) -> None:
    assert find_hierarchies(mounts) == expected


def test_a_machine_without_control_groups_is_told_so() -> None:
    with pytest.raises(CannotRunError, match=r"^nothing is mounted on /sys/fs/cgroup"):
        find_hierarchies("proc /proc proc rw 0 0\n")


def version_2(root: Path, handed_on: str) -> Hierarchies:
    (root / "cgroup.subtree_control").write_text(handed_on)
    return Hierarchies(Version.V2, (root,))


def ledger_in(directory: Path) -> Ledger:
    (directory / "state").mkdir()
    return Ledger(directory / "state")


def test_in_version_2_the_controllers_that_are_lacking_are_handed_on(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    make_cgroup(ledger, version_2(tmp_path, "cpuset cpu"), "kvg-n1")

    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (tmp_path / "kvg-n1").is_dir()
    assert [(e.kind, e.name) for e in ledger.entries()] == [(Kind.CGROUP, str(tmp_path / "kvg-n1"))]


def test_in_version_2_nothing_is_written_where_nothing_is_lacking(tmp_path: Path) -> None:
    make_cgroup(ledger_in(tmp_path), version_2(tmp_path, "cpuset cpu io memory pids"), "kvg-n1")

    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpuset cpu io memory pids"


def test_a_network_that_this_host_already_reaches_is_not_taken() -> None:
    routes = [
        "default",
        "192.0.2.0/24",
        "10.64.0.0/11",
        "10.96.0.0/12",
        "10.112.0.0/13",
        "10.120.0.0/14",
        "10.124.0.0/15",
    ]

    assert free_second_octet([*routes, "10.126.7.0/24"]) == 127


def test_a_host_that_reaches_all_of_ten_is_told_which_networks_were_tried() -> None:
    with pytest.raises(CannotRunError, match=r"every network from 10\.64\.0\.0/16 to 10\.127\.0\.0/16 overlaps"):
        free_second_octet(["10.0.0.0/8"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        pytest.param("sys.platform", "darwin", "namespaces and control groups", id="not Linux"),
        pytest.param("os.geteuid", lambda: 1000, "run this as root", id="not root"),
        pytest.param("shutil.which", lambda name: None, "apt-get install containerd iproute2", id="nothing installed"),
    ],
)
def test_a_machine_that_cannot_hold_a_node_is_told_why(
    name: str, value: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, usual in (("sys.platform", "linux"), ("os.geteuid", lambda: 0), ("shutil.which", lambda name: name)):
        monkeypatch.setattr(f"tests.cluster.harness.{given}", usual)
    monkeypatch.setattr(f"tests.cluster.harness.{name}", value)

    with pytest.raises(CannotRunError, match=message) as raised:
        harness.check_machine()
    assert "\n" not in str(raised.value)


def test_every_package_that_is_missed_by_name_is_one_that_the_setup_installs() -> None:
    lines = Path(harness.__file__).with_name("apt-packages.txt").read_text().splitlines()
    installed = {line.partition("#")[0].strip() for line in lines}

    assert set(harness.PROGRAMS.values()) | {"containernetworking-plugins"} <= installed
