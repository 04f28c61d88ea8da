"""Real frontends scraped by a real Prometheus, and what a look through it tells: errors, readiness, hits, the TTFT."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from kvgate.api.pool import PoolSpec
from kvgate.api.status import CapabilityStatus, HistoryEntry, PoolStatus
from kvgate.core.metrics_seen import MetricsSeen, Unseen
from kvgate.core.world import Pool
from kvgate.edge.metrics import Look, MetricsLooks, Taken
from kvgate.edge.promql import DEFAULT_MATCHER, PrometheusEndpoint, read_matchers
from tests.core import worlds
from tests.dynamo_stage.specs import Frontend, RouterMode, Worker
from tests.dynamo_stage.stage import RunningFrontend, Stage
from tests.edge.prometheus_server import end, is_ready, prometheus

pytestmark = pytest.mark.dynamo

PREFIX = "the quick brown fox jumps over the lazy dog " * 20
SCRAPES_SECONDS = 3.0


@dataclass(frozen=True)
class Watched:
    """A pool whose frontends a Prometheus scrapes each second."""

    endpoint: PrometheusEndpoint
    pool: Pool

    def look(self) -> Taken | Unseen:
        return Look(self.endpoint, self.pool, datetime.now(UTC)).taken()

    def seen(self) -> MetricsSeen:
        found = self.look()
        assert isinstance(found, Taken), found
        return found.seen

    def switched(self, at: datetime) -> Watched:
        entry = HistoryEntry(time=at, action="Enabled", capability=worlds.ROUTING, reason="CriteriaMet")
        status = self.pool.status.model_copy(update={"history": (entry,)})
        return replace(self, pool=replace(self.pool, status=status))


def pool() -> Pool:
    scene = worlds.Scene().asking(
        monitor__prometheusRef={"name": "default"}, monitor__interval="1s", model__name="tiny"
    )
    status = PoolStatus(capabilities=(CapabilityStatus(name=worlds.ROUTING, enabled=True),))
    assert isinstance(scene.spec, PoolSpec)
    return replace(scene.pool, status=status, namespace="serving")


@contextmanager
def scraping(folder: Path, *frontends: RunningFrontend) -> Iterator[tuple[Watched, str]]:
    labels = {"namespace": "serving", "dynamo_namespace": "serving-qwen3"}
    targets = [{"targets": [front.door.base.removeprefix("http://")], "labels": labels} for front in frontends]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "frontends", "static_configs": targets}],
    }
    with prometheus(folder, yaml.safe_dump(config)) as (url, process):
        watched = Watched(PrometheusEndpoint("default", url, read_matchers(DEFAULT_MATCHER)), pool())
        until(lambda: is_ready(url), "Prometheus is ready")
        until(lambda: isinstance(watched.look(), Taken), watched.look)
        yield watched, url
        end(process)


def until(holds: Callable[[], bool], what: Callable[[], object] | str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.2)


def served(front: RunningFrontend, count: int, salt: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda number: front.door.chat(f"{salt} {number} {PREFIX}"), range(count)))
    assert all(answer.good for answer in answers)


def breaks_off(front: RunningFrontend) -> None:
    """A client that goes away in the middle of its answer, and one that asks for another model."""
    host, _, port = front.door.base.removeprefix("http://").partition(":")
    body = b'{"model":"tiny","stream":true,"messages":[{"role":"user","content":"baba"}],"max_tokens":2000}'
    lines = ("POST /v1/chat/completions HTTP/1.1", "Host: x", "Content-Type: application/json")
    head = "\r\n".join((*lines, f"Content-Length: {len(body)}"))
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"{head}\r\n\r\n".encode() + body)
        client.recv(64)
    front.door.chat("baba", name="another")


def test_errors_hits_and_the_ttft_are_those_of_the_requests(stage: Stage, tmp_path: Path) -> None:
    frontend = stage.frontend(spec=Frontend(RouterMode.KV))
    stage.workers(w1=Worker(), w2=Worker())
    stage.until_ready(frontend)
    with scraping(tmp_path / "prometheus", frontend) as (watched, _):
        assert watched.seen().lately is not None
        time.sleep(SCRAPES_SECONDS)
        switched = datetime.now(UTC)
        served(frontend, 40, "before")
        breaks_off(frontend)
        with ThreadPoolExecutor(8) as threads:
            lost = [threads.submit(frontend.door.chat, f"kobo {n}", max_tokens=1500) for n in range(8)]
            time.sleep(0.8)
            stage.kill("w1", "w2")
            failed = sum(not one.result().good for one in lost)
        assert failed == 8
        time.sleep(SCRAPES_SECONDS)
        since = watched.switched(switched - timedelta(seconds=1)).seen().since_change
        assert since is not None
        assert since.failed == pytest.approx(8, rel=0.25), since
        assert since.requests == pytest.approx(48, rel=0.25), "what the client spoilt or gave up is in neither number"
        assert since.mean_ttft_seconds is not None
        assert 0 < since.mean_ttft_seconds < 60


def test_readiness_counts_from_the_moment_the_last_worker_went_though_its_gauge_vanishes(
    stage: Stage, tmp_path: Path
) -> None:
    frontend = stage.frontend(spec=Frontend(RouterMode.ROUND_ROBIN))
    stage.workers(w1=Worker())
    stage.until_ready(frontend)
    with scraping(tmp_path / "prometheus", frontend) as (watched, _):
        assert watched.seen().unready_since is None
        gone = datetime.now(UTC)
        stage.kill("w1")
        until(lambda: watched.seen().unready_since is not None, "the model is seen unready")
        gauge = "dynamo_frontend_model_ready"
        stage.until(lambda: not frontend.door.scrape().has(gauge), "the gauge is gone", frontend)
        time.sleep(SCRAPES_SECONDS)
        since = watched.seen().unready_since
        assert since is not None
        assert abs((since - gone).total_seconds()) < 30
        stage.workers(w2=Worker())
        stage.until_ready(frontend)
        until(lambda: watched.seen().unready_since is None, "the model is seen ready")


def test_prefixes_that_repeat_are_seen_as_hits(stage: Stage, tmp_path: Path) -> None:
    frontend = stage.frontend(spec=Frontend(RouterMode.KV))
    stage.workers(w1=Worker(), w2=Worker())
    stage.until_ready(frontend)
    with scraping(tmp_path / "prometheus", frontend) as (watched, _):
        for number in range(12):
            assert frontend.door.chat(f"{PREFIX}{number}").good
        time.sleep(SCRAPES_SECONDS)
        lately = watched.seen().lately
        assert lately is not None
        assert (lately.cached_share or 0) > 0.5


def test_a_frontend_that_is_gone_or_a_prometheus_that_is_gone_is_unseen(stage: Stage, tmp_path: Path) -> None:
    frontend = stage.frontend(spec=Frontend(RouterMode.ROUND_ROBIN))
    stage.workers(w1=Worker())
    stage.until_ready(frontend)
    with scraping(tmp_path / "prometheus", frontend) as (watched, _):
        looks = MetricsLooks(lambda _: watched.endpoint, lambda: datetime.now(UTC))
        until(lambda: _state(looks.seen(watched.pool)) == "seen", "a first look")
        stage.kill("frontend")
        until(lambda: isinstance(watched.look(), Unseen), "the frontend's metrics are down or stale", 30)
        found = watched.look()
        assert isinstance(found, Unseen)
        assert "down" in found.message or "older than 2 scrape intervals" in found.message
    gone = watched.look()
    assert isinstance(gone, Unseen)
    assert "no connection" in gone.message
    until(lambda: _state(looks.seen(watched.pool)) == "unseen", "the looks say so")


def _state(seen: MetricsSeen | None) -> str:
    if seen is None or seen.asked_at is None:
        return "not asked"
    return "seen" if seen.unseen is None else "unseen"
