"""Shadow frontends: what they take from the live one, and what they must never take."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvgate.dynamo.shadow import NoShadow, Shadow, shadows
from kvgate.dynamo.words import RouterMode

PORTS = {RouterMode.ROUND_ROBIN: 18001, RouterMode.KV: 18002}
NAMESPACE = "serving-qwen3-3f2a9c1b"

POD: dict[str, Any] = {
    "metadata": {
        "name": "qwen3-frontend-6d5-x2x",
        "labels": {
            "nvidia.com/dynamo-graph-deployment-name": "qwen3",
            "nvidia.com/dynamo-component-type": "frontend",
            "nvidia.com/metrics-enabled": "true",
        },
        "annotations": {"prometheus.io/scrape": "true"},
    },
    "spec": {
        "serviceAccountName": "qwen3-k8s-service-discovery",
        "imagePullSecrets": [{"name": "registry"}],
        "securityContext": {"runAsUser": 2000},
        "nodeName": "n7",
        "nodeSelector": {"pool": "serving"},
        "tolerations": [{"key": "serving", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
        },
        "volumes": [
            {"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "unused", "hostPath": {"path": "/var"}},
        ],
        "containers": [
            {"name": "sidecar", "image": "other:1"},
            {
                "name": "main",
                "image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1",
                "command": ["python3", "-m", "dynamo.frontend"],
                "args": [
                    *("--router-mode", "kv", "--namespace-prefix=serving-qwen3", "--http-port", "8000"),
                    *("--router-replica-sync", "--router-temperature", "0.5", "--migration-limit", "3"),
                ],
                "env": [
                    {"name": "DYN_ROUTER_MODE", "value": "kv"},
                    {"name": "DYN_NAMESPACE_PREFIX", "value": "serving-qwen3"},
                    {"name": "DYN_HTTP_PORT", "value": "8000"},
                    {"name": "DYN_ROUTER_REPLICA_SYNC", "value": "true"},
                    {"name": "DYN_DISCOVERY_BACKEND", "value": "kubernetes"},
                    {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                ],
                "envFrom": [{"secretRef": {"name": "hf-token"}}],
                "resources": {"requests": {"cpu": "2"}},
                "ports": [{"containerPort": 8000, "name": "http"}],
                "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
                "volumeMounts": [
                    {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                    {"name": "models", "mountPath": "/models"},
                ],
            },
        ],
    },
}


def pod(**main: object) -> dict[str, Any]:
    made = copy.deepcopy(POD)
    made["spec"]["containers"][1] |= main
    return made


def made(document: dict[str, Any] = POD) -> Shadow:
    found = shadows(document, NAMESPACE, PORTS)
    assert isinstance(found, Shadow)
    return found


def test_there_is_one_per_mode_with_a_port_of_its_own_on_loopback() -> None:
    round_robin, kv = made().containers
    kept = ["--router-temperature", "0.5", "--migration-limit", "3"]
    for container, mode, port in ((round_robin, "round-robin", "18001"), (kv, "kv", "18002")):
        own = ["--router-mode", mode, "--namespace", NAMESPACE, "--http-host", "127.0.0.1", "--http-port", port]
        assert container["args"] == [*kept, *own]
        assert container["command"] == ["python3", "-m", "dynamo.frontend"]
        assert container["name"] == f"shadow-{mode}"


def test_it_serves_the_exact_namespace_and_no_prefix_of_another() -> None:
    for container in made().containers:
        said = str(container)
        assert "prefix" not in said.lower()
        assert said.count(NAMESPACE) == 1


def test_it_keeps_image_environment_and_files_and_drops_what_is_the_live_ones_own() -> None:
    found = made()
    container = found.containers[0]
    assert container["image"] == "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1"
    assert [entry["name"] for entry in container["env"]] == ["DYN_DISCOVERY_BACKEND", "POD_UID"]  # type: ignore[attr-defined]
    assert container["envFrom"] == [{"secretRef": {"name": "hf-token"}}]
    assert container["volumeMounts"] == [{"name": "models", "mountPath": "/models"}]
    assert [volume["name"] for volume in found.volumes] == ["models"]
    assert (found.service_account, found.user) == ("qwen3-k8s-service-discovery", 2000)
    assert not {"ports", "readinessProbe", "livenessProbe", "lifecycle"} & container.keys()


def test_it_may_run_where_the_frontend_may_and_is_not_bound_to_its_node() -> None:
    nodes: dict[str, object] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    assert made().placement == {
        "nodeSelector": {"pool": "serving"},
        "tolerations": [{"key": "serving", "operator": "Exists"}],
        "affinity": {"nodeAffinity": nodes},
    }


def test_no_label_of_the_live_pod_comes_along() -> None:
    assert "nvidia.com" not in str(made().containers).replace("nvcr.io/nvidia", "")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(pod(name="other"), "has no container main", id="no main container"),
        pytest.param(
            pod(command=["sh", "-c"], args=["python3 -m dynamo.frontend"]), "without a shell", id="a shell string"
        ),
        pytest.param(pod(command=None, args=None), "is not `python3 -m dynamo.frontend`", id="the image's entrypoint"),
        pytest.param(
            pod(args=["--router-mode", 3]), "is not `python3 -m dynamo.frontend`", id="an arg that is no text"
        ),
        pytest.param(
            pod(volumeMounts=[{"name": "unused", "mountPath": "/x"}]),
            "volume unused is on the host's disk",
            id="hostPath",
        ),
        pytest.param({}, "has no container main", id="nothing"),
    ],
)
def test_what_cannot_be_changed_has_no_shadow(document: dict[str, Any], said: str) -> None:
    found = shadows(document, NAMESPACE, PORTS)
    assert isinstance(found, NoShadow)
    assert said in found.message


def test_a_program_in_the_args_is_changed_there() -> None:
    found = made(pod(command=["python3"], args=["-m", "dynamo.frontend", "--namespace", "x", "--router-mode=kv"]))
    assert found.containers[0]["args"][:2] == ["-m", "dynamo.frontend"]  # type: ignore[index]
    assert "x" not in found.containers[0]["args"]  # type: ignore[operator]
