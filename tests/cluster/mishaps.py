"""What befalls a node of the tests' cluster: it reboots, its kubelet is killed or finds no memory, its image goes."""

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import yaml

from tests.cluster import processes
from tests.cluster.access import Access
from tests.cluster.harness import Cluster
from tests.cluster.images import PROBE_REFERENCE, probe_image
from tests.cluster.leftovers import Ledger
from tests.cluster.nodes import INIT, Node
from tests.cluster.processes import PROC
from tests.cluster.waiting import eventually

KUBELET_PORT = 10250
BACK_SECONDS = 60.0


def processes_with(*words: str) -> list[int]:
    """Those whose command line has all of these arguments."""
    return [int(entry.name) for entry in PROC.glob("[0-9]*") if set(words) <= set(_strings(entry / "cmdline"))]


def on(node: Node, pids: list[int]) -> list[int]:
    """Those of these processes that belong to the node's pods."""
    return [
        pid for pid in pids if any(f"/{node.plug.namespace}/" in line for line in _lines(PROC / str(pid) / "cgroup"))
    ]


def kubelet_of(node: Node) -> int:
    (pid,) = processes_with(f"--root-dir={node.state / 'kubelet'}")
    return pid


def has_reported(access: Access, node: str, mark: int) -> bool:
    """Whether the node's kubelet has written its status or its Lease since this mark of the audit log."""
    by_kubelets = (call for call in access.audit_events(mark) if call.user_agent.startswith("kubelet/"))
    return any(call.name == node and call.resource in {"nodes/status", "leases"} for call in by_kubelets)


def is_whole(access: Access, name: str) -> bool:
    """Ready, and takes pods as before any mishap: a node's taints go a moment after it is Ready."""
    node = access.get("node", name)
    conditions = {entry["type"]: entry["status"] for entry in node["status"]["conditions"]}
    pressed = [kind for kind, status in conditions.items() if kind != "Ready" and status != "False"]
    return conditions["Ready"] == "True" and not pressed and not node["spec"].get("taints")


@contextmanager
def without_kubelet(access: Access, node: Node) -> Iterator[None]:
    """From SIGKILL to the kubelet until another one has reported; the node's containers live on."""
    off = node.state / "kubelet-off"
    off.touch()
    os.kill(kubelet_of(node), signal.SIGKILL)
    eventually((node.state / "kubelet-is-off").exists, BACK_SECONDS)
    try:
        yield
    finally:
        mark = access.audit_mark()
        off.unlink()
        eventually(lambda: has_reported(access, node.name, mark), BACK_SECONDS)


@contextmanager
def short_of_memory(access: Access, node: Node) -> Iterator[None]:
    """Its kubelet takes the node's memory for used up, and evicts pods."""
    path = node.state / "kubelet.yaml"
    before = path.read_text()
    with without_kubelet(access, node):
        path.write_text(yaml.safe_dump(yaml.safe_load(before) | {"evictionHard": {"memory.available": "99%"}}))
    try:
        yield
    finally:
        with without_kubelet(access, node):
            path.write_text(before)


def reboot(cluster: Cluster, name: str) -> None:
    """All of its processes end at once, and it starts again under its name, until its Node shows the new boot."""
    node, boot = cluster.nodes[name], str(uuid.uuid4())
    inits = [pid for pid in processes_with("bash", str(INIT)) if f"STATE={node.state}" in _strings_of(pid)]
    for pid in inits:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    processes.kill([node.process])
    eventually(lambda: not processes_with(f"--root-dir={node.state / 'kubelet'}"), BACK_SECONDS)
    process = Ledger(cluster.access.directory).start(name, "env", f"BOOT_ID={boot}", *node.command)
    cluster.nodes = {**cluster.nodes, name: replace(node, process=process)}
    eventually(lambda: cluster.access.get("node", name)["status"]["nodeInfo"]["bootID"] == boot, BACK_SECONDS)


@contextmanager
def without_image(node: Node) -> Iterator[None]:
    """The probe's image is gone from the node, and no registry has it."""
    _ctr(node, "images", "rm", "--sync", PROBE_REFERENCE)
    try:
        yield
    finally:
        _ctr(node, "images", "import", str(probe_image(node.state.parent)))


@contextmanager
def unheard_kubelet(node: Node) -> Iterator[None]:
    """A firewall refuses what the API server asks of the node's kubelet, such as logs; the kubelet still reports."""
    chain = f"chain in {{ type filter hook input priority 0; tcp dport {KUBELET_PORT} reject; }}"
    _inside(node, "nft", f"table inet unheard {{\n{chain}\n}}")
    try:
        yield
    finally:
        _inside(node, "nft", "delete table inet unheard")


@contextmanager
def taken(node: Node, port: int) -> Iterator[None]:
    """A stranger listens on the port of the node's own network."""
    listen = f"import socket, time; s = socket.create_server(('', {port})); print('up', flush=True); time.sleep(600)"
    argv = ["ip", "netns", "exec", node.plug.namespace, "python3", "-c", listen]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield
        finally:
            process.kill()


def listeners(node: Node) -> list[str]:
    """What the probe's programs listen on in the node's own network."""
    found = _inside(node, "ss", "-Hltnp").splitlines()
    return [line for line in found if any(f'"{program}"' in line for program in ("python3", "iperf3"))]


HOG = """
import os, sys
open("/proc/self/oom_score_adj", "w").write("-999")
open(sys.argv[1], "w").write(str(os.getpid()))
held = []
while True:
    held.append(os.urandom(1 << 20))
"""


def exhaust(pid: int) -> None:
    """Fill the memory of the process's control group, until the kernel has killed the process for want of it."""
    ticks = processes.start_ticks(pid)
    assert ticks is not None
    victim, group = processes.Process(pid, ticks), _memory_group(pid)
    with subprocess.Popen(["python3", "-c", HOG, str(group / "cgroup.procs")]) as hog:
        try:
            eventually(lambda: not victim.runs(), 30)
        finally:
            hog.kill()


def _memory_group(pid: int) -> Path:
    """Under the hierarchy of version 1 that holds memory, or under version 2's only one."""
    lines = [line.split(":", 2) for line in _lines(PROC / str(pid) / "cgroup")]
    first = next((path for _, names, path in lines if "memory" in names.split(",")), None)
    if first is not None:
        return Path("/sys/fs/cgroup/memory") / first.lstrip("/")
    return Path("/sys/fs/cgroup") / lines[0][2].lstrip("/")


def _inside(node: Node, *command: str) -> str:
    argv = ["ip", "netns", "exec", node.plug.namespace, *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} on {node.name}: {done.stderr}"
    return done.stdout


def _ctr(node: Node, *args: str) -> None:
    argv = ["ctr", "--address", str(node.state / "c.sock"), "--namespace", "k8s.io", *args]
    subprocess.run(argv, check=True, capture_output=True)


def _strings_of(pid: int) -> list[str]:
    return _strings(PROC / str(pid) / "environ")


def _strings(path: Path) -> list[str]:
    """A file of /proc in which each string ends with a NUL; none where the process has gone."""
    try:
        return path.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
