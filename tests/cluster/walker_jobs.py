"""Jobs that run the walker in the tests' cluster, one per node, and what its pods had to say."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvgate_probe.summary import Summary, decode_summary
from kvgate_probe.wire import Pair, Result, Schedule, Unreadable, decode_line, encode_schedule
from tests.cluster.access import Access, Document
from tests.cluster.images import PROBE_REFERENCE, PROBE_USER
from tests.cluster.waiting import eventually

PEERS_ANNOTATION = "kvgate.dev/peers"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True)
class Walked:
    """What one node's pod printed, and the summary that it left as its termination message."""

    results: Sequence[Result]
    summary: Summary


def both_ways(run: str, first: str, second: str, seconds: float) -> Schedule:
    """Two rounds: bytes flow from the first node to the second, and then back."""
    there, back = Pair(first, second), Pair(second, first)
    return Schedule(
        run_id=run,
        pool_uid="no-pool",
        tool="iperf3",
        rounds=((there,), (back,)),
        duration_seconds=seconds,
        streams=1,
        port=5201,
        phase="Isolated",
    )


def start_walkers(access: Access, namespace: str, schedule: Schedule, nodes: Sequence[str]) -> None:
    """Make the namespace, which admits restricted pods alone, and one Job per node; the walkers then await peers."""
    labels = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}}
    text = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "schedule", "namespace": namespace},
        "data": {"schedule.json": encode_schedule(schedule)},
    }
    access.apply(labels, text, *(job(namespace, node) for node in nodes))
    eventually(lambda: len(pod_addresses(access, namespace)) == len(nodes), 60)


def tell_peers(access: Access, namespace: str) -> Mapping[str, str]:
    """Annotate each pod with all addresses; returns them by node."""
    addresses = pod_addresses(access, namespace)
    annotation = f"{PEERS_ANNOTATION}={json.dumps(addresses)}"
    access.kubectl("annotate", "pods", "--all", "-n", namespace, annotation, check=True)
    return addresses


def finish(access: Access, namespace: str, nodes: Sequence[str], seconds: int) -> Mapping[str, Walked]:
    waited = ("wait", "--for=condition=Complete", f"--timeout={seconds}s", "-n", namespace)
    jobs = [f"job/walk-{node}" for node in nodes]
    done = access.kubectl(*waited, *jobs, timeout_seconds=seconds + 10)
    assert done.returncode == 0, f"{done.stderr}\n{_everything_said(access, namespace)}"
    return {node: _walked(access, namespace, node) for node in nodes}


def pod_addresses(access: Access, namespace: str) -> dict[str, str]:
    """Addresses of the pods that have one, by the node that they are on."""
    pods = access.get("pods", "-n", namespace)["items"]
    return {p["spec"]["nodeName"]: p["status"]["podIP"] for p in pods if p["status"].get("podIP")}


def job(namespace: str, node: str) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"walk-{node}", "namespace": namespace},
        "spec": {"backoffLimit": 0, "template": {"spec": pod_spec(node)}},
    }


def pod_spec(node: str) -> Document:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _only(node)}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": PROBE_USER,
            "runAsGroup": PROBE_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "walker",
                "image": PROBE_REFERENCE,
                "imagePullPolicy": "Never",
                "args": [
                    *("walk", "--schedule", "/etc/kvgate/schedule/schedule.json", "--peers", "/etc/kvgate/pod/peers"),
                    *("--node", node, "--termination-log", "/dev/termination-log"),
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "schedule", "mountPath": "/etc/kvgate/schedule", "readOnly": True},
                    {"name": "pod", "mountPath": "/etc/kvgate/pod", "readOnly": True},
                    {"name": "scratch", "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [
            {"name": "schedule", "configMap": {"name": "schedule"}},
            {"name": "pod", "downwardAPI": {"items": [{"path": "peers", "fieldRef": _annotation()}]}},
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        ],
    }


def _only(node: str) -> Document:
    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}


def _annotation() -> Document:
    return {"fieldPath": f"metadata.annotations['{PEERS_ANNOTATION}']"}


def _walked(access: Access, namespace: str, node: str) -> Walked:
    pod = access.get("pods", "-n", namespace, "-l", f"job-name=walk-{node}")["items"][0]
    said = access.kubectl("logs", pod["metadata"]["name"], "-n", namespace, check=True).stdout
    decoded = [decode_line(line) for line in said.splitlines() if line.startswith("{") and "kvgateProbe" in line]
    results = [line for line in decoded if not isinstance(line, Unreadable)]
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    summary = decode_summary(terminated["message"])
    assert not isinstance(summary, Unreadable), summary
    return Walked(results, summary)


def _everything_said(access: Access, namespace: str) -> str:
    pods = access.kubectl("get", "pods", "-n", namespace, "-o", "wide").stdout
    events = access.kubectl("get", "events", "-n", namespace).stdout
    return pods + events
