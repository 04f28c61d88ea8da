"""The rate that a real Prometheus gives for a counter of known growth, and its silence and refusals."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from kvgate.edge.prometheus import observed_request_rate
from kvgate.edge.promql import DEFAULT_MATCHER, NoData, NoDataReason, PrometheusEndpoint, Rate, read_matchers
from tests.edge.exporter import exporter
from tests.edge.prometheus_server import end, is_ready, prometheus
from tests.ports import free_ports

pytestmark = pytest.mark.local

EXCERPT = Path(__file__).parents[1] / "data/metrics/frontend-requests.txt"
COUNTER = re.compile(r'^(dynamo_frontend_requests_total\{.*request_type="unary".*\}) [0-9]+$', re.MULTILINE)
WINDOW_SECONDS = 8
WAIT_SECONDS = 30
ANOTHERS_PER_SECOND = 100
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Frontend:
    """A frontend's pod as Prometheus knows it, and how many requests it finishes each second."""

    pod: str
    namespace: str
    deployment: str
    requests_per_second: float

    def labels(self) -> dict[str, str]:
        dynamo = f"{self.namespace}-{self.deployment}"
        return {"pod": self.pod, "namespace": self.namespace, "dynamo_namespace": dynamo}


FRONTENDS = (
    Frontend("qwen3-frontend-a", "serving", "qwen3", 20),
    Frontend("qwen3-frontend-b", "serving", "qwen3", 12.5),
    Frontend("another-deployment", "serving", "llama", ANOTHERS_PER_SECOND),
    Frontend("the-same-name-elsewhere", "staging", "qwen3", ANOTHERS_PER_SECOND),
    Frontend("names-that-run-together", "serving-qwen3", "qwen3", ANOTHERS_PER_SECOND),
    Frontend("idle", "serving", "idle", 0),
)
PRODUCED_PER_SECOND = 32.5


def page(path: str, started: float) -> str:
    """A real scrape's excerpt for each frontend, its unary counter grown with time."""
    speeds = {f"/{frontend.pod}": frontend.requests_per_second for frontend in FRONTENDS}
    count = 12 + int(speeds[path] * (time.monotonic() - started))
    return COUNTER.sub(rf"\1 {count}", EXCERPT.read_text("utf-8"))


def configuration(port: int) -> str:
    jobs = [
        {
            "job_name": frontend.pod,
            "metrics_path": f"/{frontend.pod}",
            "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": frontend.labels()}],
        }
        for frontend in FRONTENDS
    ]
    return yaml.safe_dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs})


@dataclass(frozen=True)
class Server:
    """A running Prometheus."""

    endpoint: PrometheusEndpoint

    def rate(self, namespace: str = "serving", deployment: str = "qwen3") -> Rate | NoData:
        return observed_request_rate(self.endpoint, namespace, deployment, window_seconds=WINDOW_SECONDS)


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {what}"
        time.sleep(0.2)


def ready(url: str) -> Server:
    eventually(lambda: is_ready(url), "Prometheus to be ready")
    return Server(PrometheusEndpoint("default", url, read_matchers(DEFAULT_MATCHER)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that has scraped every frontend for longer than the window."""
    started, folder = time.monotonic(), tmp_path_factory.mktemp("prometheus")
    with (
        exporter(lambda path: page(path, started)) as port,
        prometheus(folder, configuration(port)) as (url, _),
    ):
        running = ready(url)
        eventually(lambda: isinstance(running.rate(), Rate), "the first rate")
        time.sleep(WINDOW_SECONDS)
        yield running


def test_the_rate_is_what_the_deployments_two_frontends_produced(server: Server) -> None:
    found = server.rate()
    assert isinstance(found, Rate), found
    assert found.window_seconds == WINDOW_SECONDS
    assert found.requests_per_second == pytest.approx(PRODUCED_PER_SECOND, rel=0.1)


def test_matchers_of_the_administrators_choice_pick_one_frontend(server: Server) -> None:
    matchers = read_matchers('namespace="{namespace}",pod=~"{deployment}-frontend-[b]"')
    found = observed_request_rate(
        replace(server.endpoint, matchers=matchers), "serving", "qwen3", window_seconds=WINDOW_SECONDS
    )
    assert isinstance(found, Rate), found
    assert found.requests_per_second == pytest.approx(12.5, rel=0.1)


def test_a_counter_that_stands_still_is_zero(server: Server) -> None:
    assert server.rate(deployment="idle") == Rate(0, WINDOW_SECONDS)


@pytest.mark.parametrize(
    ("namespace", "deployment"),
    [
        pytest.param("serving", "missing", id="a deployment that nobody scrapes"),
        pytest.param("serving", "", id="no name"),
        pytest.param('serving"} or vector(1) #', "qwen3", id="a name that would end the query"),
        pytest.param("serving", 'qwen3",namespace=~".*', id="a name that would match all namespaces"),
        pytest.param("serving", "qwen3\\", id="a name that would swallow the quote"),
        pytest.param("serving", "q\nwen\t3", id="a name with a line break"),
        pytest.param("ser\x00ving", "qwén3", id="a name that Kubernetes would refuse"),
    ],
)
def test_an_absent_series_is_not_zero(server: Server, namespace: str, deployment: str) -> None:
    found = server.rate(namespace, deployment)
    assert isinstance(found, NoData)
    assert found.reason == NoDataReason.NO_SERIES, found.message


def test_a_time_before_the_first_scrape_has_no_series(server: Server) -> None:
    found = observed_request_rate(server.endpoint, "serving", "qwen3", at=LONG_AGO, window_seconds=WINDOW_SECONDS)
    assert isinstance(found, NoData)
    assert found.reason == NoDataReason.NO_SERIES


def test_a_regular_expression_that_is_none_is_refused(server: Server) -> None:
    matchers = read_matchers('namespace="{namespace}",pod=~"({deployment}"')
    found = observed_request_rate(replace(server.endpoint, matchers=matchers), "serving", "qwen3")
    assert isinstance(found, NoData)
    assert found.reason == NoDataReason.REFUSED
    assert "HTTP 400" in found.message


def test_a_prometheus_that_was_stopped_is_unreachable(tmp_path: Path) -> None:
    with prometheus(tmp_path, configuration(free_ports(1))) as (url, process):
        running = ready(url)
        alive = running.rate()
        end(process)
        dead = running.rate()
    assert isinstance(alive, NoData)
    assert isinstance(dead, NoData)
    assert (alive.reason, dead.reason) == (NoDataReason.NO_SERIES, NoDataReason.UNREACHABLE)
