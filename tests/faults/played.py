"""What is played around one pool before a doubtful API server: the kubelets' part, a person's, and what they see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from kvgate.api.status import PoolStatus
from kvgate.api.words import ApprovalState, Capability
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.cluster.sweeps import stored_schedule
from kvgate.edge.errors import PoolGoneError
from tests.cluster.access import AuditEvent, Document
from tests.core.worlds import entry
from tests.e2e import documents
from tests.edge.cluster.yard import Yard, in_namespace, printed
from tests.faults.doubtful import Doubts

BITS_PER_SECOND = 2.35e9
MODE = "DYN_VLLM_DISAGGREGATION_MODE"
REST_SECONDS = 0.05


@dataclass
class Played:
    """One pool. `status` is the last that was seen of it, `faults` are the rules that its statuses broke."""

    yard: Yard
    plan: Doubts
    deaths: int = 0
    approved: str = ""
    status: PoolStatus | None = None
    faults: list[str] = field(default_factory=list)

    def attend(self) -> None:
        """Whatever waits for a kubelet or for a person."""
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
        return f"after {self.deaths} deaths; met:\n{met}\nsaid:\n{said}"
