"""A routing A/B in the cluster: how its Job stands, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvgate.api.pool import Benchmark
from kvgate.core.digests import digest
from kvgate.core.runs import RunningJob
from kvgate.dynamo.document import at, mappings, shown, text
from kvgate.dynamo.shadow import NoShadow, shadows
from kvgate.dynamo.words import RouterMode
from kvgate.edge.cluster import runs
from kvgate.edge.cluster.bench_serving import Serving, asked_of
from kvgate.edge.cluster.client import CONFIG_MAPS, JOBS, Client, Document
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import NotFound
from kvgate.edge.cluster.walkers import has_ended, is_of_run, pod_of
from kvgate.edge.errors import MeasureError
from kvgate.probe.benchmark_job import (
    KV_PORT,
    PLAN_KEY,
    ROUND_ROBIN_PORT,
    Shadows,
    benchmark_job,
    benchmark_job_name,
    plan_config_map,
    plan_name,
)
from kvgate.probe.benchmark_plan import Served, plan_ab
from kvgate.probe.jobs import Owner
from kvgate_bench.wire import Plan, decode_plan
from kvgate_probe.fields import WireError

_AB = "A/B"
FRONTEND_PORT = 8000
PORTS = {RouterMode.ROUND_ROBIN: ROUND_ROBIN_PORT, RouterMode.KV: KV_PORT}


def standing(client: Client, pool: ReadPool) -> RunningJob | None:
    """The Job of the A/B that the status means; None where there is none of ours."""
    fence = pool.status.benchmark
    if fence is None:
        return None
    job = job_of(client, pool.owner, fence.run_id)
    if job is None:
        return None
    waits = not has_ended(job)
    trouble = _trouble(pod_of(runs.uid_of(job), runs.pods_of(client, pool.owner, fence.run_id))) if waits else ""
    return runs.standing(job, fence.run_id, trouble)


def job_of(client: Client, owner: Owner, run_id: str) -> Document | None:
    return runs.job_of(client, owner, run_id, benchmark_job_name(owner, run_id))


def _trouble(pod: Document) -> str:
    """What keeps its containers from starting, in the kubelet's own word; empty while nothing does."""
    states = (*mappings(at(pod, "status", "initContainerStatuses")), *mappings(at(pod, "status", "containerStatuses")))
    words = {
        f"container {shown(text(state.get('name')))}: {shown(text(at(state, 'state', 'waiting', 'reason')))}"
        for state in states
        if text(at(state, "state", "waiting", "reason")) not in {"", "PodInitializing", "ContainerCreating"}
    }
    held = mappings(at(pod, "status", "conditions"))
    unplaced = any(c.get("type") == "PodScheduled" and c.get("reason") == "Unschedulable" for c in held)
    return "no node takes its pod" if unplaced else "; ".join(sorted(words))


@dataclass(frozen=True)
class Known:
    """What is known of the workload: how many token IDs the model has, and the trace's SHA-256, empty without one."""

    vocabulary_size: int | None = None
    trace_digest: str = ""


def start(client: Client, pool: ReadPool, run_id: str, found: Serving | None, image: str, known: Known) -> None:
    """Make the plan and the Job, or what is missing of them. Raises MeasureError where it may not be."""
    asked = asked_of(pool)
    if found is None or asked is None or found.facts is None or found.frontend is None or found.ground.problem:
        raise MeasureError((found.ground.problem if found else "") or "no A/B is asked for")
    taken = shadows(found.frontend, found.facts.namespace, PORTS)
    if isinstance(taken, NoShadow):
        raise MeasureError(f"no shadow can be made of the frontend: {taken.message}")
    plan = _settled_plan(client, pool.owner, _plan(pool, run_id, asked, found, known))
    copied = Shadows(
        taken.service_account, taken.containers, taken.volumes, taken.pull_secrets, taken.user, taken.placement
    )
    trace = asked.trace.config_map_key_ref if asked.trace else None
    job: Mapping[str, object] = benchmark_job(pool.owner, plan, image, copied, trace)
    runs.make(client, JOBS, job, job, lambda: _made_before(client, pool.owner, run_id), _AB)


def _plan(pool: ReadPool, run_id: str, asked: Benchmark, found: Serving, known: Known) -> Plan:
    facts = found.facts
    if facts is None:
        raise MeasureError("no A/B can be planned for workers that are not known")
    live = tuple(f"http://{_host(pod.address)}:{FRONTEND_PORT}" for pod in facts.frontends if pod.address)
    served = Served(
        model=facts.model,
        workers=facts.workers,
        block_tokens=facts.block_tokens,
        cache_blocks=facts.cache_blocks,
        vocabulary_size=known.vocabulary_size,
        live=live,
        on_live=found.ground.on_live,
        trace_digest=known.trace_digest,
    )
    try:
        return plan_ab(run_id, pool.uid, asked, pool.spec.workload.prompts, served)
    except ValueError as error:
        raise MeasureError(str(error)) from error


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _settled_plan(client: Client, owner: Owner, plan: Plan) -> Plan:
    """The plan, or the one that an earlier attempt at this run left behind."""

    def kept() -> Plan | None:
        stored = stored_plan(client, owner, plan.run_id)
        return stored[0] if stored else None

    return runs.make(client, CONFIG_MAPS, plan_config_map(owner, plan), plan, kept, _AB)


def stored_plan(client: Client, owner: Owner, run_id: str) -> tuple[Plan, str] | None:
    """The plan that the run was given, and its digest; None when it is not there, not ours, or cannot be read."""
    try:
        found = client.get(CONFIG_MAPS, owner.namespace, plan_name(owner, run_id))
        written = text(at(found, "data", PLAN_KEY))
        plan = decode_plan(written)
    except (NotFound, WireError):
        return None
    ours = is_of_run(found, owner, run_id) and (plan.run_id, plan.pool_uid) == (run_id, owner.uid)
    return (plan, digest(written)) if ours else None


def _made_before(client: Client, owner: Owner, run_id: str) -> Mapping[str, object] | None:
    found = client.get(JOBS, owner.namespace, benchmark_job_name(owner, run_id))
    return found if is_of_run(found, owner, run_id) else None
