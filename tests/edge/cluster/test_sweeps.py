"""A sweep before a real API server, Job controller and scheduler; the kubelet's part is played, as the yard says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml

from kvgate.api.status import PoolStatus, SweepStatus
from kvgate.core.evidence import FailureKind
from kvgate.core.steps import Collect, Introduce, Measure
from kvgate.core.world import WalkerState
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.sweeps import clear, stored_schedule
from kvgate.edge.errors import EdgeError, MeasureError, PoolGoneError, WriteConflictError
from kvgate.probe.jobs import job_name, schedule_name
from kvgate_probe.wire import Schedule
from tests.cluster.waiting import eventually
from tests.edge.cluster.yard import IMAGE_ID, Document, Dying, MortalClient, Yard, configuration, printed

pytestmark = pytest.mark.api

RUN = "aaaaaaaaaa"
GIGABIT = 940e6
FORGED = {"kvgate.dev/run": RUN, "batch.kubernetes.io/controller-uid": "forged"}


def wait_for_pods(yard: Yard, count: int = 3) -> None:
    eventually(lambda: len(yard.pods_of_jobs()) == count, 20)


def schedule_of(yard: Yard, run_id: str = RUN) -> Schedule:
    found = stored_schedule(yard.client, yard.observe()[0].owner, run_id)
    assert found is not None
    return found


def walked(yard: Yard, run_id: str = RUN, bits_per_second: float = GIGABIT) -> dict[str, str]:
    """Start a sweep, run its pods, have them print what they measured, and end them: node → pod."""
    yard.measure(run_id)
    wait_for_pods(yard)
    yard.record()
    pods = yard.run_pods()
    print_results(yard, pods, run_id, bits_per_second)
    yard.run_pods("Succeeded")
    eventually(lambda: all(job["status"].get("succeeded") for job in yard.get("jobs")["items"]), 20)
    return pods


def print_results(yard: Yard, pods: dict[str, str], run_id: str, bits_per_second: float = GIGABIT) -> None:
    addresses = {node: str(yard.get("pods", pod)["status"]["podIP"]) for node, pod in pods.items()}
    schedule = schedule_of(yard, run_id)
    yard.client.prints |= {pod: printed(schedule, node, addresses, bits_per_second) for node, pod in pods.items()}


def collect(yard: Yard, run_id: str = RUN, late: tuple[str, ...] = (), ground: ClusterGround | None = None) -> None:
    pool, world = yard.observe()
    (ground or yard.ground).carry_out(pool, world, Collect(run_id, late))


def fence(yard: Yard, run_id: str | None) -> None:
    """Have the status mean another sweep, or none."""
    pool, _ = yard.observe()
    meant = SweepStatus(run_id=run_id, started_at=yard.clock(), reason="a test") if run_id else None
    yard.ground.write_status(pool, pool.status.model_copy(update={"sweep": meant}))


def walkers(yard: Yard) -> dict[str, WalkerState]:
    sweep = yard.observe()[1].sweep
    assert sweep is not None
    return {walker.node: walker.state for walker in sweep.walkers}


def owner_of(document: dict[str, Any]) -> str:
    (reference,) = document["metadata"]["ownerReferences"]
    return str(reference["uid"])


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


# --- collecting ---------------------------------------------------------------------------------------------------


def test_a_sweep_becomes_evidence_in_reports_and_nothing_of_it_is_left(yard: Yard) -> None:
    walked(yard)
    collect(yard)

    pool, world = yard.observe()
    (evidence,) = world.evidence
    assert evidence.run_id == RUN
    assert {sample.path for sample in evidence.samples} == set(yard.paths())
    assert [sample.bytes_per_second for sample in evidence.samples] == [pytest.approx(GIGABIT / 8, rel=0.01)] * 2
    assert {identity.boot_id for identity in evidence.nodes} == {f"boot-{node}" for node in yard.nodes}
    assert {evidence.image, *(identity.image for identity in evidence.nodes)} == {IMAGE_ID}
    assert [tool.partition(" ")[0] for tool in evidence.tools] == ["iperf3:"]
    assert evidence.problems == ()
    assert (world.sweep, world.sweep_jobs) == (None, ())
    assert (yard.names("jobs"), [n for n in yard.names("configmaps") if RUN in n]) == ([], [])
    index, shard = yard.get("fabrep", f"qwen3-{RUN}"), yard.get("fabrep", f"qwen3-{RUN}-0")
    assert (owner_of(index), owner_of(shard)) == (pool.uid, index["metadata"]["uid"])


def test_evidence_that_is_kept_on_deletion_has_no_owner_but_its_index(yard: Yard) -> None:
    kept = '{"spec":{"fabric":{"reports":{"retainOnDelete":true}}}}'
    yard.kubectl("patch", "kvpool", "qwen3", "--type=merge", "-p", kept)
    walked(yard)
    collect(yard)

    index, shard = yard.get("fabrep", f"qwen3-{RUN}"), yard.get("fabrep", f"qwen3-{RUN}-0")
    assert "ownerReferences" not in index["metadata"]
    assert owner_of(shard) == index["metadata"]["uid"]


@pytest.mark.parametrize("lives", range(1, 9))
def test_an_operator_that_died_while_it_collected_leaves_the_same_in_the_end(yard: Yard, lives: int) -> None:
    """Its writes are: shard, index, the shard's owner, three Jobs, the schedule; with eight lives it lives."""
    walked(yard)
    mortal = MortalClient(configuration(yard.access), lives)
    mortal.prints = yard.client.prints
    ground = ClusterGround(mortal, lambda: yard.policy, yard.clock, namespaces=[yard.namespace])
    died = False
    try:
        collect(yard, ground=ground)
    except Dying:
        died = True
    assert died == (lives <= 7)
    sweep = yard.observe()[1].sweep
    if lives < 7:
        assert sweep is not None
        collect(yard)

    _, world = yard.observe()
    assert world.sweep is None
    (evidence,) = world.evidence
    assert len(evidence.samples) == 2
    assert sorted(yard.names("fabrep")) == [f"qwen3-{RUN}", f"qwen3-{RUN}-0"]
    assert owner_of(yard.get("fabrep", f"qwen3-{RUN}-0")) == yard.get("fabrep", f"qwen3-{RUN}")["metadata"]["uid"]
    assert yard.names("jobs") == []


