"""From events to pools: which keys each kind of event queues."""

from collections.abc import Callable
from typing import Any

import kopf
import pytest

from kvgate.app.operator import handlers
from kvgate.app.operator.intake import Intake, Known

OURS = {"apiVersion": "kvgate.dev/v1alpha1", "kind": "InferencePool", "name": "qwen3", "uid": "u"}


def event(type: str | None = "MODIFIED", **body: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": type, "object": body}


def known() -> tuple[Intake, list[str]]:
    """Two pools in one namespace, one of the same name and target in another."""
    added: list[str] = []
    intake = Intake(added.append)
    for namespace, name, target in (("a", "qwen3", "qwen3"), ("a", "llama", "llama"), ("b", "qwen3", "qwen3")):
        intake.pool(namespace, name, Known(target))
    added.clear()
    return intake, added


POOL = event(spec={"targetRef": {"name": "qwen3"}})
AB = {"routing": {"benchmark": {"targetRef": {"name": "staging"}}}}
TRYING = event("ADDED", spec={"targetRef": {"name": "llama"}, "criteria": AB})


def of(uid: str, target: str, type: str = "MODIFIED") -> dict[str, Any]:  # noqa: A002
    return event(type, metadata={"uid": uid}, spec={"targetRef": {"name": target}})


GAIE = {**OURS, "apiVersion": "inference.networking.k8s.io/v1"}
ALL = {"a/qwen3", "a/llama", "b/qwen3"}


def second_pool_comes_and_goes(intake: Intake) -> None:
    handlers.pool(POOL, "a", "second", param=intake)
    handlers.pool(event("DELETED"), "a", "second", param=intake)


Act = Callable[[Intake], None]


def pool(body: dict[str, Any], name: str) -> Act:
    return lambda intake: handlers.pool(body, "a", name, param=intake)


def approval(ref: object) -> Act:
    return lambda intake: handlers.approval(event(spec={"poolRef": ref}), "a", param=intake)


def job(*owners: object) -> Act:
    return lambda intake: handlers.job(event(metadata={"ownerReferences": list(owners)}), "a", param=intake)


def node_event(body: dict[str, Any]) -> Act:
    return lambda intake: handlers.node(body, "n1", param=intake)


CASES: list[tuple[str, Act, set[str]]] = [
    ("a pool queues itself", pool(event(spec={"targetRef": {"name": "free"}}), "new"), {"a/new"}),
    ("a pool that is new to a target queues those that are there", pool(POOL, "new"), {"a/new", "a/qwen3"}),
    ("a pool that was known queues itself alone", pool(POOL, "qwen3"), {"a/qwen3"}),
    ("a pool whose target cannot be read queues itself too", pool(event(spec=3), "x"), {"a/x"}),
    ("a deleted pool queues itself and those of the same target", second_pool_comes_and_goes, {"a/second", "a/qwen3"}),
    ("a deleted pool that nobody heard of queues nothing", pool(event("DELETED"), "never"), set()),
    ("an approval queues its pool, also one not heard of yet", approval({"name": "later"}), {"a/later"}),
    ("an approval that names no pool queues nothing", approval([]), set()),
    ("a Job queues the pool that owns it", job(OURS), {"a/qwen3"}),
    ("a Job of another owner queues nothing", job({**OURS, "kind": "CronJob"}), set()),
    ("a Job of the Gateway API's InferencePool queues nothing", job(GAIE), set()),
    ("a Job of no owner queues nothing", job(), set()),
    ("a Job whose owners are nonsense queues nothing", job(3, None, {"kind": 4}), set()),
    ("a deployment queues the pools that aim at it", lambda i: handlers.target("a", "qwen3", param=i), {"a/qwen3"}),
    ("a deployment that is nobody's target queues nothing", lambda i: handlers.target("a", "other", param=i), set()),
    ("a worker queues the pools of its namespace", lambda i: handlers.worker("a", param=i), {"a/qwen3", "a/llama"}),
    ("a new node queues all pools", node_event(event(metadata={"uid": "n"})), ALL),
    ("a deleted node queues all pools", node_event(event("DELETED")), ALL),
]  # fmt: skip


def test_a_deployment_that_an_ab_would_run_on_queues_the_pool_that_asks_for_it() -> None:
    intake, added = known()
    handlers.pool(TRYING, "a", "llama", param=intake)
    added.clear()
    handlers.target("a", "staging", param=intake)
    handlers.target("b", "staging", param=intake)

    assert added == ["a/llama"]


def test_a_pool_made_anew_is_not_forgotten_by_the_end_of_its_forerunner() -> None:
    """Events of two objects are handled apart, so that the end of the one may come after the beginning of the other."""
    intake, added = known()
    handlers.pool(of("old", "llama"), "a", "twice", param=intake)
    handlers.pool(of("old", "llama"), "a", "behind", param=intake)
    added.clear()
    handlers.pool(of("new", "gpt"), "a", "twice", param=intake)
    assert set(added) == {"a/twice", "a/behind", "a/llama"}
    handlers.pool(of("old", "llama", "DELETED"), "a", "twice", param=intake)
    added.clear()
    handlers.target("a", "gpt", param=intake)

    assert added == ["a/twice"]


@pytest.mark.parametrize(("act", "keys"), [pytest.param(act, keys, id=name) for name, act, keys in CASES])
def test_an_event_queues(act: Callable[[Intake], None], keys: set[str]) -> None:
    intake, added = known()
    act(intake)

    assert set(added) == keys


DEADLOCK = {"type": "KernelDeadlock", "status": "True"}


def node(**changes: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "10:00"}]}
    body = {
        "metadata": {"uid": "n", "labels": {"pool": "decode"}, "resourceVersion": "1"},
        "spec": {},
        "status": status,
    }
    return event(**{**body, **changes})


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        pytest.param({}, False, id="the same again"),
        pytest.param({"metadata": {"uid": "n", "labels": {"pool": "decode"}, "resourceVersion": "2"}}, False,
                     id="another version alone"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "10:05"}]}},
                     False, id="a heartbeat"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, True, id="no longer ready"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "True"}, DEADLOCK]}}, True,
                     id="a health tool's condition"),
        pytest.param({"spec": {"unschedulable": True}}, True, id="cordoned"),
        pytest.param({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, True, id="tainted"),
        pytest.param({"metadata": {"uid": "n", "labels": {"pool": "prefill"}}}, True, id="another label"),
        pytest.param({"metadata": {"uid": "m", "labels": {"pool": "decode"}}}, True, id="made anew"),
        pytest.param({"metadata": {"uid": "n", "labels": {"pool": "decode"}, "deletionTimestamp": "10:01"}}, True,
                     id="being deleted"),
    ],
)  # fmt: skip
def test_a_node_that_reports_queues_the_pools_only_if_it_matters(change: dict[str, Any], matters: bool) -> None:
    intake, added = known()
    handlers.node(node(), "n1", param=intake)
    added.clear()
    handlers.node(node(**change), "n1", param=intake)

    assert bool(added) is matters


