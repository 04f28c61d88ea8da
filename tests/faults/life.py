"""One life of a pool before a doubtful API server: measured, approved, switched on, deleted and switched back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kvgate.api.status import PoolStatus
from kvgate.api.words import ApprovalState, Capability
from kvgate.app.ring import Turn, turn
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.cluster.sweeps import ProbePolicy, stored_schedule
from kvgate.edge.connection import credentials
from kvgate.edge.errors import EdgeError, PoolGoneError
from tests.cluster.access import AuditEvent, Document, write_kubeconfig
from tests.core.worlds import entry
from tests.e2e import documents
from tests.edge.cluster.yard import IMAGE, Dying, KubeletLogs, Yard, in_namespace, printed
from tests.faults.doubtful import Doubts
from tests.invariants import broken

BITS_PER_SECOND = 2.35e9
MODE = "DYN_VLLM_DISAGGREGATION_MODE"
AGENT = "kvgate/faults"
REST_SECONDS = 0.05
LONGEST_SECONDS = 90.0
"""For each of the two halves of a life."""


class Mortal(KubeletLogs):
    """kvgate's client, whose process ends where the plan says so."""

    def __init__(self, address: str, yard: Yard, plan: Doubts) -> None:
        kubeconfig = yard.access.directory / f"{yard.namespace}.kubeconfig"
        write_kubeconfig(kubeconfig, address, yard.access.authority, yard.access.token)
        super().__init__(credentials(str(kubeconfig)))
        self._api.user_agent = AGENT
        self.prints, self.plan = yard.client.prints, plan

    def _ask(self, method: str, path: str, what: str, **rest: Any) -> str:
        try:
            return super()._ask(method, path, what, **rest)
        finally:
            if self.plan.dead:
                self.plan.dead = False
                raise Dying


@dataclass
class Life:
    """What happened to one pool. `hands` is what else happens after a turn, by its number."""

    yard: Yard
    address: str
    plan: Doubts
    hands: Callable[[int], None] = lambda _: None
    deaths: int = 0
    turns: int = 0
    gone: bool = False
    approved: str = ""
    status: PoolStatus | None = None
    faults: list[str] = field(default_factory=list)
    ground: ClusterGround = field(init=False)

    def __post_init__(self) -> None:
        self.born()

    def born(self) -> None:
        """A process that remembers nothing."""
        client = Mortal(self.address, self.yard, self.plan)
        policy = ProbePolicy(IMAGE)
        self.ground = ClusterGround(client, lambda: policy, self.yard.clock, namespaces=[self.yard.namespace])

    def turn(self) -> Turn | None:
        """One turn of whichever process lives now; None where it failed as it may."""
        self.turns += 1
        self.hands(self.turns)
        try:
            taken = turn(self.ground, self.yard.key, self.yard.clock)
        except Dying:
            self.deaths += 1
            self.born()
        except PoolGoneError:
            self.gone = True
        except EdgeError:
            time.sleep(REST_SECONDS)
        else:
            self._told(taken)
            return taken
        return None

    def _told(self, taken: Turn) -> None:
        before, self.status = self.status, taken.decision.status
        now = self.yard.clock()
        self.faults += broken(self.status, taken.pool.generation, now, before)

    def until(self, holds: Callable[[Turn | None], bool]) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not holds(self.turn()):
            assert not self.gone, self.story()
            assert time.monotonic() < deadline, self.story()
            with suppress(Unavailable):  # a server that has just been started anew: these hands try again too
                self.walk()
                self.approve()
            time.sleep(REST_SECONDS)

    def walk(self) -> None:
        """The kubelets' part: what pods of walkers there are start, measure a good link, print it and end."""
        pods = [pod for pod in self.yard.pods_of_jobs() if pod.get("status", {}).get("phase") in {"Pending", "Running"}]
        for run in sorted({str(pod["metadata"]["labels"]["kvgate.dev/run"]) for pod in pods}):
            with suppress(PoolGoneError):  # the garbage collector has yet to take its pods
                self._walk(run, [pod for pod in pods if pod["metadata"]["labels"]["kvgate.dev/run"] == run])

    def _walk(self, run: str, pods: Sequence[Document]) -> None:
        schedule = stored_schedule(self.yard.client, self.yard.observe()[0].owner, run)
        held = {str(pod["metadata"]["annotations"]["kvgate.dev/node"]): str(pod["metadata"]["name"]) for pod in pods}
        addresses = {node: f"10.9.0.{number}" for number, node in enumerate(sorted(held), start=1)}
        for node, pod in held.items():
            self.yard.set_pod_status(pod, "Running", addresses[node])
        if schedule is None or len(held) < len(schedule.nodes):
            return
        for node, pod in held.items():
            self.yard.client.prints[pod] = printed(schedule, node, addresses, BITS_PER_SECOND)
            self.yard.set_pod_status(pod, "Succeeded", addresses[node])

    def approve(self) -> None:
        """A person's word for the plan that waits."""
        status = self.status
        if status is None or not status.capabilities:
            return
        waiting = entry(status, Capability.DISAGGREGATION)
        if waiting.plan_hash not in {"", self.approved} and waiting.approval.state is ApprovalState.MISSING:
            uid, self.approved = self.yard.observe()[0].uid, waiting.plan_hash
            word = documents.approval("qwen3", uid, status, ("ReducedCapacity",))
            self.yard.access.apply(in_namespace(word, self.yard.namespace))

    def modes(self) -> list[str | None]:
        found = [self.yard.env(component, MODE) for component in ("PrefillWorker", "DecodeWorker")]
        return [None if held is None else str(held.get("value")) for held in found]

    def generation(self) -> int:
        return int(self.yard.deployment()["metadata"]["generation"])

    def writes(self, after_byte: int) -> list[AuditEvent]:
        """What the API server carried out in the namespace, by anybody, oldest first."""
        events = self.yard.access.audit_events(after_byte)
        done = (e for e in events if e.namespace == self.yard.namespace and 200 <= e.status_code < 300)
        return [e for e in done if e.verb not in {"get", "list", "watch"}]

    def story(self) -> str:
        met = "\n".join(self.plan.met)
        told = self.status.conditions if self.status else ()
        said = "\n".join(f"{c.type} {c.status} {c.reason}: {c.message}" for c in told)
        return f"after {self.turns} turns and {self.deaths} deaths; met:\n{met}\nsaid:\n{said}"
