"""kvgate's own ring over one pool in a real API server, whose deployment the stand-in runs as real local processes.

Sweeps and A/Bs can't run without nodes: their reports are written here. Pods say that they became ready more than a
minute before they did, for younger ones are not judged by their KV events; a test may move the operator's clock on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kvgate.api.status import PoolStatus, Verification
from kvgate.api.words import Capability
from kvgate.app.ring import Turn, turn
from kvgate.core.ab.experiment import Experiment
from kvgate.core.evidence import Path as FabricPath
from kvgate.core.world import World
from kvgate.dynamo.words import SPLIT_ENV
from kvgate.edge.cluster import collecting
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.errors import PoolGoneError, WriteConflictError
from tests.cluster.access import Access, Document
from tests.core import cases
from tests.core.worlds import SPLIT, entry
from tests.dynamo_real.switching_documents import approval_document, benchmark_documents, pool_document
from tests.dynamo_real.switching_rig import BYTES_PER_SECOND, truth
from tests.dynamo_stage.client import UserDoor
from tests.dynamo_stage.load import Sent, SteadyLoad
from tests.dynamo_stage.specs import Role, Worker
from tests.dynamo_stage.stage import Stage
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.installing import install, uninstall_rules
from tests.dynamo_stage.standin.local import LocalRuntime
from tests.dynamo_stage.standin.mirror import ApiMirror
from tests.dynamo_stage.standin.samples import deployment
from tests.dynamo_stage.standin.sources import ApiSource
from tests.edge.cluster.yard import CRDS, beating, set_ready

DGD = "dynamographdeployments.v1beta1.nvidia.com"
NODES = {"Frontend": "s1", "PrefillWorker": "s1", "DecodeWorker": "s2"}
ROUTER_ENV = "DYN_ROUTER_MODE"
GROWN_UP = timedelta(seconds=70)
STOPPING = "Failed to generate completions"
"""What a frontend of Dynamo 1.6.1 that routes by KV cache answers, with 500, to what waits for a worker when it is
asked to stop: it forgets the workers before it has drained ("no endpoints available to route work")."""


@dataclass
class Clock:
    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class Gate:
    """One pool over one deployment, and the ring that turns for it."""

    access: Access
    stage: Stage
    runtime: LocalRuntime
    name: str
    folder: Path
    ground: ClusterGround
    client: Client
    clock: Clock

    @property
    def key(self) -> str:
        return f"default/{self.name}"

    @property
    def door(self) -> UserDoor:
        return self.runtime.door(self.name)

    def look(self) -> tuple[ReadPool, World]:
        """As soon as the server serves kinds that it has just learned of."""
        seen: list[tuple[ReadPool, World]] = []

        def once() -> bool:
            with suppress(Unavailable):
                seen.append(self.ground.observe(self.key))
            return bool(seen)

        self.stage.until(once, "the pool to be read")
        return seen[0]

    def asked(self, **changes: object) -> None:
        """The pool; workers that are started from now on give its own answers."""
        self.access.apply(pool_document(self.name, **changes))
        self.shaped(lambda worker: worker)

    def opened(self, **changes: object) -> None:
        """The pool, over workers that were started anew."""
        self.asked(**changes)
        self.restarted()

    def swept(self) -> None:
        """One good sweep of the pool's one path."""
        pool, world = self.look()
        run, at = secrets.token_hex(5), self.clock()
        sample = cases.sample(FabricPath("s1", "s2"), BYTES_PER_SECOND, run_id=run, measured_at=at)
        evidence = cases.evidence(
            (sample,),
            run_id=run,
            pool_uid=pool.uid,
            planned=(sample.path,),
            measured_at=at,
            nodes=world.nodes.identities,
        )
        collecting.store(self.client, pool, evidence)

    def approved(self) -> None:
        """The split's plan that stands in the status once it was measured."""
        status = self.until(lambda seen: bool(_plan(seen)), "a plan")
        pool, _ = self.look()
        self.access.apply(approval_document(self.name, pool.uid, _plan(status)))

    def withdrawn(self) -> None:
        self.access.kubectl("delete", "gateapproval", self.name, check=True)

    def compared(self, found: Experiment) -> None:
        """An A/B of the deployment as it stands that recorded this."""
        pool, world = self.look()
        self.access.apply(*benchmark_documents(pool, world, found, self.clock()))

    def shaped(self, change: Callable[[Worker], Worker]) -> None:
        """What workers are like from now on: good answers and transfer times by the evidence, and this change."""
        pool, _ = self.look()
        good = truth(self.folder, pool.uid)

        def shape(_: Batch, worker: Worker) -> Worker:
            plain = replace(worker, replay=good, kv_bytes_per_token=cases.BYTES_PER_TOKEN)
            rated = replace(plain, kv_transfer_bytes_per_second=BYTES_PER_SECOND)
            return change(rated if worker.role is Role.PREFILL else plain)

        self.runtime.shape = shape

    def restarted(self) -> None:
        """All workers anew, as they are shaped now: the deployment's own answers are the ones to compare with."""
        document = self.deployment()
        for component in document["spec"]["components"][1:]:
            container = component["podTemplate"]["spec"]["containers"][0]
            others = [one for one in container["env"] if one["name"] != "RESTARTED"]
            container["env"] = [*others, {"name": "RESTARTED", "value": f"r{secrets.token_hex(2)}"}]
        head = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
        self.access.apply(head | {"metadata": {"name": self.name, "namespace": "default"}, "spec": document["spec"]})
        self.until_rolled_out()

    def until_rolled_out(self) -> None:
        self.stage.until(lambda: rolled_out(self.deployment()), "the deployment to be Ready")

    def turn(self) -> Turn | None:
        """None where the server was away or the pool changed meanwhile, as the operator tries again."""
        with suppress(Unavailable, WriteConflictError):
            return turn(self.ground, self.key, self.clock)
        return None

    def until(self, holds: Callable[[PoolStatus], bool], what: str, seconds: float = 150.0) -> PoolStatus:
        seen: list[PoolStatus] = []

        def once() -> bool:
            taken = self.turn()
            seen.extend((taken.decision.status,) if taken else ())
            return bool(seen) and holds(seen[-1])

        try:
            self.stage.until(once, what, seconds=seconds)
        except AssertionError as error:
            lines = [f"{c.type} {c.status} {c.reason}: {c.message}" for status in seen[-1:] for c in status.conditions]
            raise AssertionError("\n".join((str(error), *lines))) from error
        return seen[-1]

    def until_on(self, capability: Capability) -> PoolStatus:
        """Switched on, and verified on the running deployment."""

        def verified(status: PoolStatus) -> bool:
            return any(one.capability is capability and one.verified_at for one in status.verifications)

        return self.until(verified, f"a verified {capability}")

    def until_off(self, capability: Capability) -> PoolStatus:
        """The patch back is recorded, and every pod runs as it did before."""

        def reverted(status: PoolStatus) -> bool:
            newest = next((held for held in status.history if held.capability is capability), None)
            return newest is not None and newest.action == "Reverted"

        status = self.until(reverted, f"{capability} to be switched back")
        self.until_rolled_out()
        return status

    def until_gone(self) -> None:
        """The pool is deleted once nothing of it is left to be switched back."""
        self.access.kubectl("delete", "kvpool", self.name, "--wait=false", check=True)

        def gone() -> bool:
            try:
                self.turn()
            except PoolGoneError:
                return True
            return False

        self.stage.until(gone, "the pool to be gone")
        self.until_rolled_out()

    def deployment(self) -> Document:
        return self.access.get(DGD, self.name)

    def modes(self) -> dict[str, str]:
        """What each component holds of the two gated variables."""
        found = {c["name"]: _environment(c) for c in self.deployment()["spec"]["components"]}
        gated = {SPLIT_ENV, ROUTER_ENV}
        return {name: value for name, env in found.items() for key, value in env.items() if key in gated}


