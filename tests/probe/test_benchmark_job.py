"""The manifests of an A/B, and its plan: what the pod may, that nothing selects it, and how much is sent."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from kvgate.api.pool import Benchmark, Prompt
from kvgate.api.wire import KeyRef
from kvgate.core.digests import digest
from kvgate.dynamo.shadow import Shadow, shadows
from kvgate.probe.benchmark_job import (
    CONTAINER,
    PLAN_DIGEST,
    PLAN_KEY,
    Shadows,
    benchmark_job,
    benchmark_job_name,
    deadline_seconds,
    plan_config_map,
)
from kvgate.probe.benchmark_plan import Served, plan_ab, requests_per_run
from kvgate.probe.jobs import Owner
from kvgate_bench import workload
from kvgate_bench.wire import BUILT_IN, TRACE, Plan, decode_plan, encode_plan
from tests.dynamo.test_shadow import NAMESPACE, POD, PORTS

OWNER = Owner("qwen3", "serving", "7b1c7c3e-6d1c-4a7e-9b43-0f5a6f1f2a10")
KEY = KeyRef(name="qwen3-trace", key="trace.jsonl.gz")
SERVED = Served("Qwen/Qwen3-0.6B", workers=4, block_tokens=16, cache_blocks=20_000)
PROMPTS = (Prompt.model_validate({"tokens": 1500}), Prompt.model_validate({"tokens": 3000}))


def asked(**changes: object) -> Benchmark:
    return Benchmark.model_validate({"targetRef": {"name": "staging"}, **changes})


def plan(**changes: object) -> Plan:
    return plan_ab("0123456789", OWNER.uid, asked(**changes), PROMPTS, SERVED)


def taken() -> Shadows:
    found = shadows(POD, NAMESPACE, PORTS)
    assert isinstance(found, Shadow)
    return Shadows(
        found.service_account, found.containers, found.volumes, found.pull_secrets, found.user, found.placement
    )


def job(trace: KeyRef | None = None) -> dict[str, Any]:
    return dict(benchmark_job(OWNER, plan(), "registry.example/kvgate-probe:1", taken(), trace))


def pod(trace: KeyRef | None = None) -> dict[str, Any]:
    found: dict[str, Any] = job(trace)["spec"]["template"]
    return found


@pytest.mark.parametrize(
    "manifest", [job(), job(KEY), dict(plan_config_map(OWNER, plan()))], ids=["plain", "traced", "plan"]
)
def test_kubernetes_takes_it(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_the_pod_carries_no_label_that_anything_of_the_deployment_selects() -> None:
    labels = pod()["metadata"]["labels"]
    assert set(labels) == {"app.kubernetes.io/managed-by", "kvgate.dev/pool-uid", "kvgate.dev/run"}
    assert "annotations" not in pod()["metadata"]
    assert not any(
        "ports" in container for container in [*pod()["spec"]["initContainers"], *pod()["spec"]["containers"]]
    )


def test_every_container_meets_pod_security_restricted() -> None:
    spec = pod(KEY)["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in [*spec["initContainers"], *spec["containers"]]:
        held = container["securityContext"]
        assert (held["allowPrivilegeEscalation"], held["capabilities"]) == (False, {"drop": ["ALL"]})
        assert held["runAsUser"] > 0
    assert not any("hostPath" in volume for volume in spec["volumes"])


def test_the_shadows_are_sidecars_so_the_job_ends_with_the_load() -> None:
    spec = pod()["spec"]
    assert [c["name"] for c in spec["initContainers"]] == ["shadow-round-robin", "shadow-kv"]
    assert {c["restartPolicy"] for c in spec["initContainers"]} == {"Always"}
    assert [c["name"] for c in spec["containers"]] == [CONTAINER]
    assert spec["nodeSelector"] == {"pool": "serving"}
    assert (spec["restartPolicy"], spec["serviceAccountName"]) == ("Never", "qwen3-k8s-service-discovery")


def test_the_load_reads_the_plan_and_the_sites_own_trace() -> None:
    plain, traced = pod()["spec"], pod(KEY)["spec"]
    assert "--trace" not in plain["containers"][0]["args"]
    assert traced["containers"][0]["args"][-2:] == ["--trace", "/etc/kvgate/trace/trace"]
    volume = next(volume for volume in traced["volumes"] if volume["name"] == "kvgate-trace")
    assert volume["configMap"] == {"name": "qwen3-trace", "items": [{"key": "trace.jsonl.gz", "path": "trace"}]}


def test_the_job_vouches_for_its_plan_and_has_the_same_name_at_each_try() -> None:
    text = plan_config_map(OWNER, plan())["data"][PLAN_KEY]  # type: ignore[index]
    assert decode_plan(text) == plan()
    assert job()["metadata"]["annotations"] == {PLAN_DIGEST: digest(text)}
    assert job()["metadata"]["name"] == benchmark_job_name(OWNER, plan().run_id)
    assert len(job()["metadata"]["name"]) <= 63


def test_the_deadline_covers_every_run() -> None:
    runs = 2 * 8 * 144 / 4
    assert runs * 1.5 < deadline_seconds(plan()) < 2 * 3600
    assert job()["spec"]["activeDeadlineSeconds"] == deadline_seconds(plan())


@pytest.mark.parametrize(
    ("blocks", "workers", "expected"),
    [
        pytest.param(8, 2, 125, id="100 counted of 125 in each of eight"),
        pytest.param(2, 2, 500, id="400 of 500 in each of two"),
        pytest.param(64, 2, 24, id="three rounds of families, where errors need less"),
        pytest.param(8, 16, 192, id="many workers need more"),
        pytest.param(8, 10_000, 20_000, id="and no more than a run may have"),
    ],
)
def test_a_run_has_enough_to_count_and_to_reuse(blocks: int, workers: int, expected: int) -> None:
    offered = requests_per_run(blocks, workers)
    assert offered == expected
    assert (offered - -(-offered // 5)) * blocks >= 800


@pytest.mark.parametrize("cache", [2_000, 5_000, 20_000, 1_000_000])
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_the_built_in_workload_fits_a_fifth_of_a_workers_cache(cache: int, workers: int) -> None:
    served = Served("m", workers=workers, block_tokens=16, cache_blocks=cache)
    try:
        made = plan_ab("r", OWNER.uid, asked(), PROMPTS, served)
    except ValueError:
        assert cache <= 5_000
        return
    workload.requests_of(made, None)
    assert decode_plan(encode_plan(made)) == made
    if cache == 1_000_000:
        assert set(made.prompts) == {3000}


def test_shares_of_prompt_sizes_are_kept() -> None:
    prompts = tuple(Prompt.model_validate({"tokens": t, "share": s}) for t, s in ((1500, "75%"), (3000, "25%")))
    served = Served("m", workers=2, block_tokens=16, cache_blocks=1_000_000)
    made = plan_ab("r", OWNER.uid, asked(), prompts, served)
    assert made.prompts.count(1500) == 3 * made.prompts.count(3000)


def test_what_the_pool_asks_stands_in_the_plan() -> None:
    traced = plan(trace={"configMapKeyRef": {"name": "t", "key": "k"}}, blocks=16, requestsPerSecond=9)
    assert (traced.workload, traced.blocks, traced.requests_per_second) == (TRACE, 16, 9.0)
    assert (plan().workload, plan().workers, plan().cache_blocks) == (BUILT_IN, 4, 20_000)
    assert plan(maxLiveUtilization="30%").most_live_utilization == 0.3
    assert plan().seed == plan().seed != plan_ab("other", OWNER.uid, asked(), PROMPTS, SERVED).seed


@pytest.mark.parametrize(("size", "span"), [(None, (1000, 31_999)), (151_936, (1000, 31_999)), (2_560, (160, 2399))])
def test_token_ids_are_of_the_tokenizer(size: int | None, span: tuple[int, int]) -> None:
    served = Served("m", workers=2, block_tokens=16, cache_blocks=20_000, vocabulary_size=size)
    made = plan_ab("r", OWNER.uid, asked(), PROMPTS, served)
    assert (made.first_token, made.last_token) == span
