"""A routing A/B in a namespace of a real API server: its Job made once, its log kept as evidence, nothing left behind.

The API server, Job controller and admission are real. The pods' status and the log are played, for there is no kubelet:
the log is what the load generator's own encoder writes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kubernetes

from kvgate.api.words import Capability
from kvgate.core.ab.experiment import Experiment
from kvgate.core.ab.power import Efficiency, NoPower
from kvgate.core.decide import decide
from kvgate.core.judging import Case
from kvgate.core.planhash import plan_hash
from kvgate.core.runs import JobState
from kvgate.core.steps import CollectBenchmark, StartBenchmark
from kvgate.core.world import Pool
from kvgate.dynamo.published import Published
from kvgate.edge.cluster.benchmarks import stored_plan
from kvgate.edge.cluster.client import BENCHMARKS
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import MeasureError
from kvgate.edge.metrics import PrometheusReaders
from kvgate.edge.power import PowerReader, no_prometheus
from kvgate.edge.worker_config import WorkerConfig
from kvgate_bench import workload
from kvgate_bench.trace import read_trace
from kvgate_bench.wire import Asked, Ending, Plan, RunResult, Sent, encode_ending, encode_run
from tests.cluster.waiting import eventually
from tests.dynamo.workers import metadata_document
from tests.edge.cluster.test_reading_workers import run_worker, workers_kind
from tests.edge.cluster.yard import Yard, in_namespace, sample

pytestmark = [pytest.mark.api, pytest.mark.usefixtures("workers_kind")]
__all__ = ["workers_kind"]
RUNTIME = {"kv_event_publishing_enabled": True, "total_kv_blocks": 1 << 17}
ROUTING = {"routing": {"kvEvents": "Ignored", "benchmark": {"targetRef": {"name": "staging"}}}}
IDS = ("11", "12")


def ground(yard: Yard, config: str = "{}", power: PowerReader = no_prometheus) -> ClusterGround:
    """One whose workers serve this config.json: no process answers at their addresses."""

    def read(_: Published) -> WorkerConfig:
        return WorkerConfig(config, "w1")

    return ClusterGround(
        yard.client,
        lambda: yard.policy,
        yard.clock,
        PrometheusReaders(power=power),
        worker_config=read,
        namespaces=[yard.namespace],
    )


@pytest.fixture(autouse=True)
def played_config(yard: Yard) -> None:
    yard.ground = ground(yard)


def staging(yard: Yard, *, image: str = "") -> None:
    """A deployment like the target, with a frontend and two workers that run and publish."""
    document = in_namespace(sample("deployment.yaml"), yard.namespace)
    document["metadata"]["name"] = "staging"
    for part in document["spec"]["components"]:
        part["podTemplate"]["spec"].pop("nodeSelector", None)
        if image:
            part["podTemplate"]["spec"]["containers"][0]["image"] = image
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=document)
    of = {"deployment": "staging"}
    run_worker(yard, "front", yard.nodes[0], address="10.9.1.1", component="Frontend", kind="frontend", **of)
    for number, name in enumerate(("w1", "w2"), start=2):
        uid = run_worker(yard, name, yard.nodes[1], address=f"10.9.1.{number}", component="DecodeWorker", **of)
        card = metadata_document(
            name, uid=uid, namespace=yard.namespace, model="Qwen/Qwen3-0.6B", runtime_config=RUNTIME
        )
        yard.kubectl("apply", "-f", "-", document=card)
    _make_frontend_readable(yard)


def _make_frontend_readable(yard: Yard) -> None:
    """The pod as Dynamo's operator makes it: the frontend's own command, not one hidden in the image."""
    api = kubernetes.CoreV1Api(yard.access.api_client())
    pod: Any = api.read_namespaced_pod("front", yard.namespace)
    body = yard.get("pods", "front")
    assert pod.metadata.uid
    body["spec"]["containers"][0] |= {"command": ["python3", "-m", "dynamo.frontend"]}
    plain = {"apiVersion": "v1", "kind": "Pod", "spec": body["spec"]}
    metadata = {"name": "front", "namespace": yard.namespace, "labels": body["metadata"]["labels"]}
    yard.kubectl("delete", "pod", "front", "--grace-period=0", "--force")
    yard.kubectl("create", "-f", "-", document=plain | {"metadata": metadata})
    status = {key: body["status"][key] for key in ("phase", "podIP", "podIPs", "conditions")}
    api.patch_namespaced_pod_status("front", yard.namespace, {"status": status})


def turn(yard: Yard) -> tuple[object, ...]:
    """One turn as the ring makes it; its steps of the A/B."""
    pool, world = yard.observe()
    decision = decide(pool, world, yard.clock())
    if decision.status != pool.status:
        yard.ground.write_status(pool, decision.status)
    steps = tuple(step for step in decision.steps if "Benchmark" in type(step).__name__)
    for step in steps:
        yard.ground.carry_out(pool, world, step)
    return steps


def asked(yard: Yard, criteria: dict[str, Any] | None = None) -> None:
    """No node matches, so that no sweep is due before the A/B."""
    nowhere = {"matchLabels": {"role": "nowhere"}}
    yard.pool(criteria=criteria or ROUTING, fabric={"prefillNodes": nowhere, "decodeNodes": nowhere})


def told(plan: Plan) -> str:
    """What the load generator prints when KV routing finds twice as much in the cache."""
    lines: list[str] = []
    for block in range(plan.blocks):
        for arm, cached in (("RoundRobin", 480), ("KV", 896)):
            run = RunResult(
                block, arm, plan.requests_per_run, tuple(_sent(n, arm, cached) for n in range(plan.requests_per_run))
            )
            lines += encode_run(plan.run_id, run)
    alone = tuple(Asked(worker, 0.5, 0.1) for worker in IDS)
    return "\n".join([*lines, encode_ending(plan.run_id, Ending(IDS, IDS, 0, alone, "", 1.5))])


def _sent(number: int, arm: str, cached: int) -> Sent:
    found = 0 if number < 10 else cached
    return Sent(
        family=number % 10,
        arrival_seconds=number / 4,
        prompt_tokens=1000,
        repeated_tokens=0 if number < 10 else 960,
        first_token_seconds=0.5 - 0.4 * found / 1000,
        cached_tokens=found,
        overlap_tokens=found if arm == "KV" else None,
        worker=IDS[number % 2],
    )


def pod_of_job(yard: Yard) -> str:
    """The pod that the real Job controller made, once it is there."""

    def made() -> str:
        items = [p for p in yard.get("pods")["items"] if "kvgate.dev/run" in p["metadata"].get("labels", {})]
        return str(items[0]["metadata"]["name"]) if items else ""

    eventually(lambda: made() != "", 30)
    return made()


def end(yard: Yard, pod: str) -> None:
    """What a kubelet says of a pod whose load has ended; the real Job controller ends the Job by it."""
    ended = {"terminated": {"exitCode": 0}}
    plain = {"image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    status = {"phase": "Succeeded", "podIP": "10.9.2.1", "containerStatuses": [plain | {"name": "load"}]}
    kubernetes.CoreV1Api(yard.access.api_client()).patch_namespaced_pod_status(pod, yard.namespace, {"status": status})
    eventually(lambda: (job := yard.observe()[1].benchmark_job) is not None and job.state is JobState.ENDED, 30)


def started(yard: Yard) -> Plan:
    """The A/B meant and made, and its Job remembered."""
    staging(yard)
    asked(yard)
    assert _problem(yard) == ""
    [step] = turn(yard)
    assert isinstance(step, StartBenchmark)
    assert turn(yard) == ()
    found = stored_plan(yard.client, yard.observe()[0].owner, step.run_id)
    assert found is not None
    return found[0]


def test_it_is_made_kept_and_cleared_and_the_verdict_rests_on_it(yard: Yard) -> None:
    plan = started(yard)
    assert (plan.model, plan.workers, plan.live) == ("Qwen/Qwen3-0.6B", 2, ("http://10.9.1.1:8000",))
    fence = yard.observe()[0].status.benchmark
    assert fence is not None
    assert fence.job_uid

    pod = pod_of_job(yard)
    yard.client.prints[pod] = told(plan)
    end(yard, pod)
    [step] = turn(yard)
    assert isinstance(step, CollectBenchmark)
    turn(yard)
    pool, world = yard.observe()
    assert pool.status.benchmark is None
    assert yard.names("jobs") == []
    assert [entry.run_id for entry in world.benchmarks] == [plan.run_id]
    turn(yard)
    routing = yard.observe()[0].status.routing
    assert routing is not None
    assert (routing.improvement_percent, routing.benchmark) == ("54.0", f"qwen3-{plan.run_id}")
    index = yard.client.get(BENCHMARKS, yard.namespace, f"qwen3-{plan.run_id}")
    assert index["spec"]["liveRequestsPerSecond"] == "1.500"
    assert index["spec"]["ranOn"] == "staging"


@pytest.mark.parametrize(
    ("told_of_power", "kept"),
    [
        pytest.param((("KV", 2.5), ("RoundRobin", 1.25)), ("2.500", "1.250", None), id="it is there"),
        pytest.param(NoPower("DCGM is not scraped"), (None, None, "DCGM is not scraped"), id="it is not"),
    ],
)
def test_the_power_of_its_workers_is_asked_for_once_and_kept_with_it(
    yard: Yard, told_of_power: Efficiency | NoPower, kept: tuple[str | None, ...]
) -> None:
    asked_for: list[tuple[str, ...]] = []

    def power(_: Pool, __: Experiment, pods: tuple[str, ...]) -> Efficiency | NoPower:
        asked_for.append(pods)
        return told_of_power

    yard.ground = ground(yard, power=power)
    plan = started(yard)
    pod = pod_of_job(yard)
    yard.client.prints[pod] = told(plan)
    end(yard, pod)
    for _ in range(3):
        turn(yard)
    assert asked_for == [("w1", "w2")]
    routing = yard.observe()[0].status.routing
    assert routing is not None
    index = yard.client.get(BENCHMARKS, yard.namespace, f"qwen3-{plan.run_id}")["spec"]
    arms = {arm["arm"]: arm.get("tokensPerJoule") for arm in index["arms"]}
    assert (arms["KV"], arms["RoundRobin"], index.get("noPower")) == kept
    assert (routing.tokens_per_joule, routing.tokens_per_joule_round_robin) == kept[:2]


@pytest.mark.parametrize(
    ("config", "span"),
    [
        pytest.param('{"vocab_size": 2560}', (160, 2399), id="a small one is kept to"),
        pytest.param("{}", (1000, 31_999), id="one that is not stated is taken to be large"),
    ],
)
def test_its_prompts_are_of_the_workers_vocabulary(yard: Yard, config: str, span: tuple[int, int]) -> None:
    yard.ground = ground(yard, config)
    plan = started(yard)
    assert (plan.first_token, plan.last_token) == span


def trace_lines(count: int, shared: int = 7) -> str:
    """Mooncake's format: prompts of two blocks, the first of which is that of every request."""
    lines = (
        {"timestamp": 250 * n, "input_length": 1000, "output_length": 8, "hash_ids": [shared, 1000 + n]}
        for n in range(count)
    )
    return "\n".join(json.dumps(line) for line in lines) + "\n"


