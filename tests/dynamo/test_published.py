"""The one configuration that all workers publish, or who contradicts whom."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.published import NOT_READ, Offer, Published, Unpublished, published
from tests.dynamo.workers import CONFIG_CHECKSUM, told, worker

OTHER = "blake3:" + "f" * 64


def test_workers_that_agree_publish_one_configuration_and_the_ready_ones_are_asked_first() -> None:
    pods = (worker("a", ready=False), worker("b", PodRole.PREFILL))
    found = published((told("a"), told("b")), pods)

    assert isinstance(found, Published)
    assert (found.checksum, found.block_tokens) == (CONFIG_CHECKSUM, 16)
    assert [offer.pod for offer in found.offers] == ["b", "a"]
    assert isinstance(found.offers[0], Offer)
    assert found.offers[0].address == "10.88.2.2"


@pytest.mark.parametrize(
    ("metadata", "pods", "said"),
    [
        pytest.param((), (), (NOT_READ,), id="nobody runs"),
        pytest.param((), (worker("a"),), (NOT_READ,), id="a pod publishes nothing"),
        pytest.param((told("a"),), (), (NOT_READ,), id="a stranger publishes"),
        pytest.param((told("a", uid="earlier"),), (worker("a"),), (NOT_READ,), id="an earlier pod of the name"),
        pytest.param((told("a"),), (worker("a", leaving=True),), (NOT_READ,), id="only a pod that is leaving"),
        pytest.param((told("a"),), (worker("a", PodRole.FRONTEND),), (NOT_READ,), id="a frontend has no cache"),
        pytest.param(
            (told("a", model_info=None),), (worker("a"),), ("worker pod a publishes no config.json",), id="no config"
        ),
        pytest.param(
            (told("a"), told("b", checksum=OTHER, model="big")),
            (worker("a"), worker("b")),
            ("worker pod a serves tiny", "worker pod b serves big", "blake3:fffff", "wait for the rollout"),
            id="two models",
        ),
        pytest.param(
            (told("a"), told("b", block=64)),
            (worker("a"), worker("b")),
            ("worker pod a has 16 tokens per KV block", "worker pod b has 64", "make them alike"),
            id="two block sizes",
        ),
    ],
)
def test_there_is_no_configuration_to_read_when(
    metadata: tuple[Any, ...], pods: tuple[WorkerPod, ...], said: tuple[str, ...]
) -> None:
    found = published(metadata, pods)
    assert isinstance(found, Unpublished)
    assert [part for part in said if part not in found.message] == []


def test_a_worker_that_is_leaving_contradicts_nobody() -> None:
    found = published((told("a", checksum=OTHER), told("b")), (worker("a", leaving=True), worker("b")))
    assert isinstance(found, Published)


def test_a_card_without_a_block_size_contradicts_nobody() -> None:
    found = published((told("a", block=None), told("b")), (worker("a"), worker("b")))
    assert isinstance(found, Published)
    assert found.block_tokens == 16


def test_no_card_with_a_block_size_leaves_it_open() -> None:
    found = published((told("a", block=None),), (worker("a"),))
    assert isinstance(found, Published)
    assert found.block_tokens is None


def test_a_foreign_name_is_not_echoed_raw() -> None:
    found = published((told("a", model="\x1b[2J"), told("b", checksum=OTHER)), (worker("a"), worker("b")))
    assert isinstance(found, Unpublished)
    assert found.message.isprintable()
