"""A directory whose deployments are processes of this host: what they wrote into Dynamo's discovery, as pods would."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path

import pytest

from kvgate.core.workers import PodRole
from kvgate.core.world import World
from kvgate.edge.mock_ground import MockGround
from kvgate.edge.mocks import Mock

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MINE, OTHER = "127.1.1.2", "127.1.1.3"


def no_sweep(*_: object) -> object:
    raise AssertionError("nothing is measured here")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def card(address: str, instance: int, *, events: bool) -> str:
    runtime = {"kv_event_publishing_enabled": events, "model_info": f"{address}:9090"}
    body = {"display_name": "tiny", "worker_type": "aggregated", "runtime_config": runtime}
    return json.dumps({"type": "Model", "instance_id": instance, "card_json": body})


def observed(folder: Path, child: subprocess.Popen[bytes]) -> World:
    for name in ("mock-deployment.yaml", "mock-pool.yaml"):
        text = (resources.files("kvgate.app") / "samples" / name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    log = folder / "log"
    running = [
        Mock("mock", "Frontend", "front", True, "127.1.1.1", child, log),
        Mock("mock", "Worker", "w1", False, MINE, child, log),
        Mock("mock", "Worker", "w2", False, OTHER, child, log),
        Mock("another", "Worker", "w3", False, "127.1.1.4", child, log),
    ]
    discovery, ready = folder / "discovery", NOW - timedelta(minutes=5)
    ground = MockGround(folder, no_sweep, lambda: NOW, running, discovery, ready)  # type: ignore[arg-type]
    with ground.locked():
        return ground.observe("serving/mock")[1]


def test_processes_of_the_deployment_are_its_pods(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    world = observed(tmp_path, child)
    assert [(pod.pod, pod.role, pod.ready) for pod in world.pods] == [
        ("front", PodRole.FRONTEND, True),
        ("w1", PodRole.WORKER, True),
        ("w2", PodRole.WORKER, True),
    ]
    assert world.events is not None
    assert [worker.pod for worker in world.events.workers] == ["w1", "w2"]


def test_a_worker_is_told_by_what_it_wrote_itself(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    cards = tmp_path / "discovery" / "v1" / "mdc"
    cards.mkdir(parents=True)
    (cards / "a").write_text(card(MINE, 11, events=True))
    (cards / "b").write_text(card(OTHER, 12, events=False))
    (cards / "half").write_text(card(MINE, 13, events=False)[:40] + f"{MINE}:")
    world = observed(tmp_path, child)
    assert {pod.pod: pod.instance for pod in world.pods} == {"front": None, "w1": 11, "w2": 12}
    assert world.events is not None
    said = {worker.pod: worker.last.advert for worker in world.events.workers if worker.last}
    assert {pod: advert.publishing if advert else None for pod, advert in said.items()} == {"w1": True, "w2": False}
