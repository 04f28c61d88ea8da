"""What befalls a node of the tests' cluster: it reboots, its kubelet is killed or finds no memory, its image goes."""

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from tests.cluster.images import PROBE_REFERENCE, probe_image
from tests.cluster.leftovers import Ledger
from tests.cluster.nodes import Node
from tests.cluster.waiting import eventually

PROC = Path("/proc")


def processes_with(*words: str) -> list[int]:
    """Those whose command line has all of these arguments."""
    found = []
    for entry in PROC.glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if all(word in command for word in words):
            found.append(int(entry.name))
    return found


def kubelet_of(node: Node) -> int:
    (pid,) = processes_with(f"--root-dir={node.state / 'kubelet'}")
    return pid


@contextmanager
def without_kubelet(node: Node) -> Iterator[None]:
    """From SIGKILL to the kubelet until another is started; the node's containers live on."""
    mark = node.state / "kubelet-off"
    mark.touch()
    os.kill(kubelet_of(node), signal.SIGKILL)
    eventually((node.state / "kubelet-is-off").exists, 20)
    try:
        yield
    finally:
        mark.unlink()
        eventually(lambda: bool(processes_with(f"--root-dir={node.state / 'kubelet'}")), 20)


@contextmanager
def short_of_memory(node: Node) -> Iterator[None]:
    """Its kubelet takes the node's memory for used up, and evicts pods."""
    path = node.state / "kubelet.yaml"
    before = path.read_text()
    short = yaml.safe_load(before) | {"evictionHard": {"memory.available": "99%"}}
    with without_kubelet(node):
        path.write_text(yaml.safe_dump(short))
    try:
        yield
    finally:
        with without_kubelet(node):
            path.write_text(before)


def reboot(node: Node, directory: Path) -> None:
    """All its processes end at once, and it starts again under its name, with another boot ID."""
    kill(node)
    Ledger(directory).start(node.name, "env", f"BOOT_ID={uuid.uuid4()}", *node.command)


def kill(node: Node) -> None:
    mine = f"STATE={node.state}".encode()
    inits = processes_with("bash", str(Path(__file__).with_name("node-init.sh")))
    for pid in [pid for pid in inits if mine in _environment(pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not processes_with(f"--root-dir={node.state / 'kubelet'}"), 20)


def _environment(pid: int) -> list[bytes]:
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


@contextmanager
def without_image(node: Node) -> Iterator[None]:
    """The probe's image is gone from the node, and no registry has it."""
    ctr(node, "images", "rm", PROBE_REFERENCE)
    try:
        yield
    finally:
        ctr(node, "images", "import", str(probe_image(node.state.parent)))


def ctr(node: Node, *args: str) -> None:
    argv = ["ctr", "--address", str(node.state / "c.sock"), "--namespace", "k8s.io", *args]
    subprocess.run(argv, check=True, capture_output=True)


@contextmanager
def taken(node: Node, port: int) -> Iterator[None]:
    """A stranger listens on the port of the node's own network."""
    listen = f"import socket,time; s = socket.create_server(('', {port})); print('up', flush=True); time.sleep(600)"
    argv = ["ip", "netns", "exec", node.plug.namespace, "python3", "-c", listen]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield
        finally:
            process.kill()


HOG = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
open("/proc/self/oom_score_adj", "w").write("-999")
held = []
while True:
    held.append(bytearray(os.urandom(1 << 20)))
"""


@contextmanager
def exhausted(pid: int) -> Iterator[None]:
    """Something fills the memory of the process's control group, until the kernel kills the process for it."""
    lines = [line.split(":", 2) for line in (PROC / str(pid) / "cgroup").read_text().splitlines()]
    v1 = next((path for _, names, path in lines if "memory" in names.split(",")), None)
    root = Path("/sys/fs/cgroup/memory") if v1 is not None else Path("/sys/fs/cgroup")
    group = root / (v1 if v1 is not None else lines[0][2]).lstrip("/")
    with subprocess.Popen(["python3", "-c", HOG, str(group / "cgroup.procs")]) as hog:
        try:
            yield
        finally:
            hog.kill()
