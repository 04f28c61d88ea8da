"""What must hold of a deployment before an A/B is run on it, and when a staging one is like the target."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.bench_ground import NotServing, ServingFacts, differences, serving_facts
from tests.dynamo.support import Node, beta, component, main, target_of
from tests.dynamo.workers import told, worker

RUNTIME = {"kv_event_publishing_enabled": True, "total_kv_blocks": 2048}
FRONTEND = worker("f1", PodRole.FRONTEND)
PODS = (FRONTEND, worker("w1"), worker("w2"))


def card(pod: str, **fields: Any) -> Any:
    return told(pod, **{"runtime_config": RUNTIME, **fields})


CARDS = (card("w1"), card("w2"))
DEPLOYMENT = target_of(beta(component("Frontend", "frontend"), component("Worker")))


def facts(pods: tuple[WorkerPod, ...] = PODS, cards: tuple[Any, ...] = CARDS) -> ServingFacts | NotServing:
    return serving_facts(DEPLOYMENT, pods, cards)


def test_the_ready_workers_say_what_they_serve() -> None:
    found = facts()
    assert isinstance(found, ServingFacts)
    assert (found.model, found.namespace, found.workers) == ("tiny", "serving-qwen3-5f2d", 2)
    assert (found.block_tokens, found.cache_blocks) == (16, 2048)
    assert [pod.pod for pod in found.frontends] == ["f1"]


@pytest.mark.parametrize(
    ("pods", "cards", "workers"),
    [
        pytest.param((FRONTEND, worker("w1"), worker("w2", ready=False)), CARDS, 1, id="one is not ready"),
        pytest.param((FRONTEND, worker("w1"), worker("w2", leaving=True)), CARDS, 1, id="one is leaving"),
        pytest.param(PODS, (card("w1"), card("w2", uid="another")), 1, id="one card is of an older pod"),
        pytest.param(
            PODS, (card("w1", worker_type="prefill"), card("w2", worker_type="decode")), 1, id="split: prefill"
        ),
    ],
)
def test_only_workers_that_a_router_chooses_by_their_cache_count(
    pods: tuple[WorkerPod, ...], cards: tuple[Any, ...], workers: int
) -> None:
    found = facts(pods, cards)
    assert isinstance(found, ServingFacts)
    assert found.workers == workers


def test_the_pods_that_draw_power_are_all_ready_workers_decode_ones_too() -> None:
    found = facts(
        (*PODS, worker("w3", ready=False)), (card("w1", worker_type="prefill"), card("w2", worker_type="decode"))
    )
    assert isinstance(found, ServingFacts)
    assert found.worker_pods == ("w1", "w2")


@pytest.mark.parametrize(
    ("pods", "cards", "said"),
    [
        pytest.param(PODS[1:], CARDS, "has no ready frontend", id="no frontend"),
        pytest.param(PODS, (), "no ready worker that publishes a model card", id="no card"),
        pytest.param(PODS, (card("w1"), card("w2", model="other")), "differ in their models", id="two models"),
        pytest.param(PODS, (card("w1"), card("w2", block=32)), "wait for its rollout to end", id="two block sizes"),
        pytest.param(
            PODS, (card("w1", block=None), card("w2", block=None)), "publish no KV block size", id="no block size"
        ),
        pytest.param(PODS, (told("w1"), told("w2")), "no count of KV blocks", id="no count of blocks"),
    ],
)
def test_what_does_not_serve_says_why(pods: tuple[WorkerPod, ...], cards: tuple[Any, ...], said: str) -> None:
    found = facts(pods, cards)
    assert isinstance(found, NotServing)
    assert said in found.message


def _digest(*cards: Any) -> str:
    found = facts(PODS, cards)
    assert isinstance(found, ServingFacts)
    return found.cards


@pytest.mark.parametrize(
    ("cards", "same"),
    [
        pytest.param((card("w2"), card("w1")), True, id="in another order"),
        pytest.param((card("w1"), card("w2", checksum="blake3:00")), False, id="another configuration"),
        pytest.param(
            (card("w1"), card("w2", runtime_config=RUNTIME | {"total_kv_blocks": 9})), False, id="a smaller cache"
        ),
        pytest.param((card("w1"),), False, id="a worker less"),
    ],
)
def test_the_digest_of_the_cards_tells_a_change(cards: tuple[Any, ...], same: bool) -> None:
    assert (_digest(*cards) == _digest(*CARDS)) is same


def like(**changes: object) -> Node:
    return component("Worker", "worker", main(**{"args": ["--model", "m"], **changes}))


TARGET = target_of(beta(component("Frontend", "frontend"), like()))


@pytest.mark.parametrize(
    ("worker_part", "unlike"),
    [
        pytest.param(like(), (), id="the same"),
        pytest.param(
            like(env=[{"name": "DYN_ROUTER_MODE", "value": "kv"}]), (), id="what switches routing is left out"
        ),
        pytest.param(like(image="vllm-runtime:1.7.0"), ("image of Worker",), id="another image"),
        pytest.param(like(args=["--model", "other"]), ("args of Worker",), id="another model"),
        pytest.param(like(env=[{"name": "A", "value": "b"}]), ("env of Worker",), id="another variable"),
        pytest.param(like(resources={"limits": {"nvidia.com/gpu": 2}}), ("resources of Worker",), id="more GPUs"),
    ],
)
def test_staging_must_be_like_the_target(worker_part: Node, unlike: tuple[str, ...]) -> None:
    staging = target_of(beta(component("Frontend", "frontend"), worker_part))
    assert differences(staging, TARGET) == unlike


def test_other_components_are_another_deployment() -> None:
    assert differences(target_of(beta(component("Frontend", "frontend"), component("Other"))), TARGET) == (
        "its components",
    )
