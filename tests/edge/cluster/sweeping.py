"""Sweeps of the tests on the yard: started, walked, printed, collected, and pods that are forged."""

from __future__ import annotations

from typing import Any

from kvgate.api.status import SweepStatus
from kvgate.core.steps import Collect
from kvgate.core.world import WalkerState
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.sweeps import stored_schedule
from kvgate_probe.wire import Schedule
from tests.cluster.waiting import eventually
from tests.edge.cluster.yard import Document, Yard, printed

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


def pool_reference(yard: Yard) -> Document:
    owner = {"apiVersion": "kvgate.dev/v1alpha1", "kind": "InferencePool", "name": "qwen3"}
    return owner | {"uid": yard.observe()[0].uid, "controller": True}


def job_reference(yard: Yard, node: str) -> Document:
    """To a recorded Job by its real name and UID: what names an owner that is not there is soon collected."""
    fence_now = yard.observe()[0].status.sweep
    assert fence_now is not None
    job = next(job for job in fence_now.jobs if job.node == node)
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid, "controller": True}
