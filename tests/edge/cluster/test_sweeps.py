"""A sweep before a real API server, Job controller and scheduler; the kubelet's part is played, as the yard says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import yaml

from kvgate.api.status import SweepStatus
from kvgate.core.evidence import FailureKind
from kvgate.core.steps import Introduce, Measure
from kvgate.core.world import WalkerState
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.errors import MeasureError, PoolGoneError, WriteConflictError
from kvgate.probe.jobs import job_name, schedule_name
from tests.cluster.waiting import eventually
from tests.edge.cluster.sweeping import (
    RUN,
    collect,
    fence,
    owner_of,
    schedule_of,
    wait_for_pods,
    walked,
    walkers,
)
from tests.edge.cluster.yard import Dying, MortalClient, Yard, configuration

pytestmark = pytest.mark.api


# --- starting -----------------------------------------------------------------------------------------------------


def test_a_sweep_is_a_schedule_and_one_job_per_node_in_a_restricted_namespace(yard: Yard) -> None:
    pool = yard.measure(RUN)
    wait_for_pods(yard)

    jobs = yard.get("jobs")["items"]
    assert sorted(job["metadata"]["name"] for job in jobs) == sorted(job_name(pool.owner, RUN, n) for n in yard.nodes)
    assert {owner_of(job) for job in jobs} == {pool.uid}
    schedule = schedule_of(yard)
    first, *others = yard.nodes
    assert {(test.pair.source, test.pair.destination) for test in schedule.tests()} == {(first, o) for o in others}
    assert (schedule.streams, schedule.duration_seconds) == (4, 5)
    eventually(lambda: {p["spec"].get("nodeName") for p in yard.pods_of_jobs()} == set(yard.nodes), 20)


def test_a_sweep_that_is_started_twice_is_one_sweep(yard: Yard) -> None:
    yard.measure(RUN)
    before = {job["metadata"]["uid"] for job in yard.get("jobs")["items"]}
    yard.start(RUN)

    assert {job["metadata"]["uid"] for job in yard.get("jobs")["items"]} == before


@pytest.mark.parametrize("lives", [1, 2, 3])
def test_an_operator_that_died_while_it_made_the_jobs_makes_the_others(yard: Yard, lives: int) -> None:
    mortal = ClusterGround(
        MortalClient(configuration(yard.access), lives), lambda: yard.policy, yard.clock, namespaces=[yard.namespace]
    )
    fence(yard, RUN)
    pool, world = yard.observe()
    with pytest.raises(Dying):
        mortal.carry_out(pool, world, Measure(RUN, yard.paths(), "a test"))
    assert len(yard.observe()[1].sweep_jobs) == lives - 1
    yard.start(RUN)

    assert {job.node for job in yard.observe()[1].sweep_jobs} == set(yard.nodes)
    assert len(yard.names("jobs")) == 3


def test_a_second_attempt_keeps_the_schedule_of_the_first_when_the_nodes_changed_meanwhile(yard: Yard) -> None:
    yard.measure(RUN)
    pool, world = yard.observe()
    fewer = yard.paths()[:1]
    yard.ground.carry_out(pool, world, Measure(RUN, fewer, "a test"))

    assert len(schedule_of(yard).tests()) == 2
    assert len(yard.names("jobs")) == 3


def test_a_schedule_that_lacks_a_node_is_cleared_and_made_anew(yard: Yard) -> None:
    fence(yard, RUN)
    pool, world = yard.observe()
    yard.ground.carry_out(pool, world, Measure(RUN, yard.paths()[:1], "a test"))
    assert len(yard.names("jobs")) == 2

    yard.start(RUN)
    assert yard.observe()[1].sweep is None
    yard.start(RUN)
    assert {job.node for job in yard.observe()[1].sweep_jobs} == set(yard.nodes)


@pytest.mark.parametrize("kind", ["job", "configmap"])
def test_a_name_that_somebody_else_took_is_no_sweep_of_ours(yard: Yard, kind: str) -> None:
    owner = yard.observe()[0].owner
    if kind == "job":
        name = job_name(owner, RUN, yard.nodes[0])
        yard.kubectl("create", "job", name, "--image=evil:1", "--dry-run=none")
    else:
        name = schedule_name(owner, RUN)
        yard.kubectl("create", "configmap", name, "--from-literal=schedule.json={}")

    with pytest.raises(MeasureError, match=f"{name} is not of this pool's sweep and has its name: delete it"):
        yard.measure(RUN)
    world = yard.observe()[1]
    assert world.sweep_jobs == ()
    assert name in world.sweep_problem
    yard.kubectl("delete", kind, name, "--cascade=orphan")
    yard.start(RUN)
    assert yard.observe()[1].sweep_problem == ""


def test_a_job_of_ours_with_another_schedule_is_no_job_of_this_sweep(yard: Yard) -> None:
    pool = yard.measure(RUN)
    name = job_name(pool.owner, RUN, yard.nodes[0])
    yard.kubectl("annotate", "job", name, "kvgate.dev/schedule-digest=other", "--overwrite")

    with pytest.raises(MeasureError, match=name):
        yard.start(RUN)


def test_without_an_image_no_sweep_is_started(yard: Yard) -> None:
    yard.policy = type(yard.policy)()

    with pytest.raises(MeasureError, match=r"probe\.image"):
        yard.start(RUN)
    assert yard.names("jobs") == []


def test_probes_tolerate_what_the_targets_own_pods_tolerate(yard: Yard) -> None:
    manifest = yard.manifest()
    tolerated = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    for part in manifest["spec"]["components"]:
        part["podTemplate"]["spec"]["tolerations"] = [tolerated]
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=manifest)
    yard.measure(RUN)

    (job, *_) = yard.get("jobs")["items"]
    assert job["spec"]["template"]["spec"]["tolerations"] == [tolerated]


def test_a_worker_on_the_host_network_leaves_its_paths_unmeasured_where_the_settings_keep_probes_off_it(
    yard: Yard,
) -> None:
    manifest = yard.manifest()
    for part in manifest["spec"]["components"]:
        part["podTemplate"]["spec"]["hostNetwork"] = part.get("type") != "frontend"
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=manifest)
    walked(yard)
    collect(yard)

    (evidence,) = yard.observe()[1].evidence
    assert {sample.failure.kind for sample in evidence.samples if sample.failure} == {FailureKind.OTHER_NETWORK}
    assert all(sample.bytes_per_second is None for sample in evidence.samples)
    said = evidence.samples[0].failure
    assert said is not None
    for part in (yard.nodes[0], "host network", "probe.allowHostNetwork is false", "administrator"):
        assert part in said.message


def test_walkers_hear_of_each_other_by_the_addresses_of_the_network_that_their_worker_attaches(yard: Yard) -> None:
    manifest = yard.manifest()
    for part in manifest["spec"]["components"]:
        part["podTemplate"]["metadata"] = {"annotations": {"k8s.v1.cni.cncf.io/networks": "fast"}}
    yard.kubectl("apply", "--server-side", "--field-manager=team", "-f", "-", document=manifest)
    yard.measure(RUN)
    wait_for_pods(yard)
    yard.record()
    pods = yard.run_pods()
    for number, pod in enumerate(pods.values(), start=1):
        told = [{"name": "fast", "interface": "net1", "ips": [f"192.168.7.{number}"]}]
        note = f"k8s.v1.cni.cncf.io/network-status={json.dumps(told)}"
        yard.kubectl("annotate", "pod", pod, note)
    pool, world = yard.observe()
    yard.ground.carry_out(pool, world, Introduce(RUN))

    told = yard.get("pods", pods[yard.nodes[0]])["metadata"]["annotations"]["kvgate.dev/peers"]
    assert set(json.loads(told).values()) <= {f"192.168.7.{number}" for number in range(1, 4)}


# --- looking ------------------------------------------------------------------------------------------------------


def test_a_sweep_that_was_meant_and_never_started_is_none(yard: Yard) -> None:
    fence(yard, RUN)

    _, world = yard.observe()
    assert (world.sweep, world.sweep_jobs) == (None, ())


def test_walkers_come_run_and_end(yard: Yard) -> None:
    yard.measure(RUN)
    assert set(walkers(yard).values()) == {WalkerState.PENDING}
    wait_for_pods(yard)
    yard.run_pods()
    assert set(walkers(yard).values()) == {WalkerState.RUNNING}
    yard.run_pods("Succeeded")
    assert set(walkers(yard).values()) == {WalkerState.ENDED}


def test_a_job_that_is_deleted_under_our_feet_is_gone_and_not_made_again_by_looking(yard: Yard) -> None:
    yard.measure(RUN)
    pool = yard.record()
    yard.kubectl("delete", "job", job_name(pool.owner, RUN, yard.nodes[1]))

    assert walkers(yard)[yard.nodes[1]] is WalkerState.GONE
    assert len(yard.names("jobs")) == 2


def test_a_node_that_is_cordoned_after_the_jobs_were_made_is_named(yard: Yard) -> None:
    yard.access.kubectl("cordon", yard.nodes[2], check=True)
    yard.measure(RUN)
    wait_for_pods(yard)

    def trouble() -> str:
        sweep = yard.observe()[1].sweep
        assert sweep is not None
        return next(walker.trouble for walker in sweep.walkers if walker.node == yard.nodes[2])

    eventually(lambda: trouble().startswith(f"Unschedulable: node {yard.nodes[2]} takes no probe pod"), 20)


def test_a_quota_without_room_is_named(yard: Yard) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": yard.namespace},
        "spec": {"hard": {"pods": "0"}},
    }
    yard.kubectl("apply", "-f", "-", document=quota)
    eventually(lambda: "used" in yard.get("resourcequotas", "small").get("status", {}), 20)
    yard.measure(RUN)

    def troubles() -> set[str]:
        sweep = yard.observe()[1].sweep
        assert sweep is not None
        return {walker.trouble.partition(":")[0] for walker in sweep.walkers}

    eventually(lambda: troubles() == {"QuotaExceeded"}, 20)


# --- introducing --------------------------------------------------------------------------------------------------


def test_every_running_walker_is_told_of_its_partners_and_told_again_when_there_are_more(yard: Yard) -> None:
    yard.measure(RUN)
    wait_for_pods(yard)
    yard.record()
    pods = {
        str(p["metadata"]["annotations"]["kvgate.dev/node"]): str(p["metadata"]["name"]) for p in yard.pods_of_jobs()
    }
    first, second, third = yard.nodes
    yard.set_pod_status(pods[first], "Running", "10.9.0.1")
    yard.set_pod_status(pods[second], "Running", "10.9.0.2")
    introduce(yard)
    assert untold(yard) == set()
    assert told(yard, pods[first]) == {second: "10.9.0.2"}
    assert told(yard, pods[second]) == {first: "10.9.0.1"}

    yard.set_pod_status(pods[third], "Running", "10.9.0.3")
    assert untold(yard) == {first, third}
    introduce(yard)
    assert untold(yard) == set()
    assert told(yard, pods[first]) == {second: "10.9.0.2", third: "10.9.0.3"}
    assert (told(yard, pods[second]), told(yard, pods[third])) == ({first: "10.9.0.1"}, {first: "10.9.0.1"})


def introduce(yard: Yard) -> None:
    pool, world = yard.observe()
    yard.ground.carry_out(pool, world, Introduce(RUN))


def untold(yard: Yard) -> set[str]:
    sweep = yard.observe()[1].sweep
    assert sweep is not None
    return {walker.node for walker in sweep.walkers if walker.untold}


def told(yard: Yard, pod: str) -> object:
    return yaml.safe_load(yard.get("pods", pod)["metadata"]["annotations"]["kvgate.dev/peers"])


# --- turns --------------------------------------------------------------------------------------------------------


def many_pools(yard: Yard, count: int) -> list[str]:
    """So many pools, each with a deployment of its own."""
    keys = []
    for number in range(count):
        pool = yard.get("kvpool", "qwen3")
        spec = pool["spec"] | {"targetRef": pool["spec"]["targetRef"] | {"name": f"other-{number}"}}
        document = {
            "apiVersion": pool["apiVersion"],
            "kind": pool["kind"],
            "metadata": {"name": f"other-{number}", "namespace": yard.namespace},
            "spec": spec,
        }
        yard.kubectl("apply", "--server-side", "-f", "-", document=document)
        keys.append(f"{yard.namespace}/other-{number}")
    return keys


def mean_a_sweep(yard: Yard, read: ReadPool) -> bool:
    """As the ring does before a sweep starts; False where others keep it from that."""
    meant = SweepStatus(run_id=RUN, started_at=yard.clock(), reason="a test")
    try:
        yard.ground.write_status(read, read.status.model_copy(update={"sweep": meant}))
    except WriteConflictError:
        return False
    return True


@pytest.mark.parametrize("most", [1, 3])
def test_of_ten_pools_that_were_read_at_the_same_moment_no_more_begin_than_the_limit(yard: Yard, most: int) -> None:
    yard.policy = replace(yard.policy, most_sweeps=most)
    read = [yard.ground.observe(key) for key in many_pools(yard, 10)]
    assert {world.sweep_waits for _, world in read} == {""}
    with ThreadPoolExecutor(10) as threads:
        began = list(threads.map(lambda pool: mean_a_sweep(yard, pool), [pool for pool, _ in read]))

    assert began.count(True) == most
    swept = [pool for pool, begun in zip(read, began, strict=True) if begun]
    waiting = next(pool for (pool, _), begun in zip(read, began, strict=True) if not begun)
    told = yard.ground.observe(waiting.key)[1].sweep_waits
    assert all(pool.key in told for pool, _ in swept)
    assert told.endswith(f"probe.maxConcurrentSweeps is {most}")
    assert [yard.ground.observe(pool.key)[1].sweep_waits for pool, _ in swept] == [""] * most

    ended, _ = yard.ground.observe(swept[0][0].key)
    yard.ground.write_status(ended, ended.status.model_copy(update={"sweep": None}))
    assert mean_a_sweep(yard, yard.ground.observe(waiting.key)[0])


def test_a_pool_that_is_deleted_in_the_middle_of_its_sweep_holds_nobody_up(yard: Yard) -> None:
    first, second = many_pools(yard, 2)
    assert mean_a_sweep(yard, yard.ground.observe(first)[0])
    assert first in yard.ground.observe(second)[1].sweep_waits
    yard.kubectl("delete", "kvpool", first.partition("/")[2])

    with pytest.raises(PoolGoneError):
        yard.ground.observe(first)
    read, world = yard.ground.observe(second)
    assert world.sweep_waits == ""
    assert mean_a_sweep(yard, read)


def test_the_operators_limit_on_bytes_is_in_the_schedule_of_the_walkers(yard: Yard) -> None:
    yard.policy = replace(yard.policy, most_bytes=10**9)
    yard.measure(RUN)
    assert schedule_of(yard).most_bytes == 10**9
    assert schedule_of(yard).share_of(yard.nodes[0]) == 10**9


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_walker_that_was_never_scheduled_names_its_node_and_why_once_its_time_is_over(yard: Yard) -> None:
    """The Job controller and the scheduler are real: with the deadline the pod goes."""
    away = yard.nodes[1]
    patience = '{"spec":{"fabric":{"schedule":{"sweepTimeout":"5s"}}}}'
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", patience)
    yard.access.kubectl("cordon", away, check=True)
    yard.measure(RUN)
    wait_for_pods(yard)
    yard.record()

    def trouble() -> str:
        sweep = yard.observe()[1].sweep
        assert sweep is not None
        return next(walker.trouble for walker in sweep.walkers if walker.node == away)

    eventually(lambda: trouble().startswith("Unschedulable"), 20)
    assert f"node {away} takes no probe pod: it is cordoned" in trouble()
    eventually(lambda: trouble().startswith("DeadlineExceeded"), 40)
    eventually(lambda: away not in {pod["metadata"]["annotations"]["kvgate.dev/node"] for pod in yard.pods_of_jobs()})
    told = trouble()
    assert f"the walker of node {away} did not end within its Job's activeDeadlineSeconds" in told
    assert f"node {away} takes no probe pod: it is cordoned" in told
