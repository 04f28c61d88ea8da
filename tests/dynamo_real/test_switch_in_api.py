"""The whole switch in a real API server, under load: measured before, patched, verified, or patched back.

Dynamo's operator is played by the stand-in, its pods are real local processes; kvgate's ring, its reading of pods and
cards, its patch and its canaries are the product's own. Sweeps can't run without nodes: their report is written here.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kvgate.api.status import PoolStatus, Verification
from kvgate.api.words import ConditionType
from kvgate.app.ring import turn
from kvgate.core.evidence import Path as FabricPath
from kvgate.core.world import World
from kvgate.dynamo.words import SPLIT_ENV
from kvgate.edge.cluster import collecting
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.cluster.sweeps import ProbePolicy
from tests.cluster.access import Access
from tests.core import cases
from tests.core.worlds import SPLIT, actions, condition, told
from tests.dynamo_real.switching_rig import BYTES_PER_SECOND, TOKENS, lies, truth
from tests.dynamo_stage import model
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Role, Worker
from tests.dynamo_stage.stage import Stage
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.installing import install, uninstall_rules
from tests.dynamo_stage.standin.local import LocalRuntime
from tests.dynamo_stage.standin.mirror import ApiMirror
from tests.dynamo_stage.standin.samples import deployment
from tests.dynamo_stage.standin.sources import ApiSource
from tests.edge.cluster.yard import CRDS, set_ready

pytestmark = [pytest.mark.api, pytest.mark.dynamo, pytest.mark.timeout(500)]
DGD = "dynamographdeployments.v1beta1.nvidia.com"
NODES = {"Frontend": "s1", "PrefillWorker": "s1", "DecodeWorker": "s2"}
ENABLED, BACK, READY = ConditionType.DISAGGREGATION_ENABLED, ConditionType.ROLLED_BACK, ConditionType.READY


def now() -> datetime:
    return datetime.now(UTC)


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

    @property
    def key(self) -> str:
        return f"default/{self.name}"

    def look(self) -> tuple[ReadPool, World]:
        """As soon as the server serves kinds that it has just learned of."""
        seen: list[tuple[ReadPool, World]] = []

        def once() -> bool:
            with suppress(Unavailable):
                seen.append(self.ground.observe(self.key))
            return bool(seen)

        self.stage.until(once, "the pool to be read")
        return seen[0]

    def open(self) -> None:
        """One good sweep of the pool's one path, and an approval of its plan."""
        pool, world = self.look()
        sample = cases.sample(FabricPath("s1", "s2"), BYTES_PER_SECOND, run_id="0123456789", measured_at=now())
        evidence = cases.evidence(
            (sample,),
            run_id="0123456789",
            pool_uid=pool.uid,
            planned=(sample.path,),
            measured_at=now(),
            nodes=world.nodes.identities,
        )
        collecting.store(self.client, pool, evidence)
        status = self.until(lambda status: bool(split(status)), "a plan")
        self.access.apply(approval_document(self.name, pool.uid, split(status)))

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
        document = self.access.get(DGD, self.name)
        for component in document["spec"]["components"][1:]:
            container = component["podTemplate"]["spec"]["containers"][0]
            container["env"] = [*container["env"], {"name": "RESTARTED", "value": "once"}]
        head = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
        self.access.apply(head | {"metadata": {"name": self.name, "namespace": "default"}, "spec": document["spec"]})
        self.stage.until(lambda: rolled_out(self.access.get(DGD, self.name)), "the restart")

    def until(self, holds: Callable[[PoolStatus], bool], what: str, seconds: float = 150.0) -> PoolStatus:
        seen: list[PoolStatus] = []

        def once() -> bool:
            with suppress(Unavailable):
                seen.append(turn(self.ground, self.key, now).decision.status)
            return bool(seen) and holds(seen[-1])

        try:
            self.stage.until(once, what, seconds=seconds)
        except AssertionError as error:
            lines = [f"{c.type} {c.status} {c.reason}: {c.message}" for c in seen[-1].conditions]
            raise AssertionError("\n".join((str(error), *lines))) from error
        return seen[-1]

    def modes(self) -> dict[str, str]:
        components = self.access.get(DGD, self.name)["spec"]["components"]
        found = {c["name"]: c["podTemplate"]["spec"]["containers"][0].get("env", []) for c in components}
        return {name: e["value"] for name, env in found.items() for e in env if e["name"] == SPLIT_ENV}


def rolled_out(document: dict[str, object]) -> bool:
    status, metadata = document.get("status"), document["metadata"]
    assert isinstance(metadata, dict)
    if not isinstance(status, dict) or status.get("observedGeneration") != metadata["generation"]:
        return False
    return bool(status["conditions"][0]["status"] == "True")


def split(status: PoolStatus) -> str:
    found = (entry.plan_hash for entry in status.capabilities if entry.name is SPLIT)
    return next(found, "")


