"""What a sweep leaves behind before a real API server: evidence in reports, of pods that are believed and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kvgate.api.status import PoolStatus
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.sweeps import clear
from kvgate.edge.errors import EdgeError, MeasureError
from kvgate.probe.jobs import job_name, schedule_name
from tests.cluster.waiting import eventually
from tests.edge.cluster.sweeping import (
    GIGABIT,
    RUN,
    collect,
    fence,
    forge_pod,
    job_reference,
    owner_of,
    pool_reference,
    print_results,
    wait_for_pods,
    walked,
    walkers,
)
from tests.edge.cluster.yard import IMAGE_ID, Dying, MortalClient, Yard, configuration

pytestmark = pytest.mark.api


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