def config_map(yard: Yard, content: str, *, packed: bool) -> bytes:
    """The pool's trace, plain or as gzip; what the ConfigMap then holds."""
    held = gzip.compress(content.encode(), mtime=0) if packed else content.encode()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trace"}}
    kept = {"binaryData": {"t": base64.b64encode(held).decode()}} if packed else {"data": {"t": content}}
    yard.kubectl("apply", "-f", "-", document=body | kept)
    return held


TRACE_REF = {"configMapKeyRef": {"name": "trace", "key": "t"}}
TRACED = {"routing": {"kvEvents": "Ignored", "benchmark": {"targetRef": {"name": "staging"}, "trace": TRACE_REF}}}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip, as binaryData"])
def test_a_trace_is_mounted_as_its_configmap_holds_it_and_another_makes_the_ab_stale(
    yard: Yard, packed: bool, tmp_path: Path
) -> None:
    staging(yard)
    asked(yard, TRACED)
    assert "ConfigMap" in _problem(yard)
    assert "key t, does not exist" in _problem(yard)
    held = config_map(yard, trace_lines(1000), packed=packed)
    [step] = turn(yard)
    turn(yard)
    assert isinstance(step, StartBenchmark)
    found = stored_plan(yard.client, yard.observe()[0].owner, step.run_id)
    assert found is not None
    plan = found[0]
    assert (plan.workload, plan.trace_digest) == ("Trace", hashlib.sha256(held).hexdigest())

    pod = pod_of_job(yard)
    mounted = mount(yard, pod, tmp_path)
    assert (mounted / "etc/kvgate/trace/trace").read_bytes() == held
    requests = workload.requests_of(plan, read_trace(held, 1000))
    assert [due.repeated_tokens > 0 for due in requests[0][:3]] == [False, True, True]

    yard.client.prints[pod] = told(plan)
    end(yard, pod)
    for _ in range(3):
        turn(yard)
    pool, world = yard.observe()
    [kept] = world.benchmarks
    assert kept.subject.workload == plan.trace_digest
    assert pool.status.routing is not None
    before = plan_of_routing(yard)

    config_map(yard, trace_lines(1000, shared=8), packed=packed)
    turn(yard)
    assert "WorkloadChanged" in reasons(yard)
    assert plan_of_routing(yard) != before
    yard.kubectl("delete", "configmap", "trace")
    turn(yard)
    assert "TraceNotFound" in reasons(yard)


