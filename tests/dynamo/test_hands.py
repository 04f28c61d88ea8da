"""Whose doing it is that a gated field does not hold what was set, and what its owner is told to do."""

from __future__ import annotations

from typing import cast

import pytest

from kvgate.api.words import Capability
from kvgate.core.target import Deed, Hand
from kvgate.dynamo.hands import hands
from kvgate.dynamo.steps import Steps
from kvgate.dynamo.toggle import plan_steps
from tests.dynamo.support import Node, drop_env, sample, set_env, target_of

ROUTER, MODE = "DYN_ROUTER_MODE", "DYN_VLLM_DISAGGREGATION_MODE"
APPLY, UPDATE = "Apply", "Update"
KUBECTL = "kubectl-client-side-apply"


def held(manager: str, operation: str, at: str, *fields: tuple[str, str], **more: object) -> Node:
    """An entry of the managed fields: this manager holds the values of these env variables of these components."""
    parts: Node = {}
    for component, env in fields:
        container: Node = {'k:{"name":"main"}': {"f:env": {f'k:{{"name":"{env}"}}': {"f:value": {}}}}}
        parts[f'k:{{"name":"{component}"}}'] = {"f:podTemplate": {"f:spec": {"f:containers": container}}}
    fields_v1: Node = {"f:spec": {"f:components": parts}}
    version = "nvidia.com/v1beta1"
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": version,
        "time": at,
        "fieldsV1": fields_v1,
        **more,
    }


IMAGE = ("Frontend", "HF_HOME")
ROUTING = ("Frontend", ROUTER)
REPLICAS: Node = {
    "manager": "dynamo-operator",
    "operation": UPDATE,
    "time": "2026-05-09T00:00:00Z",
    "fieldsV1": {"f:spec": {"f:components": {'k:{"name":"Frontend"}': {"f:replicas": {}}}}},
}
ANNOTATION: Node = {
    "manager": "argocd-application-controller",
    "operation": UPDATE,
    "time": "2026-05-02T00:00:00Z",
    "fieldsV1": {"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/last-applied-configuration": {}}}},
}


def found(document: Node, *entries: Node, capability: Capability = Capability.ROUTING) -> tuple[Hand, ...]:
    cast("Node", document["metadata"])["managedFields"] = list(entries)
    target = target_of(document)
    steps = plan_steps(target, capability)
    assert isinstance(steps, Steps)
    return hands(target, steps)


def wiped() -> Node:
    document = sample()
    drop_env(document, "Frontend", ROUTER)
    return document


def test_who_holds_another_value_overwrote_it_whoever_wrote_last() -> None:
    later = held("pipeline", UPDATE, "2026-05-03T00:00:00Z", IMAGE)
    (hand,) = found(sample(), held("kustomize-controller", APPLY, "2026-05-02T00:00:00Z", ROUTING), later)
    assert (hand.manager, hand.deed, hand.fields) == ("kustomize-controller", Deed.OVERWROTE, (f"Frontend/{ROUTER}",))


def test_nobody_took_what_holds_the_switched_on_value() -> None:
    document = sample()
    set_env(document, "Frontend", ROUTER, "kv")
    assert found(document, held("argocd-controller", APPLY, "2026-05-02T00:00:00Z", ROUTING)) == ()


REMOVED = {
    "the one who applies the manifest": ([held(KUBECTL, UPDATE, "2026-05-01T00:00:00Z", IMAGE)], KUBECTL),
    "the last one of those who update": (
        [
            held("old-pipeline", UPDATE, "2026-05-01T00:00:00Z", IMAGE),
            held("argocd-application-controller", UPDATE, "2026-05-02T00:00:00Z", IMAGE),
        ],
        "argocd-application-controller",
    ),
    "one who updates before one who applies server-side, which removes nothing of ours": (
        [held(KUBECTL, UPDATE, "2026-05-01T00:00:00Z", IMAGE), held("team", APPLY, "2026-05-02T00:00:00Z", IMAGE)],
        KUBECTL,
    ),
    "one who left only the annotation of a client-side apply": (
        [held("team", APPLY, "2026-05-01T00:00:00Z", IMAGE), ANNOTATION],
        "argocd-application-controller",
    ),
    "not the operator that writes replicas": (
        [held(KUBECTL, UPDATE, "2026-05-01T00:00:00Z", IMAGE), REPLICAS],
        KUBECTL,
    ),
    "not one who writes the status": (
        [
            held(KUBECTL, UPDATE, "2026-05-01T00:00:00Z", IMAGE),
            held("dynamo-operator", UPDATE, "2026-05-09T00:00:00Z", IMAGE, subresource="status"),
        ],
        KUBECTL,
    ),
    "never ourselves": ([held("kvgate-split", APPLY, "2026-05-01T00:00:00Z", ("DecodeWorker", MODE))], ""),
    "nobody known": ([], ""),
}


