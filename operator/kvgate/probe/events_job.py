"""The manifests of the event probe in a cluster: a ConfigMap with whom to listen to, and one Job that does.

It subscribes and sends nothing, so it takes no sweep's place; its pod may stand on any node.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from kvgate.core.digests import digest
from kvgate.core.events_listening import LISTEN_SECONDS
from kvgate.core.events_seen import EventsSeen
from kvgate.core.workers import WorkerPod
from kvgate.probe.jobs import PROBE_USER, START_SECONDS, Manifest, Owner, RunJob, config_map, job_name
from kvgate_probe.kvevents_wire import MOST_ENDPOINTS, Endpoint, Plan, encode_plan, ip_of

CONTAINER = "listen"
PLAN_DIGEST = "kvgate.dev/plan-digest"
PLAN_KEY = "plan.json"
MARGIN_SECONDS = 30


def plan_listening(run_id: str, events: EventsSeen, pods: Iterable[WorkerPod]) -> Plan:
    """Every address that a worker announces at its own pod's IP: one that it announces elsewhere could be anybody's."""
    own = {pod.pod: pod.address for pod in pods}
    adverts = {worker.pod: worker.last.advert for worker in events.workers if worker.must_publish and worker.last}
    found = sorted(
        (pod, address)
        for pod, advert in adverts.items()
        if advert is not None
        for address in advert.addresses
        if _is_at(address, own.get(pod, ""))
    )
    sizes = {advert.block_tokens for advert in adverts.values() if advert and advert.block_tokens}
    counts = [frontend.last.counts for frontend in events.frontends if frontend.last]
    sizes |= {counted.block_tokens for counted in counts if counted is not None and counted.block_tokens}
    endpoints = tuple(Endpoint(pod, address) for pod, address in found[:MOST_ENDPOINTS])
    return Plan(run_id, LISTEN_SECONDS, endpoints, sizes.pop() if len(sizes) == 1 else None)


def _is_at(address: str, ip: str) -> bool:
    try:
        return ip_of(address) == ipaddress.ip_address(ip)
    except ValueError:
        return False


def listen_plan_name(owner: Owner, run_id: str) -> str:
    return job_name(owner, run_id, "events-plan")


def listen_job_name(owner: Owner, run_id: str) -> str:
    """The same for the same pool and run, so that a second attempt to make the Job finds the first."""
    return job_name(owner, run_id, "events")


def listen_config_map(owner: Owner, plan: Plan) -> Manifest:
    return config_map(owner, plan.run_id, listen_plan_name(owner, plan.run_id), {PLAN_KEY: encode_plan(plan)})


def listen_job(
    owner: Owner, run_id: str, written: str, image: str, tolerations: Sequence[Mapping[str, object]] = ()
) -> Manifest:
    """The Job for the plan as it is written. Its pod meets Pod Security `restricted` and has no token."""
    return RunJob(
        name=listen_job_name(owner, run_id),
        pod=_pod(listen_plan_name(owner, run_id), image, tolerations),
        deadline_seconds=round(START_SECONDS + LISTEN_SECONDS + MARGIN_SECONDS),
        notes={PLAN_DIGEST: digest(written)},
    ).manifest(owner, run_id)


def _pod(plan: str, image: str, tolerations: Sequence[Mapping[str, object]]) -> Manifest:
    pod: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": PROBE_USER,
            "runAsGroup": PROBE_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(image)],
        "volumes": [{"name": "plan", "configMap": {"name": plan}}],
    }
    if tolerations:
        pod["tolerations"] = [dict(toleration) for toleration in tolerations]
    return pod


def _container(image: str) -> Manifest:
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "kvgate_probe.kvevents", "--plan", f"/etc/kvgate/plan/{PLAN_KEY}"],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "plan", "mountPath": "/etc/kvgate/plan", "readOnly": True}],
    }