def reasons(yard: Yard) -> set[str]:
    """Why routing is accepted or not, as the conditions say."""
    pool, _ = yard.observe()
    return {condition.reason for condition in pool.status.conditions if condition.type == "RoutingAccepted"}


def plan_of_routing(yard: Yard) -> str:
    """The plan hash of this moment, whatever the verdict."""
    pool, world = yard.observe()
    return plan_hash(Case(pool, world, None, yard.clock()), Capability.ROUTING, 0)


def mount(yard: Yard, pod: str, into: Path) -> Path:
    """Plays the kubelet's ConfigMap volumes: what the load's container finds below its root."""
    spec = yard.get("pods", pod)["spec"]
    volumes = {volume["name"]: volume["configMap"] for volume in spec["volumes"] if "configMap" in volume}
    for mounted in spec["containers"][0]["volumeMounts"]:
        source = volumes.get(mounted["name"])
        if source is None:
            continue
        body = yard.get("configmaps", source["name"])
        files = {key: text.encode() for key, text in body.get("data", {}).items()}
        files |= {key: base64.b64decode(text) for key, text in body.get("binaryData", {}).items()}
        wanted = source.get("items") or [{"key": key, "path": key} for key in files]
        folder = into / mounted["mountPath"].lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for item in wanted:
            (folder / item["path"]).write_bytes(files[item["key"]])
    return into