def memory(status: PoolStatus) -> Verification:
    return next(entry for entry in status.verifications if entry.capability is SPLIT)


def pool_document(name: str) -> dict[str, object]:
    return {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "mode": "Enforce",
            "enforcement": {"onConflict": "TakeOver"},
            "targetRef": {"name": name},
            "model": {"name": model.NAME, "kvCache": {"bytesPerToken": cases.BYTES_PER_TOKEN}},
            "workload": {"prompts": [{"tokens": TOKENS}], "peakRequestsPerSecond": "0.2"},
            "fabric": {
                "prefillNodes": {"matchLabels": {"kubernetes.io/hostname": "s1"}},
                "decodeNodes": {"matchLabels": {"kubernetes.io/hostname": "s2"}},
                "probe": {"endpoint": {"tool": "none"}, "phases": ["Isolated"]},
            },
            "criteria": {"disaggregation": {"ttftBudget": "2s"}},
            "rollback": {"onDelete": {"disaggregation": "Leave"}},
        },
    }


def approval_document(name: str, uid: str, plan_hash: str) -> dict[str, object]:
    return {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "GateApproval",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "poolRef": {"name": name, "uid": uid},
            "capability": "Disaggregation",
            "planHash": plan_hash,
            "approver": "jane@example.com",
            "acceptInconclusive": ["ReducedCapacity"],
            "reason": "a test",
            "expiresAt": (now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    }


@contextmanager
def beating(access: Access, nodes: set[str]) -> Iterator[None]:
    """Play the kubelets' heartbeat: without one the node controller takes the nodes away after 40 s."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(10):
            for node in nodes:
                set_ready(access, node, "True")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def gate(control_plane: Access, stage: Stage, tmp_path: Path) -> Iterator[Gate]:
    control_plane.load_crds(CRDS)
    operator, name = install(control_plane), f"qwen-{secrets.token_hex(2)}"
    for node in set(NODES.values()):
        labels = {"kubernetes.io/hostname": node}
        control_plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}})
        set_ready(control_plane, node, "True")
    api = operator.api_client()
    mirrored = ApiMirror(api, stage.discovery, lambda batch: NODES[batch.component.name])
    with beating(control_plane, set(NODES.values())), mirrored as mirror:
        runtime = LocalRuntime(stage, mirror=mirror)
        control_plane.apply(deployment(name))
        with StandIn(ApiSource(api, "default"), runtime):
            stage.until(lambda: rolled_out(control_plane.get(DGD, name)), "the deployment to be Ready")
            stage.until(lambda: runtime.door(name).readiness().ready, "the model to be ready")
            client = Client(control_plane.api_client().configuration, "kvgate/test")
            ground = ClusterGround(client, lambda: ProbePolicy("probe"), now, namespaces=["default"])
            yield Gate(control_plane, stage, runtime, name, tmp_path, ground, client)
            control_plane.kubectl("delete", "kvpool", name, "--wait=false")
            control_plane.kubectl("delete", DGD, name, check=True)
    for node in set(NODES.values()):
        control_plane.kubectl("delete", "node", node, check=True)
    uninstall_rules(control_plane)


def opened(gate: Gate) -> None:
    gate.access.apply(pool_document(gate.name))
    gate.shaped(lambda worker: worker)
    gate.restarted()
    gate.open()


def test_a_healthy_split_is_measured_patched_and_verified_without_an_outage(gate: Gate) -> None:
    opened(gate)
    with SteadyLoad(gate.runtime.door(gate.name), 4) as load:
        status = gate.until(lambda seen: told(seen, ENABLED)[0] == "True", "a verified split")
    assert told(status, READY) == ("True", "Enabled")
    assert gate.modes() == {"PrefillWorker": "prefill", "DecodeWorker": "decode"}
    assert [entry.link for entry in memory(status).passed][-4:] == ["WorkerPaths", "Requests", "Answers", "TTFT"]
    assert memory(status).calibration[0].observed_to_estimated
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 1, load.told()


def test_a_decode_worker_that_corrupts_is_patched_back_without_an_outage(gate: Gate) -> None:
    opened(gate)
    pool, _ = gate.look()
    wrong = lies(gate.folder, pool.uid)
    gate.shaped(lambda worker: replace(worker, replay=wrong) if worker.role is Role.DECODE else worker)
    with SteadyLoad(gate.runtime.door(gate.name), 4) as load:
        status = gate.until(lambda seen: told(seen, BACK)[0] == "True", "a rollback")
        gate.stage.until(lambda: rolled_out(gate.access.get(DGD, gate.name)), "the way back")
    assert actions(status) == ["Reverted", "Enabled"]
    assert status.history[0].reason == "AnswersDiffer"
    assert "Answers: " in condition(status, BACK).message
    assert gate.modes() == {"PrefillWorker": "agg", "DecodeWorker": "agg"}
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 2, load.told()