def _environment(component: Document) -> dict[str, str]:
    container = component["podTemplate"]["spec"]["containers"][0]
    return {one["name"]: one["value"] for one in container.get("env", [])}


def rolled_out(document: Document) -> bool:
    status, metadata = document.get("status"), document["metadata"]
    assert isinstance(metadata, dict)
    if not isinstance(status, dict) or status.get("observedGeneration") != metadata["generation"]:
        return False
    return bool(status["conditions"][0]["status"] == "True")


def stopped(load: SteadyLoad) -> list[Sent]:
    """What was lost in a frontend that stopped."""
    return [one for one in load.failed() if one.answer.status == 500 and STOPPING in one.answer.error]


def outages(load: SteadyLoad) -> list[Sent]:
    """Every failure but those that Dynamo makes in any change of a generation or a frontend."""
    known = (*load.raced(), *stopped(load))
    return [one for one in load.failed() if one not in known]


def _plan(status: PoolStatus) -> str:
    return entry(status, SPLIT).plan_hash if status.capabilities else ""


def memory(status: PoolStatus, capability: Capability = SPLIT) -> Verification:
    return next(one for one in status.verifications if one.capability is capability)


@contextmanager
def gated(
    control_plane: Access, stage: Stage, folder: Path, replicas: tuple[int, int, int] = (1, 1, 1)
) -> Iterator[Gate]:
    """An aggregated deployment that serves, and the operator's ring, for which no pool exists yet."""
    control_plane.load_crds(CRDS)
    operator, name = install(control_plane), f"qwen-{secrets.token_hex(2)}"
    for node in set(NODES.values()):
        marks = {"kubernetes.io/hostname": node}
        control_plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": marks}})
        set_ready(control_plane, node, "True")
    api, clock = operator.api_client(), Clock()
    mirrored = ApiMirror(api, stage.discovery, lambda batch: NODES[batch.component.name], GROWN_UP)
    with beating(control_plane, set(NODES.values())), mirrored as mirror:
        runtime = LocalRuntime(stage, mirror=mirror)
        control_plane.apply(deployment(name, replicas=replicas))
        with StandIn(ApiSource(api, "default"), runtime):
            stage.until(lambda: rolled_out(control_plane.get(DGD, name)), "the deployment to be Ready")
            stage.until(lambda: runtime.door(name).readiness().ready, "the model to be ready")
            client = Client(control_plane.api_client().configuration, "kvgate/test")
            ground = ClusterGround(client, lambda: ProbePolicy("probe"), clock, namespaces=["default"])
            yield Gate(control_plane, stage, runtime, name, folder, ground, client, clock)
            _cleared(control_plane, name)
    for node in set(NODES.values()):
        control_plane.kubectl("delete", "node", node, check=True)
    uninstall_rules(control_plane)


def _cleared(access: Access, name: str) -> None:
    """No ring turns any more that would take the pool's finalizer off."""
    free = '{"metadata":{"finalizers":null}}'
    access.kubectl("delete", "kvpool", name, "--wait=false", "--ignore-not-found")
    access.kubectl("patch", "kvpool", name, "--type=merge", "-p", free)
    access.kubectl("delete", DGD, name, check=True)
