"""Which deployments keep KV cache outside their workers' memory, by what their specs say."""

from __future__ import annotations

import re
from typing import cast

import pytest

from kvgate.api.words import Capability
from kvgate.core import target as core
from kvgate.dynamo.storage import storage_state, stores
from kvgate.dynamo.view import view
from kvgate.dynamo.words import SwitchState
from tests.dynamo.support import ROOT, VLLM, Node, beta, component, main, sample, target_of

OFF, ON, UNKNOWN = SwitchState.OFF, SwitchState.ON, SwitchState.UNKNOWN


def env(name: str, value: str = "1") -> Node:
    return main(command=VLLM, env=[{"name": name, "value": value}])


def args(*words: str) -> Node:
    return main(command=VLLM, args=["--model", "Qwen/Qwen3-0.6B", *words])


def worker(container: Node) -> Node:
    return beta(component("Frontend", "frontend"), component("Worker", "worker", container), backendFramework="vllm")


NIXL, SEVERAL = '{"kv_connector":"NixlConnector"}', '{"connectors":[{"kv_connector":"LMCacheConnectorV1"}]}'
MULTI = f'{{"kv_connector":"MultiConnector","kv_connector_extra_config":{SEVERAL}}}'
SECRET = {"name": "LMCACHE_REMOTE_URL", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
CASES = {
    "nothing said": (main(command=VLLM), OFF, ""),
    "NIXL alone, which moves and stores nothing": (args("--kv-transfer-config", NIXL), OFF, ""),
    "KVBM's CPU tier, which stays in the pod": (env("DYN_KVBM_CPU_CACHE_GB", "20"), OFF, ""),
    "KVBM's disk": (env("DYN_KVBM_DISK_CACHE_GB", "200"), ON, "KVBM's disk tier (DYN_KVBM_DISK_CACHE_GB)"),
    "KVBM's disk of no size": (env("DYN_KVBM_DISK_CACHE_GB", "0"), OFF, ""),
    "KVBM's object store": (env("DYN_KVBM_OBJECT_BUCKET", "kv"), ON, "KVBM's object store (DYN_KVBM_OBJECT_BUCKET)"),
    "KVBM's object store by its switch": (env("DYN_KVBM_USE_OBJECT_OFFLOAD"), ON, "(DYN_KVBM_USE_OBJECT_OFFLOAD)"),
    "KVBM's remote storage": (
        env("DYN_KVBM_REMOTE_STORAGE_TYPE", "disk"), ON, "KVBM's remote storage (DYN_KVBM_REMOTE_STORAGE_TYPE)"
    ),
    "LMCache's remote store": (env("LMCACHE_REMOTE_URL", "redis://r:6379"), ON, "remote store (LMCACHE_REMOTE_URL)"),
    "LMCache's disk": (env("LMCACHE_LOCAL_DISK", "file:///mnt/kv"), ON, "LMCache's disk (LMCACHE_LOCAL_DISK)"),
    "LMCache in memory": (env("LMCACHE_LOCAL_CPU", "true"), OFF, ""),
    "Mooncake's store by variable": (env("MOONCAKE_MASTER", "m:50051"), ON, "Mooncake's store (MOONCAKE_MASTER)"),
    "LMCache's connector": (
        args("--kv-transfer-config", '{"kv_connector":"LMCacheConnectorV1"}'), ON, "LMCache (LMCacheConnectorV1)"
    ),
    "LMCache's connector among several": (args("--kv-transfer-config", MULTI), ON, "LMCache (LMCacheConnectorV1)"),
    "LMCache by Dynamo's own flag": (args("--connector", "lmcache"), ON, "LMCache (--connector)"),
    "LMCache as vLLM's backend": (args("--kv-offloading-backend", "lmcache"), ON, "LMCache (--kv-offloading-backend)"),
    "vLLM's own backend, in memory": (args("--kv-offloading-backend", "native"), OFF, ""),
    "LMCache by SGLang's flag": (args("--enable-lmcache"), ON, "LMCache (--enable-lmcache)"),
    "FlexKV's connector": (
        args("--kv-transfer-config", '{"kv_connector":"FlexKVConnectorV1"}'), ON, "FlexKV (FlexKVConnectorV1)"
    ),
    "a directory that is shared": (
        args("--kv-transfer-config", '{"kv_connector":"SharedStorageConnector"}'), ON, "(SharedStorageConnector)"
    ),
    "Mooncake's connector for a store": (
        args("--kv-transfer-config", '{"kv_connector":"MooncakeStoreConnector"}'), ON, "(MooncakeStoreConnector)"
    ),
    "Mooncake's connector for transfers": (
        args("--kv-transfer-config", '{"kv_connector":"MooncakeConnector"}'), OFF, ""
    ),
    "HiCache's storage": (args("--hicache-storage-backend", "mooncake"), ON, "(--hicache-storage-backend)"),
    "HiCache in memory": (args("--enable-hierarchical-cache"), OFF, ""),
    "a value from a Secret": (main(command=VLLM, env=[SECRET]), ON, "remote store (LMCACHE_REMOTE_URL)"),
    "arguments behind a shell": (main(command=["bash", "-c", "exec $SERVER"]), UNKNOWN, ""),
}  # fmt: skip


@pytest.mark.parametrize(("container", "state", "named"), CASES.values(), ids=CASES.keys())
def test_a_store_is_recognised_and_named(container: Node, state: SwitchState, named: str) -> None:
    target = target_of(worker(container))
    assert storage_state(target) is state
    said = [str(store) for store in stores(target)]
    assert len(said) == (state is ON)
    assert all("Worker" in line and line.endswith(named) for line in said)


def test_the_view_has_it_with_no_step_of_ours_and_bound_by_no_approval() -> None:
    seen = view(target_of(worker(env("LMCACHE_REMOTE_URL", "redis://r:6379"))))
    assert isinstance(seen, core.TargetView)
    assert seen.toggles[Capability.KV_STORAGE] == core.Toggle(core.Switch.ON)
    assert len(seen.stores) == 1
    plain = view(target_of(sample()))
    assert isinstance(plain, core.TargetView)
    assert (plain.toggles[Capability.KV_STORAGE].switch, plain.stores) == (core.Switch.OFF, ())


@pytest.mark.parametrize("name", [name for name, (_, state, _) in CASES.items() if state is ON])
def test_the_admission_policy_denies_what_is_recognised(name: str) -> None:
    """By its own expressions, which stand in the manifests."""
    policy = (ROOT / "manifests" / "admission" / "transitions-v1beta1.yaml").read_text(encoding="utf-8")
    found = re.findall(r"matches\('([^']*(?:LMCache|LMCACHE)[^']*)'\)", policy)
    said, variables = (pattern.replace("\\\\", "\\") for pattern in found)
    container = cast("dict[str, list[str]]", CASES[name][0])
    entries = cast("list[dict[str, str]]", container.get("env", []))
    words = " ".join((*container["command"], *container.get("args", [])))
    assert re.search(said, words) or any(re.search(variables, entry["name"]) for entry in entries)