def test_what_is_left_of_a_collected_sweep_has_no_walkers(yard: Yard) -> None:
    walked(yard)
    mortal = MortalClient(configuration(yard.access), 3)
    mortal.prints = yard.client.prints
    with pytest.raises(Dying):
        collect(yard, ground=ClusterGround(mortal, lambda: yard.policy, yard.clock, namespaces=[yard.namespace]))

    assert walkers(yard) == {}


def forge_pod(yard: Yard, node: str, **metadata: Any) -> str:
    """A pod that a tenant made to look like one of ours."""
    pool, _ = yard.observe()
    labels = {"kvgate.dev/pool-uid": pool.uid, **FORGED}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "forged",
            "namespace": yard.namespace,
            "labels": labels,
            "annotations": {"kvgate.dev/node": node},
            **metadata,
        },
        "spec": yard.get("jobs")["items"][0]["spec"]["template"]["spec"] | {"affinity": None, "nodeName": node},
    }
    yard.kubectl("create", "-f", "-", document=document)
    yard.set_pod_status("forged", "Succeeded", "10.9.0.66")
    return "forged"


@pytest.mark.parametrize("how", ["no controller", "a controller that is not recorded"])
def test_a_forged_pods_log_is_never_read(yard: Yard, how: str) -> None:
    pods = walked(yard)
    extra = {} if how == "no controller" else {"ownerReferences": [pool_reference(yard)]}
    forged = forge_pod(yard, yard.nodes[0], **extra)
    yard.client.prints[forged] = yard.client.prints[pods[yard.nodes[0]]].replace("940", "999")
    collect(yard)

    assert forged not in yard.client.asked
    (evidence,) = yard.observe()[1].evidence
    assert "pod forged: is not of a Job that kvgate recorded: its log is ignored" in evidence.problems
    assert len(evidence.samples) == 2


def pool_reference(yard: Yard) -> Document:
    owner = {"apiVersion": "kvgate.dev/v1alpha1", "kind": "InferencePool", "name": "qwen3"}
    return owner | {"uid": yard.observe()[0].uid, "controller": True}


def job_reference(yard: Yard, node: str) -> Document:
    """To a recorded Job by its real name and UID: what names an owner that is not there is soon collected."""
    fence_now = yard.observe()[0].status.sweep
    assert fence_now is not None
    job = next(job for job in fence_now.jobs if job.node == node)
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid, "controller": True}


def test_of_two_pods_that_say_they_are_one_walker_neither_is_believed(yard: Yard) -> None:
    pods = walked(yard)
    first, second, _ = yard.nodes
    forged = forge_pod(yard, second, ownerReferences=[job_reference(yard, second)])
    collect(yard)

    assert not {forged, pods[second]} & set(yard.client.asked)
    (evidence,) = yard.observe()[1].evidence
    assert f"walker of {second}: 2 pods say they are it: their logs are ignored" in evidence.problems
    assert pods[first] in yard.client.asked


def test_a_pod_that_does_not_stand_on_the_node_of_its_job_is_not_believed(yard: Yard) -> None:
    walked(yard)
    first, second, _ = yard.nodes
    forged = forge_pod(yard, second, ownerReferences=[job_reference(yard, first)])
    collect(yard)

    assert forged not in yard.client.asked
    (evidence,) = yard.observe()[1].evidence
    assert f"pod forged: does not stand on node {first}: its log is ignored" in evidence.problems
    assert len(evidence.samples) == 2


def test_a_log_of_another_run_is_no_evidence(yard: Yard) -> None:
    pods = walked(yard)
    for pod in pods.values():
        yard.client.prints[pod] = yard.client.prints[pod].replace(RUN, "bbbbbbbbbb")
    collect(yard)

    (evidence,) = yard.observe()[1].evidence
    assert evidence.samples == ()
    assert any("of another run: ignored" in problem for problem in evidence.problems)