def test_nothing_of_a_deployment_selects_its_pod(yard: Yard) -> None:
    """Also where one deployment's name begins another's: the shadows serve the exact namespace of staging's workers."""
    started(yard)
    pod = yard.get("pods", pod_of_job(yard))
    held = pod["metadata"]["labels"]
    assert not [key for key in held if "nvidia.com" in key or key == "app"]
    for shadow in pod["spec"]["initContainers"]:
        assert shadow["args"][shadow["args"].index("--namespace") + 1] == "serving-qwen3-5f2d"
        assert "--namespace-prefix" not in shadow["args"]


def test_the_deployment_changing_meanwhile_voids_it(yard: Yard) -> None:
    plan = started(yard)
    pod = pod_of_job(yard)
    yard.client.prints[pod] = told(plan)
    yard.kubectl("patch", "dgd", "staging", "--type=merge", "-p", '{"spec":{"priorityClassName":"high"}}')
    end(yard, pod)
    turn(yard)
    [kept] = yard.observe()[1].benchmarks
    assert kept.experiment.after.generation == kept.experiment.before.generation + 1


def test_a_log_that_is_cut_short_is_kept_as_an_aborted_one(yard: Yard) -> None:
    plan = started(yard)
    pod = pod_of_job(yard)
    yard.client.prints[pod] = told(plan)[:5000]
    end(yard, pod)
    turn(yard)
    [kept] = yard.observe()[1].benchmarks
    assert kept.experiment.aborted == "the load generator did not tell its end"


