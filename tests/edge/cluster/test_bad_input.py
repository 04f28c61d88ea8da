"""Bad input before a real API server: a condition that says what and who must act, nothing patched, and the next pool
is served by the same worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from kvgate.api.status import PoolStatus
from kvgate.app.operator.grounds import GuardedGround
from kvgate.app.operator.queue import DelayQueue
from kvgate.app.operator.workers import Office, Workers
from kvgate.core.steps import Enable, Step
from kvgate.core.world import Pool, World
from kvgate.edge.cluster import collecting
from kvgate.edge.cluster.ground import ClusterGround
from tests.app.yard import FAST, link_sample
from tests.cluster.waiting import eventually
from tests.core import cases
from tests.edge.cluster.sweeping import RUN, forge_pod, walked
from tests.edge.cluster.yard import Document, Yard, in_namespace, sample

pytestmark = pytest.mark.api

DGD = "dgd.v1beta1.nvidia.com"
MODE = "DYN_VLLM_DISAGGREGATION_MODE"
Break = Callable[["Bench"], object]
Said = tuple[str, str, str, tuple[str, ...]]


@dataclass
class Bench:
    """The operator's worker over one namespace, with a neighbour's pool that must not suffer."""

    yard: Yard
    gone: list[str] = field(default_factory=list)
    amid: Callable[[], object] | None = None
    """What somebody does once between the next look and the patch that it means."""

    def __post_init__(self) -> None:
        queue = DelayQueue(lambda: 0.0)
        guarded = GuardedGround(_Interrupted(self), lambda: None)
        self.workers = Workers(Office(queue, guarded, self.yard.clock, lambda: True, self.gone.append, lambda: 0.0))

    def serve(self, name: str = "qwen3", turns: int = 1) -> PoolStatus:
        """As the worker's loop does: whatever happens in a turn, it comes back from it."""
        for _ in range(turns):
            self.workers.serve(f"{self.yard.namespace}/{name}")
        return PoolStatus.model_validate(self.yard.get("kvpool", name)["status"])

    def patch(self, kind: str, name: str, merged: str) -> None:
        self.yard.kubectl("patch", kind, name, "--type=merge", "-p", merged)

    def recreate(self, document: Document, kind: str) -> None:
        self.yard.kubectl("delete", kind, document["metadata"]["name"])
        self.yard.kubectl("create", "-f", "-", document=document)

    def modes(self) -> list[str | None]:
        """What stands in the gated entries; nothing of a deployment that is gone."""
        if "qwen3" not in self.yard.names("dgd"):
            return []
        found = [self.yard.env(part["name"], MODE) for part in self.yard.deployment()["spec"]["components"]]
        return [str(entry["value"]) for entry in found if entry is not None]


class _Interrupted(ClusterGround):
    """The cluster's ground; what the bench wants done amid a turn is done before its patch."""

    def __init__(self, bench: Bench) -> None:
        yard = bench.yard
        super().__init__(yard.client, lambda: yard.policy, yard.clock, namespaces=[yard.namespace])
        self._bench = bench

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        if isinstance(step, Enable) and self._bench.amid is not None:
            self._bench.amid()
            self._bench.amid = None
        super().carry_out(pool, world, step)


@pytest.fixture
def bench(yard: Yard) -> Bench:
    """A pool in Enforce on fast paths, whose plan is approved, before the turn that would act on it."""
    yard.kubectl("delete", DGD, "qwen3")
    yard.kubectl("create", "-f", "-", document=yard.manifest(without=MODE))
    neighbour(yard)
    made = Bench(yard)
    measured(yard)
    approve(yard, made.serve())
    return made


def neighbour(yard: Yard) -> None:
    target = yard.manifest(without=MODE)
    target["metadata"]["name"] = "neighbour"
    pool = in_namespace(sample("pool.yaml"), yard.namespace)
    pool["metadata"]["name"] = "neighbour"
    pool["spec"] |= {"targetRef": {"name": "neighbour"}, "mode": "Observe"}
    for document in (target, pool):
        yard.kubectl("create", "-f", "-", document=document)


def measured(yard: Yard) -> None:
    pool, world = yard.observe()
    ended = yard.clock().replace(microsecond=0) - timedelta(minutes=1)
    samples = [link_sample("measured", path, ended, FAST) for path in yard.paths()]
    nodes = world.nodes.identities
    found = cases.evidence(
        samples, run_id="measured", pool_uid=pool.uid, planned=yard.paths(), measured_at=ended, nodes=nodes
    )
    collecting.store(yard.client, pool, found)