def test_a_schedule_that_is_gone_leaves_every_path_without_a_number(yard: Yard) -> None:
    walked(yard)
    yard.kubectl("delete", "configmap", schedule_name(yard.observe()[0].owner, RUN))
    collect(yard)

    (evidence,) = yard.observe()[1].evidence
    assert (set(evidence.planned), evidence.samples) == (set(yard.paths()), ())
    assert any("schedule" in problem for problem in evidence.problems)


def test_late_and_troubled_walkers_are_named_in_the_evidence(yard: Yard) -> None:
    yard.measure(RUN)
    wait_for_pods(yard)
    yard.record()
    pods = yard.run_pods()
    print_results(yard, pods, RUN)
    yard.kubectl("delete", "job", job_name(yard.observe()[0].owner, RUN, yard.nodes[1]), "--cascade=orphan")
    collect(yard, late=(yard.nodes[0], yard.nodes[2]))

    (evidence,) = yard.observe()[1].evidence
    said = "\n".join(evidence.problems)
    assert f"walker of {yard.nodes[0]}: not done within fabric.schedule.sweepTimeout" in said
    assert f"walker of {yard.nodes[1]}: JobDeleted" in said


def test_older_sweeps_go_once_there_are_more_than_are_kept(yard: Yard) -> None:
    for run_id in ("1111111111", "2222222222", "3333333333"):
        fence(yard, None)
        walked(yard, run_id)
        collect(yard, run_id)
        yard.ahead += timedelta(seconds=5)
    kept = {f"qwen3-{run}{end}" for run in ("2222222222", "3333333333") for end in ("", "-0")}

    eventually(lambda: set(yard.names("fabrep")) == kept, 20)
    assert [evidence.run_id for evidence in yard.observe()[1].evidence] == ["3333333333", "2222222222"]


def test_a_shard_of_a_sweep_that_never_ended_goes_with_the_next_one(yard: Yard) -> None:
    walked(yard)
    mortal = MortalClient(configuration(yard.access), 1)
    mortal.prints = yard.client.prints
    with pytest.raises(Dying):
        collect(yard, ground=ClusterGround(mortal, lambda: yard.policy, yard.clock, namespaces=[yard.namespace]))
    clear(yard.client, yard.observe()[0].owner, RUN)
    fence(yard, None)
    eventually(lambda: yard.pods_of_jobs() == [])
    walked(yard, "bbbbbbbbbb")
    collect(yard, "bbbbbbbbbb")

    assert sorted(yard.names("fabrep")) == ["qwen3-bbbbbbbbbb", "qwen3-bbbbbbbbbb-0"]


def test_a_report_cannot_be_edited_and_one_that_was_replaced_spoils_the_evidence(yard: Yard) -> None:
    walked(yard)
    collect(yard)
    said = yard.refused("patch", "fabrep", f"qwen3-{RUN}-0", "--type=merge", "-p", '{"spec":{"data":"AAAA"}}')
    assert "a report is immutable" in said

    shard = yard.get("fabrep", f"qwen3-{RUN}-0")
    yard.kubectl("delete", "fabrep", f"qwen3-{RUN}-0")
    metadata = {key: shard["metadata"][key] for key in ("name", "namespace", "labels")}
    yard.kubectl("create", "-f", "-", document=shard | {"metadata": metadata, "spec": shard["spec"] | {"data": "AAAA"}})
    _, world = yard.observe()
    assert world.evidence == ()
    assert "was altered: its digest is not the one in the index" in world.evidence_problem
    with pytest.raises(MeasureError, match=f"FabricReport .*qwen3-{RUN} of this sweep cannot be read: delete it"):
        yard.start(RUN)


def test_a_report_of_somebody_else_under_our_name_is_not_touched(yard: Yard) -> None:
    walked(yard)
    data = {"index": 0, "encoding": "x", "data": "AAAA", "sha256": "0" * 64}
    report = {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "FabricReport",
        "metadata": {"name": f"qwen3-{RUN}-0", "namespace": yard.namespace},
        "spec": {"runID": RUN, "poolRef": {"name": "other", "uid": "other"}, **data},
    }
    yard.kubectl("create", "-f", "-", document=report)

    with pytest.raises(EdgeError, match=f"FabricReport {yard.namespace}/qwen3-{RUN}-0 is not ours: delete it"):
        collect(yard)
    assert yard.get("fabrep", f"qwen3-{RUN}-0")["spec"]["poolRef"]["uid"] == "other"
    assert len(yard.names("jobs")) == 3


def test_everything_of_a_sweep_goes_with_its_pool(yard: Yard) -> None:
    walked(yard)
    yard.kubectl("delete", "kvpool", "qwen3")

    eventually(lambda: yard.names("jobs") == [] and [n for n in yard.names("configmaps") if RUN in n] == [], 30)


def test_the_status_of_a_pool_in_a_sweep_survives_the_round_trip(yard: Yard) -> None:
    yard.measure(RUN)
    pool = yard.record()

    assert pool.status.sweep is not None
    assert {job.node for job in pool.status.sweep.jobs} == set(yard.nodes)
    assert PoolStatus.model_validate(pool.status.model_dump()) == pool.status


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
