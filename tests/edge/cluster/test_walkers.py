"""What Jobs, pods and events amount to: a table of how a walker may stand, and what is said of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvgate.api.status import SweepJob
from kvgate.core.evidence import NodeIdentity
from kvgate.core.world import Walker, WalkerState
from kvgate.edge.cluster.walkers import Seen, on_nodes, sweep_jobs, walkers
from kvgate.edge.nodes import NodeView
from kvgate.probe.jobs import Owner, job_name
from kvgate_probe.rounds import Pair, Rounds

OWNER = Owner("qwen3", "serving", "pool-uid")
RUN = "0123456789"
Document = dict[str, Any]


def job(node: str, uid: str = "", **metadata: Any) -> Document:
    reference = {"kind": "InferencePool", "uid": OWNER.uid, "controller": True}
    held = {
        "name": job_name(OWNER, RUN, node),
        "uid": uid or f"job-{node}",
        "labels": {"kvgate.dev/pool-uid": OWNER.uid, "kvgate.dev/run": RUN},
        "annotations": {"kvgate.dev/node": node},
        "ownerReferences": [reference],
    }
    return {"metadata": held | metadata, "status": {}}


def ended(kind: str, reason: str = "") -> Document:
    return job("n1") | {"status": {"conditions": [{"type": kind, "status": "True", "reason": reason}]}}


def pod(node: str, phase: str, address: str = "", owner: str = "", told: Any = None, **status: Any) -> Document:
    notes = {"kvgate.dev/node": node}
    if told is not None:
        notes["kvgate.dev/peers"] = told if isinstance(told, str) else json.dumps(told)
    reference = {"kind": "Job", "uid": owner or f"job-{node}", "controller": True}
    metadata = {"name": f"p-{node}", "annotations": notes, "ownerReferences": [reference]}
    return {"metadata": metadata, "status": {"phase": phase, "podIP": address, **status}}


def waiting(reason: str) -> Document:
    return pod("n1", "Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": "SECRET"}}}])


def exited(code: int, **told: Any) -> Document:
    return pod("n1", "Failed", containerStatuses=[{"state": {"terminated": {"exitCode": code, **told}}}])


def left(reason: str) -> Document:
    return pod("n1", "Failed", conditions=condition("DisruptionTarget", "True", reason))


def condition(kind: str, status: str, reason: str) -> list[Document]:
    return [{"type": kind, "status": status, "reason": reason, "message": "SECRET"}]


def event(message: str, uid: str = "job-n1") -> Document:
    return {"reason": "FailedCreate", "message": f"{message} SECRET", "involvedObject": {"uid": uid}}


UNSCHEDULABLE = pod("n1", "Pending", conditions=condition("PodScheduled", "False", "Unschedulable"))


def only(
    jobs: list[Document], pods: list[Document], events: list[Document], known: tuple[SweepJob, ...] = ()
) -> Walker:
    (found,) = walkers(Rounds(("n1",), ()), known, sweep_jobs(jobs, OWNER, RUN), Seen(jobs, pods, events))
    return found


@pytest.mark.parametrize(
    ("jobs", "pods", "events", "state", "trouble"),
    [
        pytest.param([], [], [], WalkerState.PENDING, "", id="no Job yet"),
        pytest.param([job("n1")], [], [], WalkerState.PENDING, "", id="a Job without a pod yet"),
        pytest.param([job("n1")], [pod("n1", "Pending")], [], WalkerState.PENDING, "", id="a pod that is coming"),
        pytest.param([job("n1")], [pod("n1", "Running", "10.0.0.1")], [], WalkerState.RUNNING, "", id="it runs"),
        pytest.param([job("n1")], [pod("n1", "Succeeded")], [], WalkerState.ENDED, "", id="a pod that ended well"),
        pytest.param([ended("Complete")], [], [], WalkerState.ENDED, "", id="a Job that ended well"),
        pytest.param([job("n1")], [exited(2)], [], WalkerState.ENDED, "WalkerFailed", id="a pod that failed"),
        pytest.param([job("n1")], [UNSCHEDULABLE], [], WalkerState.PENDING, "Unschedulable", id="a cordoned node"),
        pytest.param([job("n1")], [waiting("ErrImagePull")], [], WalkerState.PENDING, "ImagePull", id="no image"),
        pytest.param([job("n1")], [waiting("ImagePullBackOff")], [], WalkerState.PENDING, "ImagePull", id="still none"),
        pytest.param(
            [job("n1")],
            [waiting("CreateContainerConfigError")],
            [],
            WalkerState.PENDING,
            "ContainerNotStarted",
            id="config",
        ),
        pytest.param([job("n1")], [waiting("ContainerCreating")], [], WalkerState.PENDING, "", id="it is being made"),
        pytest.param(
            [ended("Failed", "DeadlineExceeded")], [], [], WalkerState.ENDED, "DeadlineExceeded", id="it took too long"
        ),
        pytest.param([ended("Failed", "Other")], [], [], WalkerState.ENDED, "PodDeleted", id="a pod that was deleted"),
        pytest.param(
            [ended("Failed", "Other")],
            [pod("n1", "Failed")],
            [],
            WalkerState.ENDED,
            "WalkerFailed",
            id="a Job that failed, of whose pod nothing is told",
        ),
        pytest.param(
            [job("n1")],
            [left("EvictionByEvictionAPI")],
            [],
            WalkerState.ENDED,
            "NodeDraining",
            id="a node that was drained",
        ),
        pytest.param(
            [job("n1")],
            [],
            [event("exceeded quota: x")],
            WalkerState.PENDING,
            "QuotaExceeded",
            id="no quota left",
        ),
        pytest.param(
            [job("n1")], [], [event("must specify limits.cpu")], WalkerState.PENDING, "LimitRange", id="a limit range"
        ),
        pytest.param(
            [job("n1")],
            [],
            [event('violates PodSecurity "restricted"')],
            WalkerState.PENDING,
            "ProbeForbiddenByPodSecurity",
            id="what pod security forbids",
        ),
        pytest.param([job("n1")], [], [event("denied")], WalkerState.PENDING, "PodNotCreated", id="another refusal"),
        pytest.param([job("n1")], [], [event("denied", "other")], WalkerState.PENDING, "", id="another Job's refusal"),
        pytest.param(
            [job("n1")],
            [pod("n1", "Running", owner="forged")],
            [],
            WalkerState.PENDING,
            "",
            id="a pod not its own",
        ),
    ],
)
def test_a_walker_stands(
    jobs: list[Document], pods: list[Document], events: list[Document], state: WalkerState, trouble: str
) -> None:
    found = only(jobs, pods, events)

    assert found.state is state
    assert found.trouble.partition(":")[0] == trouble
    assert "SECRET" not in found.trouble


@pytest.mark.parametrize(
    ("found", "says"),
    [
        pytest.param(UNSCHEDULABLE, "node n1 takes no probe pod", id="unschedulable"),
        pytest.param(waiting("ErrImagePull"), "node n1 cannot pull", id="image"),
    ],
)
def test_a_deadline_says_what_the_walker_waited_for(found: Document, says: str) -> None:
    assert says in only([ended("Failed", "DeadlineExceeded")], [found], []).trouble


ABOUT_ALL = "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, 1 node(s) didn't match"
AWAY = "node n1 takes no probe pod: it is cordoned or short of CPU; uncordon it, make room for 250m CPU and 64Mi"


def scheduler(reason: str, message: str, name: str = "") -> Document:
    pod_name = name or f"{job_name(OWNER, RUN, 'n1')}-x7k2p"
    return {"reason": reason, "message": message, "involvedObject": {"kind": "Pod", "name": pod_name, "uid": "gone"}}


@pytest.mark.parametrize(
    ("events", "says"),
    [
        pytest.param([scheduler("FailedScheduling", ABOUT_ALL)], AWAY, id="why its pod was never scheduled"),
        pytest.param(
            [scheduler("FailedScheduling", "SECRET")],
            "node n1 takes no probe pod: it is cordoned, tainted, full or gone",
            id="what it can be, where the scheduler's words are others",
        ),
        pytest.param(
            [scheduler("FailedScheduling", ABOUT_ALL), scheduler("Scheduled", "Successfully assigned")],
            "",
            id="nothing of the scheduler, once the pod was scheduled",
        ),
        pytest.param([scheduler("FailedScheduling", ABOUT_ALL, "another-x7k2p")], "", id="nothing of another's pod"),
        pytest.param([], "", id="nothing more, without events"),
    ],
)
def test_a_deadline_of_a_pod_that_is_gone_names_the_node_and(events: list[Document], says: str) -> None:
    trouble = only([ended("Failed", "DeadlineExceeded")], [], events).trouble
    assert trouble.startswith("DeadlineExceeded: the walker of node n1 did not end within its Job's")
    assert says in trouble
    assert ("Unschedulable" in trouble) is bool(says)
    assert "SECRET" not in trouble


def test_a_deadline_of_a_pod_that_is_gone_says_that_its_image_could_not_be_pulled() -> None:
    events = [scheduler("Scheduled", "Successfully assigned"), scheduler("Failed", 'Failed to pull image "SECRET"')]
    trouble = only([ended("Failed", "DeadlineExceeded")], [], events).trouble
    assert "(ImagePull: node n1 cannot pull the probe's image" in trouble
    assert "SECRET" not in trouble


def test_at_its_deadline_a_pod_that_is_gone_before_its_job_has_failed_still_says_what_it_waited_for() -> None:
    events = [scheduler("Scheduled", "Successfully assigned"), scheduler("Failed", 'Failed to pull image "SECRET"')]
    found = only([job("n1")], [], events)
    assert (found.state, found.trouble.partition(";")[0]) == (
        WalkerState.PENDING,
        "ImagePull: node n1 cannot pull the probe's image",
    )


def test_a_pod_that_waits_for_its_node_says_what_the_scheduler_says() -> None:
    waits = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": ABOUT_ALL}]
    assert AWAY in only([job("n1")], [pod("n1", "Pending", conditions=waits)], []).trouble


HELD = "0/3 nodes are available: 1 Insufficient rdma/hca_shared_devices_a, 2 node(s) didn't match Pod's node affinity"


def test_a_device_that_the_workers_hold_is_named_at_once_with_its_node_and_the_remedy() -> None:
    waits = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": HELD}]
    found = only([job("n1")], [pod("n1", "Pending", conditions=waits)], [])
    assert found.stuck
    for part in ("DeviceHeld: node n1", "rdma/hca_shared_devices_a", "administrator", "device plugin", "scale down"):
        assert part in found.trouble
    short = [{**waits[0], "message": ABOUT_ALL}]
    assert not only([job("n1")], [pod("n1", "Pending", conditions=short)], []).stuck


def test_a_job_that_the_status_remembers_and_that_is_not_there_was_deleted() -> None:
    known = (SweepJob(node="n1", name="j", uid="old"),)

    assert only([], [], [], known).state is WalkerState.GONE
    assert only([job("n1")], [pod("n1", "Running")], [], known).state is WalkerState.GONE
    assert "JobDeleted" in only([], [], [], known).trouble


ENDS = {
    "killed for want of memory": (
        exited(137, reason="OOMKilled"),
        "OutOfMemory: the walker on node n1 was killed for want of memory: its limit is 256Mi",
        "have the operator's administrator look at the node if it recurs",
    ),
    "with its port taken": (
        exited(1, message="PortInUse: control port 5201: Address already in use SECRET"),
        "PortInUse: port 5201 of node n1 is taken by another program, or by another pool's probe",
        "free it, or give the pool another fabric.probe.port",
    ),
    "of another version": (
        exited(2, message="schedule: version 9 SECRET"),
        "WalkerFailed: the probe's image cannot read what this operator asks (exit code 2)",
        "set probe.image in the operator's settings to this version's",
    ),
    "killed with its node": (
        exited(255),
        "WalkerKilled: the walker on node n1 was killed from outside (exit code 255), as when its node restarts",
        "measure again once the node stands",
    ),
    "for a reason of its own": (
        exited(1, message="SECRET"),
        "WalkerFailed: the walker ended with exit code 1",
        "its pod's log says why",
    ),
    "evicted by its kubelet": (
        pod("n1", "Failed", reason="Evicted", message="The node was low on resource: memory. SECRET"),
        "Evicted: the kubelet of node n1 evicted the probe's pod: the node is short of memory",
        "make room there, and measure again",
    ),
    "evicted without a word that is known": (
        pod("n1", "Failed", reason="Evicted", message="SECRET"),
        "Evicted: the kubelet of node n1 evicted the probe's pod",
        "make room there, and measure again",
    ),
    "sent away by a taint": (
        left("DeletionByTaintManager"),
        "NodeTainted: a taint of the effect NoExecute sent the pod away",
        "remove the taint, or have the target's pods tolerate it",
    ),
    "for a pod that comes before it": (
        left("PreemptionByScheduler"),
        "Preempted: a pod of higher priority took the probe's place",
        "make room for 250m CPU and 64Mi",
    ),
    "with its node's shutdown": (
        left("TerminationByKubelet"),
        "NodeShutdown: the node was shut down",
        "measure again once it is back",
    ),
    "for a reason that is not known": (
        left("SomethingNew"),
        "NodeDraining: the pod was told to leave its node",
        "measure again once the node is back",
    ),
}


@pytest.mark.parametrize(("found", "says", "remedy"), ENDS.values(), ids=ENDS)
def test_a_walker_that_ended_before_its_time_says_why_and_what_to_do(found: Document, says: str, remedy: str) -> None:
    limited = {"template": {"spec": {"containers": [{"resources": {"limits": {"memory": "256Mi"}}}]}}}
    assert only([job("n1") | {"spec": limited}], [found], []).trouble == f"{says}; {remedy}"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        pytest.param("maximum cpu usage per Container is 1, but limit is 4", "LimitRange", id="a LimitRange"),
        pytest.param("minimum memory usage per Container is 1Gi", "LimitRange", id="a LimitRange that asks for more"),
        pytest.param("ValidatingAdmissionPolicy 'x' denied request", "AdmissionDenied", id="an admission policy"),
        pytest.param('admission webhook "x" denied the request', "AdmissionDenied", id="an admission webhook"),
    ],
)
def test_a_pod_that_is_refused_is_told_by(said: str, word: str) -> None:
    assert only([job("n1")], [], [event(said)]).trouble.partition(":")[0] == word


def node(name: str, *, ready: bool = True, schedulable: bool = True) -> NodeView:
    return NodeView(NodeIdentity(name), {}, ready=ready, schedulable=schedulable)


def test_a_job_that_could_not_be_made_is_not_waited_for_once_the_others_are_remembered() -> None:
    jobs = [job("n1")]
    found = sweep_jobs(jobs, OWNER, RUN)
    begun = walkers(Rounds(("n1", "n2"), ()), (), found, Seen(jobs, [pod("n1", "Running")]))
    later = walkers(Rounds(("n1", "n2"), ()), found, found, Seen(jobs, [pod("n1", "Running")]))
    assert [walker.state for walker in begun] == [WalkerState.RUNNING, WalkerState.PENDING]
    assert [walker.state for walker in later] == [WalkerState.RUNNING, WalkerState.GONE]
    assert later[1].trouble.startswith("JobNotMade: the API server refused the Job of node n2")


def test_a_walker_at_work_on_a_node_that_is_gone_or_does_not_report_says_so() -> None:
    names = ("n1", "n2", "n3")
    jobs = [job(name) for name in names]
    pods = [pod("n1", "Pending"), pod("n2", "Running"), pod("n3", "Running")]
    told = walkers(Rounds(names, ()), (), sweep_jobs(jobs, OWNER, RUN), Seen(jobs, pods))
    first, second, third = on_nodes(told, [node("n2"), node("n3", ready=False, schedulable=False)])
    (done,) = on_nodes([only([ended("Complete")], [pod("n1", "Succeeded")], [])], [])

    assert "NodeGone: node n1 was deleted" in first.trouble
    assert "NodeNotReady: the kubelet of node n3 no longer reports" in third.trouble
    assert (second.trouble, done.trouble) == ("", "")


@pytest.mark.parametrize(
    ("schedulable", "word"),
    [
        pytest.param(True, "PodDeleted", id="from a node that takes pods"),
        pytest.param(False, "NodeDraining", id="from a node that was cordoned, as a drain does"),
    ],
)
def test_a_pod_was_deleted(schedulable: bool, word: str) -> None:
    lost = only([ended("Failed", "BackoffLimitExceeded")], [], [])
    (told,) = on_nodes([lost], [node("n1", schedulable=schedulable)])
    assert told.trouble.startswith(f"{word}: ")
    assert "node n1" in told.trouble


@pytest.mark.parametrize(
    ("told", "untold"),
    [
        pytest.param({"n2": "10.0.0.2"}, False, id="where it was told of its partner, and of no other"),
        pytest.param({"n2": "10.0.0.2", "n4": "10.0.0.4"}, False, id="where it was told of one that is gone, too"),
        pytest.param({"n2": "10.0.0.9"}, True, id="of a partner that has another address now"),
        pytest.param({"n3": "10.0.0.3"}, True, id="of a partner, where it was told of others"),
        pytest.param("no json", True, id="of a partner, where what it was told cannot be read"),
    ],
)
def test_a_walker_is_to_be_told(told: object, untold: bool) -> None:
    names = ("n1", "n2", "n3")
    pods = [pod(name, "Running", f"10.0.0.{number}") for number, name in enumerate(names, 1)]
    pods[0] = pod("n1", "Running", "10.0.0.1", told=told)
    jobs = [job(name) for name in names]
    meetings = Rounds.of([[Pair("n1", "n2")]])
    first, second, third = walkers(meetings, (), sweep_jobs(jobs, OWNER, RUN), Seen(jobs, pods))

    assert (first.address, first.untold) == ("10.0.0.1", untold)
    assert (second.untold, third.untold) == (True, False)


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(job("n1", ownerReferences=[{"uid": "other", "controller": True}]), id="of another pool"),
        pytest.param(job("n1", ownerReferences=[{"uid": OWNER.uid}]), id="that the pool does not control"),
        pytest.param(job("n1", labels={"kvgate.dev/pool-uid": OWNER.uid, "kvgate.dev/run": "x"}), id="of another run"),
        pytest.param(job("n1", annotations={"kvgate.dev/node": "n2"}), id="with the name of another node's"),
        pytest.param(job("n1", deletionTimestamp="2026-01-01T00:00:00Z"), id="that is being deleted"),
        pytest.param(job("n1", name="anything"), id="with a name of its own"),
        pytest.param({}, id="without anything"),
    ],
)
def test_a_job_is_not_ours(stranger: Document) -> None:
    assert sweep_jobs([stranger], OWNER, RUN) == ()


def companion(node: str) -> Document:
    """The Job of the second walker on the node."""
    notes = {"kvgate.dev/node": node, "kvgate.dev/companion": "true"}
    return job(node, f"job-{node}-2", name=job_name(OWNER, RUN, f"{node}/2"), annotations=notes)


def test_a_node_and_its_companion_are_two_walkers_that_hear_of_each_other() -> None:
    jobs = [job("n1"), companion("n1")]
    pods = [pod("n1", "Running", "10.0.0.1"), pod("n1", "Running", "10.0.0.2", owner="job-n1-2")]
    ours = sweep_jobs(jobs, OWNER, RUN)
    assert [(one.node, one.companion) for one in ours] == [("n1", False), ("n1", True)]
    seen = Seen(jobs, pods)
    first, second = walkers(Rounds.of([[Pair("n1", "n1/2")]]), ours, ours, seen)
    assert [(w.node, w.companion, w.address) for w in (first, second)] == [
        ("n1", False, "10.0.0.1"),
        ("n1", True, "10.0.0.2"),
    ]
    assert first.untold
    assert second.untold
    assert str(second) == "n1 (its companion)"


def test_a_job_that_says_it_is_a_companion_and_has_the_name_of_its_nodes_own_is_not_ours() -> None:
    posing = job("n1", annotations={"kvgate.dev/node": "n1", "kvgate.dev/companion": "true"})
    assert sweep_jobs([posing], OWNER, RUN) == ()


def test_a_companion_for_which_its_node_has_no_room_is_not_waited_for_until_the_time_is_up() -> None:
    full = condition("PodScheduled", "False", "Unschedulable")
    jobs = [job("n1"), companion("n1")]
    pods = [pod("n1", "Running", "10.0.0.1"), pod("n1", "Pending", owner="job-n1-2", conditions=full)]
    ours = sweep_jobs(jobs, OWNER, RUN)
    first, second = walkers(Rounds.of([[Pair("n1", "n1/2")]]), ours, ours, Seen(jobs, pods))
    assert (first.stuck, second.stuck) == (False, True)
    assert second.trouble


def test_a_companion_whose_image_is_still_to_come_is_waited_for_as_any_other_walker() -> None:
    jobs = [job("n1"), companion("n1")]
    pulls = [{"state": {"waiting": {"reason": "ErrImagePull"}}}]
    late = pod("n1", "Pending", owner="job-n1-2", containerStatuses=pulls) | {"spec": {"nodeName": "n1"}}
    ours = sweep_jobs(jobs, OWNER, RUN)
    _, second = walkers(Rounds.of([[Pair("n1", "n1/2")]]), ours, ours, Seen(jobs, [pod("n1", "Running"), late]))
    assert second.trouble.startswith("ImagePull")
    assert not second.stuck


def test_our_jobs_are_told_by_node() -> None:
    found = sweep_jobs([job("n2"), job("n1")], OWNER, RUN)

    assert [(entry.node, entry.uid, entry.name) for entry in found] == [
        ("n1", "job-n1", job_name(OWNER, RUN, "n1")),
        ("n2", "job-n2", job_name(OWNER, RUN, "n2")),
    ]