def approve(yard: Yard, status: PoolStatus, **spec: Any) -> None:
    approval = {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "GateApproval",
        "metadata": {"name": "split", "namespace": yard.namespace},
        "spec": {
            "poolRef": {"name": "qwen3", "uid": yard.observe()[0].uid},
            "capability": "Disaggregation",
            "planHash": status.capabilities[0].plan_hash,
            "approver": "ann@example.com",
            "acceptInconclusive": ["ReducedCapacity"],
            "expiresAt": f"{yard.clock() + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
        }
        | spec,
    }
    yard.kubectl("create", "-f", "-", document=approval)


def condition(status: PoolStatus, kind: str) -> tuple[str, str, str]:
    found = next(held for held in status.conditions if held.type == kind)
    return found.status.value, found.reason, found.message


def test_without_a_fault_the_plan_is_permitted(bench: Bench) -> None:
    assert [capability.value for capability in bench.serve().permitted] == ["Disaggregation"]


def approved_anew(**spec: Any) -> Break:
    def change(bench: Bench) -> None:
        status = PoolStatus.model_validate(bench.yard.get("kvpool", "qwen3")["status"])
        bench.yard.kubectl("delete", "gapp", "split")
        approve(bench.yard, status, **spec)

    return change


def one_worker(bench: Bench) -> None:
    manifest = bench.yard.manifest(without=MODE)
    manifest["spec"]["components"] = manifest["spec"]["components"][:2]
    bench.recreate(manifest, DGD)


def deleted_amid(bench: Bench) -> None:
    bench.amid = lambda: bench.yard.kubectl("delete", DGD, "qwen3")


def other_config(bench: Bench) -> None:
    changed = in_namespace(sample("config.yaml"), bench.yard.namespace)
    text = changed["data"]["config.json"]
    changed["data"]["config.json"] = text.replace('"num_hidden_layers": 28', '"num_hidden_layers": 14')
    bench.yard.access.apply(changed)


def edited_report(bench: Bench) -> None:
    """What admission keeps anybody but the operator from doing; the gate sees it all the same."""
    shard = bench.yard.get("fabrep", "qwen3-measured-0")
    metadata = {key: shard["metadata"][key] for key in ("name", "namespace", "labels")}
    bench.recreate(shard | {"metadata": metadata, "spec": shard["spec"] | {"data": "AAAA"}}, "fabrep")


def later_approval_expires(bench: Bench) -> None:
    expires = f"{bench.yard.clock() + timedelta(seconds=30):%Y-%m-%dT%H:%M:%SZ}"
    approved_anew(expiresAt=expires)(bench)
    bench.yard.ahead = timedelta(minutes=1)


