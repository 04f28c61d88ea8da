"""The manifests of an A/B in a cluster: a ConfigMap with the plan, and one Job with the load and two shadow frontends.

The pod carries none of the deployment's labels, so that no Service, endpoint picker or monitor of it selects a shadow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvgate.api.wire import KeyRef
from kvgate.core.digests import digest
from kvgate.probe.jobs import PROBE_USER, Manifest, Owner, RunJob, config_map, job_name
from kvgate_bench.wire import QUIET_SECONDS, Plan, encode_plan

CONTAINER = "load"
PLAN_DIGEST = "kvgate.dev/plan-digest"
PLAN_KEY = "plan.json"
TRACE_KEY = "trace"
ROUND_ROBIN_PORT, KV_PORT = 18_001, 18_002
SHADOW_USER = 1000
"""Where neither the pod nor its container names one: the user of Dynamo's own images."""
CALIBRATION_SECONDS_PER_WORKER = 30.0
MARGIN_SECONDS = 120.0


@dataclass(frozen=True)
class Shadows:
    """What the pod takes from the live frontend: its containers, already changed, and what they need."""

    service_account: str
    containers: Sequence[Mapping[str, object]]
    volumes: Sequence[Mapping[str, object]] = ()
    pull_secrets: Sequence[Mapping[str, object]] = ()
    user: int | None = None
    placement: Mapping[str, object] = field(default_factory=dict)


def plan_name(owner: Owner, run_id: str) -> str:
    return job_name(owner, run_id, "plan")


def benchmark_job_name(owner: Owner, run_id: str) -> str:
    """The same for the same pool and run, so that a second attempt to make the Job finds the first."""
    return job_name(owner, run_id, "benchmark")


def plan_config_map(owner: Owner, plan: Plan) -> Manifest:
    return config_map(owner, plan.run_id, plan_name(owner, plan.run_id), {PLAN_KEY: encode_plan(plan)})


def deadline_seconds(plan: Plan) -> int:
    """How long the pod may take: getting ready, watching users, asking each worker alone, all runs, and a margin. A run
    lasts until its last request is due, and at most two timeouts longer."""
    run = 1.5 * plan.requests_per_run / plan.requests_per_second + 2 * plan.timeout_seconds + plan.washout_seconds
    quiet = QUIET_SECONDS if plan.live else 0.0
    alone = CALIBRATION_SECONDS_PER_WORKER * max(1, plan.workers)
    return round(plan.ready_seconds + quiet + alone + 2 * plan.blocks * run + MARGIN_SECONDS)


def benchmark_job(owner: Owner, plan: Plan, image: str, shadows: Shadows, trace: KeyRef | None) -> Manifest:
    """The Job. Its pod meets Pod Security `restricted`; the shadows are sidecars, so that it ends with the load."""
    return RunJob(
        name=benchmark_job_name(owner, plan.run_id),
        pod=_pod(owner, plan, image, shadows, trace),
        deadline_seconds=deadline_seconds(plan),
        notes={PLAN_DIGEST: digest(encode_plan(plan))},
    ).manifest(owner, plan.run_id)


def _pod(owner: Owner, plan: Plan, image: str, shadows: Shadows, trace: KeyRef | None) -> Manifest:
    volumes: list[object] = [{"name": "kvgate-plan", "configMap": {"name": plan_name(owner, plan.run_id)}}]
    if trace is not None:
        items = [{"key": trace.key, "path": TRACE_KEY}]
        volumes.append({"name": "kvgate-trace", "configMap": {"name": trace.name, "items": items}})
    pod: Manifest = dict(shadows.placement) | {
        "restartPolicy": "Never",
        "serviceAccountName": shadows.service_account,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [_sidecar(container, shadows.user) for container in shadows.containers],
        "containers": [_load(image, traced=trace is not None)],
        "volumes": [*volumes, *map(dict, shadows.volumes)],
    }
    if shadows.pull_secrets:
        pod["imagePullSecrets"] = [dict(secret) for secret in shadows.pull_secrets]
    return pod


def _sidecar(container: Mapping[str, object], user: int | None) -> Manifest:
    """Restarted as long as the pod lives, and ended with it."""
    return dict(container) | {
        "restartPolicy": "Always",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsUser": user or SHADOW_USER,
        },
    }


def _load(image: str, *, traced: bool) -> Manifest:
    mounts = [{"name": "kvgate-plan", "mountPath": "/etc/kvgate/plan", "readOnly": True}]
    words = ["run", "--plan", f"/etc/kvgate/plan/{PLAN_KEY}", "--termination-log", "/dev/termination-log"]
    if traced:
        mounts.append({"name": "kvgate-trace", "mountPath": "/etc/kvgate/trace", "readOnly": True})
        words += ["--trace", f"/etc/kvgate/trace/{TRACE_KEY}"]
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "kvgate_bench"],
        "args": words,
        "resources": {
            "requests": {"cpu": "1", "memory": "256Mi"},
            "limits": {"cpu": "4", "memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "runAsUser": PROBE_USER,
            "runAsGroup": PROBE_USER,
        },
        "volumeMounts": mounts,
    }
