"""What a probe copies of the worker that it stands for, in both versions of the API, and what it never does."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.core.shoes import Ask, Shoes
from kvgate.dynamo.shape import Target, read_target
from kvgate.dynamo.view import shoes
from kvgate.dynamo.words import Role

NETWORKS = {"k8s.v1.cni.cncf.io/networks": "serving/rdma-net", "example.com/owner": "someone"}
ENV = [
    {"name": "UCX_TLS", "value": "rc,cuda_copy"},
    {"name": "NCCL_IB_HCA", "value": "mlx5_0"},
    {"name": "UCX_LOG_FILE", "value": "/var/log/ucx"},
    {"name": "UCX_NET_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "net", "key": "devices"}}},
    {"name": "NCCL_TOKEN", "value": "hunter2"},
    {"name": "UCX_RPATH", "value": "$(HOME)/x"},
    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
    {"name": "VLLM_LOGGING_LEVEL", "value": "INFO"},
]
SECURITY = {"runAsUser": 1000, "capabilities": {"add": ["IPC_LOCK", "SYS_ADMIN"]}}
RESOURCES = {
    "limits": {"nvidia.com/gpu": "8", "rdma/ib": "1", "memory": "64Gi"},
    "requests": {"nvidia.com/gpu": "8", "rdma/ib": "1"},
}


def beta(**pod: Any) -> dict[str, Any]:
    main = {"name": "main", "command": ["python3", "-m", "dynamo.vllm"], "env": ENV, "resources": RESOURCES}
    main["securityContext"] = SECURITY
    spec = {"containers": [main], "hostNetwork": True, "securityContext": {"runAsUser": 7, "runAsGroup": 100}} | pod
    worker = {
        "name": "prefill",
        "type": "prefill",
        "podTemplate": {"metadata": {"annotations": NETWORKS}, "spec": spec},
    }
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "qwen3", "namespace": "serving", "uid": "1"},
        "spec": {"components": [worker]},
    }


def alpha() -> dict[str, Any]:
    main = {"command": ["python3", "-m", "dynamo.vllm"], "securityContext": SECURITY}
    service = {
        "componentType": "worker",
        "subComponentType": "prefill",
        "envs": ENV,
        "resources": {"limits": {"gpu": "8", "custom": {"rdma/ib": "1"}}},
        "extraPodMetadata": {"annotations": NETWORKS},
        "extraPodSpec": {"mainContainer": main, "hostNetwork": True},
    }
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "qwen3", "namespace": "serving", "uid": "1"},
        "spec": {"services": {"prefill": service}},
    }


def worn(document: dict[str, Any], role: Role = Role.PREFILL) -> Shoes:
    target = read_target(document)
    assert isinstance(target, Target), target
    return shoes(target, role)


@pytest.mark.parametrize("document", [pytest.param(beta(), id="v1beta1"), pytest.param(alpha(), id="v1alpha1")])
def test_the_workers_way_to_the_network_is_copied(document: dict[str, Any]) -> None:
    found = worn(document)
    assert found.annotations == (("k8s.v1.cni.cncf.io/networks", "serving/rdma-net"),)
    assert found.environment == (("NCCL_IB_HCA", "mlx5_0"), ("UCX_TLS", "rc,cuda_copy"))
    assert Ask("limits", "rdma/ib", "1") in found.resources
    assert {ask.name for ask in found.resources} == {"rdma/ib"}
    assert (found.user, found.capabilities, found.host_network) == (1000, ("IPC_LOCK", "SYS_ADMIN"), True)


def test_nothing_secret_is_copied_and_what_is_left_out_is_told_without_its_value() -> None:
    told = worn(beta()).told
    assert "hunter2" not in str(worn(beta()))
    assert "not copied: env NCCL_TOKEN, for its name is a secret's" in told
    assert "not copied: env UCX_NET_DEVICES, for its value is not written in the spec" in told
    assert "not copied: env UCX_RPATH, for its value is not written in the spec" in told
    assert not any("HF_TOKEN" in word or "VLLM" in word for word in told)


@pytest.mark.parametrize(
    ("given", "copied", "told"),
    [
        pytest.param(
            '[{"name": "rdma-net", "ips": ["10.1.0.5/24"], "mac": "02:00:00:00:00:01"}]',
            '[{"name": "rdma-net"}]',
            True,
            id="addresses of the worker itself, which a second pod must not have",
        ),
        pytest.param('[{"name": "rdma-net"}]', '[{"name": "rdma-net"}]', False, id="a network alone"),
        pytest.param("serving/rdma-net@net1", "serving/rdma-net@net1", False, id="the short form"),
        pytest.param("[" * 100_000, "[" * 100_000, False, id="brackets without end"),
        pytest.param("[1, null]", "[1, null]", False, id="a list of something else"),
    ],
)
def test_networks_are_attached_without_the_workers_addresses(given: str, copied: str, told: bool) -> None:
    document = beta()
    key = "k8s.v1.cni.cncf.io/networks"
    document["spec"]["components"][0]["podTemplate"]["metadata"]["annotations"] = {key: given}
    found = worn(document)
    assert found.annotations == ((key, copied),)
    assert (f"not copied: addresses in annotation {key}, which are the worker's own" in found.told) is told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        pytest.param({"name": "NCCL_NET_AUTH", "value": "u:p"}, "for its name is a secret's", id="of a log-in"),
        pytest.param({"name": "UCX_PASSPHRASE", "value": "x"}, "for its name is a secret's", id="of a passphrase"),
        pytest.param({"name": "UCX_TLS", "value": "x" * 4097}, "for its value is too long", id="of a long value"),
        pytest.param(
            {"name": "UCX_TLS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            "for its value is not written in the spec",
            id="of a Secret",
        ),
    ],
)
def test_a_variable_that_is_not_copied_says_why(entry: dict[str, Any], told: str) -> None:
    found = worn(beta(containers=[{"name": "main", "command": ["python3", "-m", "dynamo.vllm"], "env": [entry]}]))
    assert found.environment == ()
    assert f"not copied: env {entry['name']}, {told}" in found.told


def test_what_comes_from_a_secret_as_a_whole_is_not_copied() -> None:
    whole = {"name": "main", "command": ["python3"], "envFrom": [{"secretRef": {"name": "ucx"}, "prefix": "UCX_"}]}
    assert worn(beta(containers=[whole])).environment == ()


def test_the_partition_of_the_fabric_is_no_secret() -> None:
    entry = {"name": "NCCL_IB_PKEY", "value": "0x8001"}
    found = worn(beta(containers=[{"name": "main", "command": ["python3"], "env": [entry]}]))
    assert found.environment == (("NCCL_IB_PKEY", "0x8001"),)


def test_a_worker_of_another_role_lends_nothing() -> None:
    assert worn(beta(), Role.DECODE) == Shoes()


def test_a_probe_is_never_root() -> None:
    document = beta(containers=[{"name": "main", "command": ["python3"], "securityContext": {"runAsUser": 0}}])
    found = worn(document)
    assert found.user is None
    assert "not copied: user 0, for a probe never runs as root" in found.told


def test_the_settings_decide_on_capabilities_and_the_hosts_network() -> None:
    found = worn(beta()).allowed(("IPC_LOCK",), host_network=False)
    assert (found.capabilities, found.host_network) == (("IPC_LOCK",), False)
    assert "not copied: capability SYS_ADMIN, for the operator's settings do not allow it" in found.told
    assert (found.off_host_network, worn(beta()).allowed((), host_network=True).off_host_network) == (True, False)
    assert "not copied: host network, for the operator's settings do not allow it" in found.told


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"containers": "main", "securityContext": 3}, id="of other types"),
        pytest.param({"containers": [{"name": "main", "env": "UCX_TLS=rc"}]}, id="variables that are no list"),
        pytest.param({"containers": None, "hostNetwork": "yes"}, id="nothing at all"),
    ],
)
def test_a_template_of_any_shape_is_read(pod: dict[str, Any]) -> None:
    assert not worn(beta(**pod)).host_network or pod.get("hostNetwork") is None