def test_a_pool_that_is_gone_is_queued_by_no_later_event() -> None:
    intake, added = known()
    intake.pool_gone("a/qwen3")
    added.clear()
    handlers.target("a", "qwen3", param=intake)
    handlers.worker("a", param=intake)

    assert added == ["a/llama"]


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_every_kind_is_watched_by_its_full_name_and_none_of_another_group(version: str) -> None:
    watched = {f"{plural}.{served}.{group}" for group, served, plural, _ in handlers._watched(version)}

    assert watched == {
        "inferencepools.v1alpha1.kvgate.dev",
        "gateapprovals.v1alpha1.kvgate.dev",
        "jobs.v1.batch",
        "nodes.v1.",
        f"dynamographdeployments.{version}.nvidia.com",
        "dynamoworkermetadatas.v1alpha1.nvidia.com",
    }


def test_kopf_is_given_nothing_that_would_write() -> None:
    registry = kopf.OperatorRegistry()
    handlers.register(registry, known()[0])

    assert len(registry._watching.get_all_handlers()) == 6
    for writing in (registry._changing, registry._spawning, registry._webhooks):
        assert list(writing.get_all_handlers()) == []


OWN: dict[str, tuple[str | None, str, list[str]]] = {
    "the status that this process wrote itself queues nothing": ("MODIFIED", "7", []),
    "what somebody wrote after it queues the pool": ("MODIFIED", "8", ["a/qwen3"]),
    "a list, as after a watch was away, queues every pool": (None, "7", ["a/qwen3"]),
    "a pool that appears is queued": ("ADDED", "7", ["a/qwen3"]),
    "a version that cannot be read is somebody's": ("MODIFIED", "", ["a/qwen3"]),
}


@pytest.mark.parametrize(("type_", "version", "queued"), OWN.values(), ids=OWN)
def test_who_wrote_the_pool(type_: str | None, version: str, queued: list[str]) -> None:
    added: list[str] = []
    intake = Intake(added.append, lambda key: {"a/qwen3": "7"}.get(key, ""))
    body = event(type_, metadata={"resourceVersion": version}, spec={"targetRef": {"name": "qwen3"}})
    handlers.pool(body, "a", "qwen3", param=intake)
    assert added == queued
    assert len(intake) == 1


def test_a_list_that_a_watch_begins_anew_with_queues_all_pools_once_for_what_went_meanwhile() -> None:
    """No event tells of an approval, a node or a deployment that was deleted in the gap."""
    moments, added = [0.0], list[str]()
    intake = Intake(added.append, monotonic=lambda: moments[0])
    intake.pool("a", "qwen3", Known("qwen3"))

    def told(second: float, type: str | None) -> bool:  # noqa: A002
        moments[0] = second
        added.clear()
        listing = handlers.listing("gateapprovals", handlers.approval)
        listing(event=event(type, spec={"poolRef": {"name": "later"}}), namespace="a", param=intake)
        assert "a/later" in added
        return "a/qwen3" in added

    assert [told(0, None), told(20, None), told(45, None), told(90, "MODIFIED")] == [False] * 4
    assert [told(400, None), told(401, None), told(402, "ADDED")] == [True, False, False]