@pytest.mark.parametrize(("entries", "manager"), REMOVED.values(), ids=REMOVED)
def test_a_removal_is_put_down_to(entries: list[Node], manager: str) -> None:
    (hand,) = found(wiped(), *entries)
    assert (hand.manager, hand.deed) == (manager, Deed.REMOVED)


def test_both_workers_taken_by_one_manager_are_one_hand() -> None:
    fields = (("DecodeWorker", MODE), ("PrefillWorker", MODE))
    entries = held("argocd-controller", APPLY, "2026-05-01T00:00:00Z", *fields)
    (hand,) = found(sample(), entries, capability=Capability.DISAGGREGATION)
    assert hand.fields == (f"DecodeWorker/{MODE}", f"PrefillWorker/{MODE}")


def test_two_managers_are_two_hands() -> None:
    document = sample()
    drop_env(document, "DecodeWorker", MODE)
    entries = [
        held("argocd-controller", APPLY, "2026-05-01T00:00:00Z", ("PrefillWorker", MODE)),
        held("pipeline", UPDATE, "2026-05-01T00:00:00Z", ("DecodeWorker", "HF_HOME")),
    ]
    both = found(document, *entries, capability=Capability.DISAGGREGATION)
    assert [(one.manager, one.deed) for one in both] == [
        ("pipeline", Deed.REMOVED),
        ("argocd-controller", Deed.OVERWROTE),
    ]


REMEDIES = {
    "Argo CD, client-side": ("argocd-application-controller", True, ("ServerSideApply=true", "RespectIgnoreDiff")),
    "Argo CD, server-side": ("argocd-controller", False, ("drop the line from the manifest in its repository",)),
    "Flux": ("kustomize-controller", False, ("drop the line from the manifest in its repository",)),
    "Flux, which spares what it does not name": ("kustomize-controller", True, ("mode Recommend", "server-side")),
    "Flux by Helm, which does not": ("helm-controller", True, ("kvgate-routing, kvgate-split", "mode Recommend")),
    "kubectl apply": (KUBECTL, True, ("kubectl apply --server-side", "the whole manifest", "mode Recommend")),
    "kubectl apply of the line": (KUBECTL, False, ("drop the line", "kubectl apply --server-side")),
    "anyone else": ("pipeline", True, ("kvgate-routing, kvgate-split", "mode Recommend")),
    "anyone else, by the line": ("pipeline", False, ("drop the line", "kvgate-routing, kvgate-split")),
}


@pytest.mark.parametrize(("manager", "removed", "words"), REMEDIES.values(), ids=REMEDIES)
def test_the_remedy_is_for(manager: str, removed: bool, words: tuple[str, ...]) -> None:
    entry = held(manager, UPDATE, "2026-05-01T00:00:00Z", IMAGE if removed else ROUTING)
    (hand,) = found(wiped() if removed else sample(), entry)
    assert hand.deed is (Deed.REMOVED if removed else Deed.OVERWROTE)
    assert [word for word in words if word not in hand.remedy] == []


def test_a_strange_name_is_made_safe() -> None:
    (hand,) = found(wiped(), held("a\x1b[2J" + "b" * 200, UPDATE, "2026-05-01T00:00:00Z", IMAGE))
    assert "\x1b" not in hand.manager
    assert len(hand.manager) <= 65