CASES: dict[str, tuple[Break, Said]] = {
    "an unknown target": (
        lambda bench: bench.yard.kubectl("delete", DGD, "qwen3"),
        ("TargetResolved", "False", "TargetNotFound",
         ("there is no DynamoGraphDeployment qwen3 in namespace {namespace}", "correct spec.targetRef")),
    ),
    "a target of the wrong shape": (
        one_worker,
        ("TargetResolved", "False", "TargetNotToggleable",
         ("1 worker components", "exactly 2", "create the deployment with two equal worker components")),
    ),
    "a target deleted between read and patch": (
        deleted_amid,
        ("TargetResolved", "False", "TargetNotFound", ("there is no DynamoGraphDeployment qwen3", "create it")),
    ),
    "a ConfigMap that is missing": (
        lambda bench: bench.yard.kubectl("delete", "configmap", "qwen3-config"),
        ("DisaggregationAccepted", "Unknown", "KVBytesUnknown",
         ("ConfigMap {namespace}/qwen3-config, key config.json does not exist", "create it or correct")),
    ),
    "a ConfigMap that changed since the approval": (
        other_config,
        ("Approved", "False", "ApprovalPlanChanged", ("an approver must create a GateApproval",)),
    ),
    "an approval that has expired": (
        later_approval_expires,
        ("Approved", "False", "ApprovalExpired", ("expired at", "an approver must create")),
    ),
    "an approval for another pool's UID": (
        approved_anew(poolRef={"name": "qwen3", "uid": "0b7ab8d6-0000-0000-0000-000000000000"}),
        ("Approved", "False", "ApprovalMissing", ("an approver must create a GateApproval",)),
    ),
    "a FabricReport that was edited": (
        edited_report,
        ("FabricMeasured", "False", "EvidenceUnreadable",
         ("report qwen3-measured: shard qwen3-measured-0 was altered", "not the one in the index", "measure again")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_a_condition_nothing_is_patched_and_the_next_pool_is_served(case: str, bench: Bench) -> None:
    breaks, (kind, wanted, reason, words) = CASES[case]
    before = bench.modes()
    breaks(bench)
    status = bench.serve(turns=3)

    said = condition(status, kind)
    assert said[:2] == (wanted, reason), said
    assert [word for word in words if word.format(namespace=bench.yard.namespace) not in said[2]] == [], said[2]
    assert bench.modes() in (before, [])
    assert (list(status.permitted), status.history) == ([], ())
    assert bench.serve("neighbour").observed_generation == 1


def test_of_two_pools_for_one_target_the_later_says_whose_it_is_and_patches_nothing(bench: Bench) -> None:
    late = in_namespace(sample("pool.yaml"), bench.yard.namespace)
    late["metadata"]["name"] = "late"
    late["spec"]["fabric"] = bench.yard.get("kvpool", "qwen3")["spec"]["fabric"]
    made = bench.yard.observe()[0].created_at
    eventually(lambda: bench.yard.clock() > made + timedelta(seconds=2), 10)
    bench.yard.kubectl("create", "-f", "-", document=late)
    before = bench.modes()
    status = bench.serve("late", turns=3)

    wanted, reason, message = condition(status, "TargetResolved")
    assert (wanted, reason) == ("False", "ClaimedByOlderPool")
    assert "qwen3" in message
    assert (status.claimed, list(status.permitted), status.sweep, bench.modes()) == (False, [], None, before)
    assert bench.serve("neighbour").observed_generation == 1


@pytest.fixture
def measuring(yard: Yard) -> Bench:
    """A pool whose first sweep is under way, its Jobs recorded."""
    yard.kubectl("delete", DGD, "qwen3")
    yard.kubectl("create", "-f", "-", document=yard.manifest(without=MODE))
    neighbour(yard)
    return Bench(yard)


def test_a_job_deleted_under_our_feet_is_named_and_its_paths_stay_without_a_number(measuring: Bench) -> None:
    """It is the Job of the node that all paths leave; the others measured to the end."""
    walked(measuring.yard)
    fence = measuring.yard.observe()[0].status.sweep
    assert fence is not None
    job = next(job for job in fence.jobs if job.node == measuring.yard.nodes[0])
    measuring.yard.kubectl("delete", "job", job.name)
    status = measuring.serve(turns=3)

    wanted, reason, message = condition(status, "FabricMeasured")
    assert (wanted, reason) == ("False", "CoverageTooLow"), message
    assert f"walker of {job.node}: JobDeleted: Job {job.name} was deleted" in message
    assert (list(status.permitted), status.history, status.sweep) == ([], (), None)
    assert measuring.serve("neighbour").observed_generation == 1


def test_a_log_of_another_run_gives_no_number_and_says_so(measuring: Bench) -> None:
    pods = walked(measuring.yard)
    prints = measuring.yard.client.prints
    prints |= {pod: prints[pod].replace(RUN, "bbbbbbbbbb") for pod in pods.values()}
    status = measuring.serve(turns=3)

    wanted, _, message = condition(status, "FabricMeasured")
    assert wanted != "True"
    assert "of another run: ignored" in message
    assert (list(status.permitted), status.history) == ([], ())
    assert measuring.serve("neighbour").observed_generation == 1


def test_a_forged_log_moves_no_number_and_is_told_beside_them(measuring: Bench) -> None:
    pods = walked(measuring.yard)
    forged = forge_pod(measuring.yard, measuring.yard.nodes[0])
    measuring.yard.client.prints[forged] = measuring.yard.client.prints[pods[measuring.yard.nodes[0]]].replace(
        "940", "1"
    )
    status = measuring.serve(turns=3)

    wanted, _, message = condition(status, "FabricMeasured")
    assert "pod forged: is not of a Job that kvgate recorded: its log is ignored" in message
    assert forged not in measuring.yard.client.asked
    assert status.fabric is not None
    assert status.fabric.link is not None
    assert status.fabric.link.worst is not None
    assert status.fabric.link.worst.bytes_per_second == pytest.approx(940e6 / 8, rel=0.01)
    assert (wanted, list(status.permitted), status.history) == ("True", [], ())
    assert measuring.serve("neighbour").observed_generation == 1
