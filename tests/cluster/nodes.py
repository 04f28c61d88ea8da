"""Starts one node: containerd and a kubelet in namespaces of their own, on a shaped link of the switch."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster.binaries import binary
from tests.cluster.cgroups import Hierarchies, make_cgroup
from tests.cluster.controlplane import tail
from tests.cluster.images import PAUSE_REFERENCE
from tests.cluster.leftovers import Ledger
from tests.cluster.network import Plug
from tests.cluster.processes import Process

INIT = Path(__file__).with_name("node-init.sh")
SOCKET_PATH_LIMIT = 107
PROGRAMS = ("containerd", "kubelet")
RESTART = re.compile(rf"(?:{'|'.join(PROGRAMS)}) ended with status \d+ after start \d+ of \d+")


@dataclass(frozen=True)
class Node:
    name: str
    plug: Plug
    process: Process
    state: Path
    command: tuple[str | Path, ...]
    """What starts it, again after a reboot."""

    @property
    def log(self) -> Path:
        return self.state.with_name(f"{self.name}.log")

    def last_words(self) -> str:
        """The ends of its programs' logs; its own log tells which of them ended, with what status."""
        logs = [self.state / f"{program}.log" for program in PROGRAMS]
        return "\n".join(f"{log.name} ends:\n{tail(log)}" for log in logs if log.exists())

    def restarts(self) -> list[str]:
        """Each time that one of its programs ended and was started again."""
        return RESTART.findall(self.log.read_text(errors="replace"))

    @property
    def images_imported(self) -> bool:
        return (self.state / "images-imported").exists()


@dataclass(frozen=True)
class NodePlan:
    """What tells one node of a cluster from another, and which API server it joins."""

    name: str
    plug: Plug
    labels: str
    kubeconfig: Path
    authority: Path


@dataclass(frozen=True)
class Prepared:
    """What every node of a cluster is started with: the kernel's hierarchies, and archives of images."""

    hierarchies: Hierarchies
    pause_image: Path
    images: Sequence[Path]


def start_node(ledger: Ledger, prepared: Prepared, plan: NodePlan) -> Node:
    """Returns as soon as the node's processes are started; it is Ready some seconds later."""
    state = ledger.state / plan.name
    state.mkdir()
    group = plan.plug.namespace
    make_cgroup(ledger, prepared.hierarchies, group)
    _write_containerd_config(state, plan)
    kubelet_config = _write_kubelet_config(state, plan, group)
    environment = {
        "STATE": str(state),
        "CONTAINERD_CONFIG": str(state / "containerd.toml"),
        "KUBELET": str(binary("kubelet")),
        "KUBELET_ARGS": " ".join(_kubelet_arguments(state, plan, kubelet_config)),
        "PAUSE_IMAGE": str(prepared.pause_image),
        "IMAGES": " ".join(map(str, prepared.images)),
    }
    command: tuple[str | Path, ...] = (
        *("env", *(f"{name}={value}" for name, value in environment.items())),
        *("nsenter", f"--net=/run/netns/{plan.plug.namespace}"),
        *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
        *("bash", INIT),
    )
    return Node(plan.name, plan.plug, ledger.start(plan.name, *command), state, command)


def _kubelet_arguments(state: Path, plan: NodePlan, config: Path) -> list[str]:
    return [
        f"--config={config}",
        f"--kubeconfig={plan.kubeconfig}",
        f"--root-dir={state / 'kubelet'}",
        f"--cert-dir={state / 'pki'}",
        f"--hostname-override={plan.name}",
        f"--node-ip={plan.plug.address}",
        f"--node-labels={plan.labels}",
    ]


def _write_kubelet_config(state: Path, plan: NodePlan, group: str) -> Path:
    resolver = state / "resolv.conf"
    resolver.write_text("")
    path = state / "kubelet.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": plan.plug.address,
                "readOnlyPort": 0,
                "healthzPort": 0,
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": False},
                    "x509": {"clientCAFile": str(plan.authority)},
                },
                "authorization": {"mode": "AlwaysAllow"},  # of the one client that the certificate is for
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": f"/{group}",
                "containerRuntimeEndpoint": f"unix://{state / 'c.sock'}",
                "evictionHard": {"memory.available": "100Mi"},
                "failCgroupV1": False,
                "failSwapOn": False,
                "imageGCHighThresholdPercent": 100,
                "makeIPTablesUtilChains": False,
                "podLogsDir": str(state / "pod-logs"),
                "resolvConf": str(resolver),
                "syncFrequency": "10s",
                "volumePluginDir": str(state / "volume-plugins"),
            }
        )
    )
    return path


def _write_containerd_config(state: Path, plan: NodePlan) -> None:
    networks = state / "cni"
    networks.mkdir()
    (networks / "bridge.conflist").write_text(json.dumps(_pod_network(state, plan.plug)))
    socket = str(state / "c.sock")
    assert len(socket) <= SOCKET_PATH_LIMIT, f"{socket} is longer than a socket's path may be: use a shorter --state"
    (state / "containerd.toml").write_text(
        f"""\
version = 2
root = "{state}/containerd"
state = "{state}/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.btrfs"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_REFERENCE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{_snapshotter(state)}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{networks}"
"""
    )


def _pod_network(state: Path, plug: Plug) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(state / "ipam"),
            "ranges": [[{"subnet": plug.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _snapshotter(state: Path) -> str:
    """Overlay cannot lie on overlay, which is what a container's own root is."""
    argv = ["stat", "--file-system", "--format=%T", str(state)]
    kind = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    return "native" if kind == "overlayfs" else "overlayfs"