def test_a_deleted_job_leaves_no_evidence_and_is_not_begun_anew_at_once(yard: Yard) -> None:
    started(yard)
    yard.kubectl("delete", "jobs", "--all", "--cascade=background")
    eventually(lambda: yard.observe()[1].benchmark_job is None, 30)
    assert turn(yard) == ()
    pool, world = yard.observe()
    assert (pool.status.benchmark, world.benchmarks) == (None, ())
    assert turn(yard) == ()


def test_an_operator_that_died_between_the_status_and_the_job_makes_it_under_the_same_name(yard: Yard) -> None:
    staging(yard)
    asked(yard)
    pool, world = yard.observe()
    decision = decide(pool, world, yard.clock())
    yard.ground.write_status(pool, decision.status)
    yard.ground = ground(yard)
    [step] = turn(yard)
    assert step == StartBenchmark(decision.status.benchmark.run_id if decision.status.benchmark else "")
    assert len(yard.names("jobs")) == 1


def _problem(yard: Yard) -> str:
    ground = yard.observe()[1].benchmark_ground
    return ground.problem if ground else "none is asked for"


def test_what_keeps_it_from_beginning_names_who_must_act(yard: Yard) -> None:
    assert _problem(yard) == "none is asked for"
    asked(yard)
    assert "there is no DynamoGraphDeployment staging" in _problem(yard)
    asked(yard, {"routing": {"benchmark": {"targetRef": {"name": "qwen3"}}}})
    assert "set allowLive, or name a staging deployment" in _problem(yard)
    staging(yard, image="vllm-runtime:2.0.0")
    asked(yard)
    assert "staging differs from qwen3 in image of DecodeWorker" in _problem(yard)
    yard.policy = ProbePolicy("")
    assert "its administrator must set probe.image" in _problem(yard)


def test_a_foreign_job_of_its_name_is_not_touched(yard: Yard) -> None:
    plan = started(yard)
    name = yard.names("jobs")[0]
    body = yard.get("jobs", name)
    yard.kubectl("delete", "job", name, "--cascade=background")
    eventually(lambda: yard.names("jobs") == [], 30)
    body["metadata"] = {"name": name, "namespace": yard.namespace}
    body["spec"].pop("selector")
    body["spec"]["template"]["metadata"].pop("labels")
    foreign = {"apiVersion": "batch/v1", "kind": "Job", "metadata": body["metadata"], "spec": body["spec"]}
    yard.kubectl("create", "-f", "-", document=foreign)
    pool, world = yard.observe()
    assert world.benchmark_job is None
    with pytest.raises(MeasureError, match="is not of this pool's A/B and has its name: delete it"):
        yard.ground.carry_out(pool, world, StartBenchmark(plan.run_id))
    assert yard.names("jobs") == [name]
