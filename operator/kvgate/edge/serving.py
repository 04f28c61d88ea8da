"""The running deployment of one pool: its frontends among the pods, its rollout, and the verifier that asks them."""

from __future__ import annotations

from collections.abc import Iterable

from kvgate.api.words import Mode
from kvgate.core.serving import Rollout, ServingSeen
from kvgate.core.steps import Prepare, Verify
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.core.world import Pool
from kvgate.dynamo.rollout import read_rollout
from kvgate.edge.canary import Frontend
from kvgate.edge.objects import Objects
from kvgate.edge.observe import target_document, target_of
from kvgate.edge.verifier import Verifier


def frontends(pods: Iterable[WorkerPod]) -> tuple[Frontend, ...]:
    """Every frontend replica by its own address, never the Service: behind that, one that lags is met by chance."""
    fronts = (pod for pod in pods if pod.role is PodRole.FRONTEND and pod.address and not pod.leaving)
    return tuple(Frontend(pod.pod, pod.address) for pod in sorted(fronts, key=lambda pod: pod.pod))


def seen(verifier: Verifier, pool: Pool, pods: Iterable[WorkerPod], objects: Objects) -> ServingSeen:
    """What has arrived of the deployment; frontends are asked only where the pool may switch it."""
    source = target_document(pool, objects)
    rollout = Rollout(0) if source is None else read_rollout(source.body, target_of(source))
    enforces = pool.spec.mode is Mode.ENFORCE and not pool.spec.suspend
    return verifier.seen(pool.key, pool.spec.model.name, frontends(pods) if enforces else (), rollout)


def ask(verifier: Verifier, pool: Pool, pods: Iterable[WorkerPod], step: Prepare | Verify) -> None:
    verifier.start(pool.key, step.capability, step.exam, frontends(pods))
