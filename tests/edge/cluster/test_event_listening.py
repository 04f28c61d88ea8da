"""The event probe in a namespace of a real API server: made once, its log trusted only where it may be, nothing left.

API server, Job controller and admission (Pod Security `restricted`) are real, and so is the probe that writes the log;
the pod's status and the kubelet's log are played, for there is no kubelet.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kubernetes import client as kubernetes

from kvgate.core.decide import decide
from kvgate.core.events import judge_events
from kvgate.core.events_seen import Hears, Listening
from kvgate.core.runs import JobState
from kvgate.core.steps import AbandonListening, CollectListening, Listen, Step
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.probe.events_job import PLAN_KEY
from kvgate_probe import kvevents
from kvgate_probe.kvevents_wire import decode_plan
from tests.cluster.waiting import eventually
from tests.dynamo.workers import metadata_document
from tests.edge.cluster.test_event_looks import DEAF, FRONTEND, WORKER, looked, run, workers_kind
from tests.edge.cluster.yard import Yard
from tests.edge.prometheus_double import double, says

pytestmark = [pytest.mark.api, pytest.mark.usefixtures("workers_kind")]
__all__ = ["workers_kind"]
ELSEWHERE = "tcp://10.1.2.3:5557"
STEPS = (Listen, CollectListening, AbandonListening)
NOWHERE = {"matchLabels": {"role": "nowhere"}}


@pytest.fixture
def deaf(yard: Yard) -> Any:
    """A deployment whose second router misses a source: of two announced addresses one is the pod's own."""
    yard.pool(
        criteria={"routing": {}},
        monitor={"interval": "1s"},
        fabric={"prefillNodes": NOWHERE, "decodeNodes": NOWHERE},
    )
    with double(says(FRONTEND)) as good, double(says(DEAF)) as other, double(says(WORKER)) as worker:
        run(yard, "fe-0", "Frontend", "http", good)
        run(yard, "fe-1", "Frontend", "http", other)
        uid = run(yard, "d-0", "DecodeWorker", "system", worker)
        card = metadata_document("d-0", uid=uid, namespace=yard.namespace)
        card["spec"]["data"] |= announced("tcp://127.0.0.1:9", ELSEWHERE)
        yard.kubectl("apply", "-f", "-", document=card)
        looked(yard, 2)
        yield yard


def announced(*addresses: str) -> dict[str, Any]:
    """As the file that a real worker wrote has it: one source, and a channel for each address."""
    common = {"namespace": "n", "component": "backend", "topic": "kv-events"}
    source = {"type": "EventSource", **common, "publisher_id": 1, "metadata": {"worker": {"worker_id": 17}}}
    channels = {
        str(number): {
            "type": "EventChannel",
            **common,
            "instance_id": number,
            "transport": {"kind": "zmq", "config": {"endpoint": address}},
        }
        for number, address in enumerate(addresses)
    }
    return {"event_sources": {"a": source}, "event_channels": channels}


def turn(yard: Yard) -> Step | None:
    """One turn as the ring makes it; its step of the event probe."""
    pool, world = yard.observe()
    decision = decide(pool, world, yard.clock())
    if decision.status != pool.status:
        yard.ground.write_status(pool, decision.status)
    steps = [step for step in decision.steps if isinstance(step, STEPS)]
    for step in steps:
        yard.ground.carry_out(pool, world, step)
    return steps[0] if steps else None


def until(yard: Yard, wanted: type[object]) -> None:
    eventually(lambda: isinstance(turn(yard), wanted), 30)


def listening(yard: Yard) -> Listening | None:
    events = yard.observe()[1].events
    return events.listening if events else None


def pod_of_job(yard: Yard) -> str:
    """The pod that the real Job controller made, which Pod Security let in."""

    def made() -> str:
        found = [p for p in yard.get("pods")["items"] if "kvgate.dev/run" in p["metadata"].get("labels", {})]
        return str(found[0]["metadata"]["name"]) if found else ""

    eventually(lambda: made() != "", 30)
    return made()


def heard(yard: Yard) -> str:
    """What the probe really prints of the plan that it was given, in a shorter time."""
    (found,) = [c for c in yard.get("configmaps")["items"] if PLAN_KEY in c.get("data", {})]
    plan = replace(decode_plan(found["data"][PLAN_KEY]), seconds=0.5)
    return "\n".join(kvevents.line(plan, listener) for listener in kvevents.listen(plan))


def end(yard: Yard, pod: str) -> None:
    """What a kubelet says of a pod that has ended; the real Job controller ends the Job by it."""
    ended = {"terminated": {"exitCode": 0}}
    plain = {"name": "listen", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    status = {"phase": "Succeeded", "podIP": "10.9.2.1", "containerStatuses": [plain]}
    kubernetes.CoreV1Api(yard.access.api_client()).patch_namespaced_pod_status(pod, yard.namespace, {"status": status})
    eventually(lambda: (job := yard.observe()[1].listener) is not None and job.state is JobState.ENDED, 30)


def test_it_is_made_heard_and_cleared(deaf: Yard) -> None:
    until(deaf, Listen)
    assert turn(deaf) is None
    fence = deaf.observe()[0].status.events_probe
    assert fence is not None
    assert fence.job_uid
    assert len(deaf.names("jobs")) == 1
    pod = pod_of_job(deaf)
    deaf.client.prints[pod] = heard(deaf)
    end(deaf, pod)
    assert isinstance(turn(deaf), CollectListening)
    found = listening(deaf)
    assert found is not None
    assert [(one.pod, one.address, one.state) for one in found.entries] == [
        ("d-0", "tcp://127.0.0.1:9", Hears.NOT_REACHABLE)
    ], "the address elsewhere is not asked"
    assert isinstance(turn(deaf), AbandonListening)
    eventually(lambda: deaf.names("jobs") == [], 30)
    assert turn(deaf) is None
    assert deaf.observe()[0].status.events_probe is None
    events = deaf.observe()[1].events
    assert events is not None
    assert judge_events(events).status.probe == "NotReachable 1"
    deaf.ahead = timedelta(hours=1)
    assert turn(deaf) is None, "the same processes are not listened to again"


def test_an_operator_that_died_before_or_after_it_was_heard_goes_on(deaf: Yard) -> None:
    pool, world = deaf.observe()
    eventually(lambda: decide(*deaf.observe(), deaf.clock()).status.events_probe is not None, 30)
    pool, world = deaf.observe()
    decision = decide(pool, world, deaf.clock())
    deaf.ground.write_status(pool, decision.status)
    reborn(deaf)
    looked(deaf, 2)
    assert decision.status.events_probe is not None
    assert turn(deaf) == Listen(decision.status.events_probe.run_id)
    turn(deaf)
    pod = pod_of_job(deaf)
    deaf.client.prints[pod] = heard(deaf)
    end(deaf, pod)
    assert isinstance(turn(deaf), CollectListening)
    reborn(deaf)
    assert isinstance(turn(deaf), CollectListening), "what was heard went with its memory, and the Job is still there"
    assert listening(deaf) is not None


def reborn(yard: Yard) -> None:
    yard.ground = ClusterGround(yard.client, lambda: yard.policy, yard.clock, namespaces=[yard.namespace])


def test_a_pod_that_is_not_of_the_job_is_not_read(deaf: Yard) -> None:
    """It carries the run's labels, and says that all is well."""
    until(deaf, Listen)
    turn(deaf)
    pod = pod_of_job(deaf)
    labels = deaf.get("pods", pod)["metadata"]["labels"]
    forged: dict[str, Any] = deaf.get("pods", pod)
    spec = {key: forged["spec"][key] for key in ("containers", "securityContext", "volumes")}
    deaf.kubectl(
        *("create", "-f", "-"),
        document={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "forged", "labels": {k: v for k, v in labels.items() if k.startswith("kvgate.dev/")}},
            "spec": spec,
        },
    )
    deaf.client.prints["forged"] = heard(deaf).replace("NotReachable", "Flows")
    deaf.client.prints[pod] = ""
    end(deaf, pod)
    turn(deaf)
    found = listening(deaf)
    assert found is not None
    assert (found.entries, found.trouble) == ((), "of 1 of 1 endpoints it says nothing")
    assert "forged" not in deaf.client.asked


def test_a_suspended_pool_clears_it_away(deaf: Yard) -> None:
    until(deaf, Listen)
    turn(deaf)
    deaf.pool(
        criteria={"routing": {}},
        monitor={"interval": "1s"},
        fabric={"prefillNodes": NOWHERE, "decodeNodes": NOWHERE},
        suspend=True,
    )
    assert isinstance(turn(deaf), AbandonListening)
    eventually(lambda: deaf.names("jobs") == [], 30)
    turn(deaf)
    assert deaf.observe()[0].status.events_probe is None
