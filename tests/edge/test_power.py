"""The GPUs' power during an A/B through a real Prometheus, and what is asked of it.

The exporter is played: it serves the page that NVIDIA's DCGM exporter documents, for there is no GPU to read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
import yaml

from kvgate.api.pool import PoolSpec
from kvgate.api.status import PoolStatus
from kvgate.core.ab.experiment import Experiment
from kvgate.core.ab.power import Efficiency, Gpu, NoPower
from kvgate.core.world import Pool
from kvgate.edge.power import LABELS, power_query, power_reader, read_gpus
from kvgate.edge.promql import DEFAULT_MATCHER, PrometheusEndpoint, read_matchers
from tests.core.ab.trials import experiment
from tests.core.cases import spec
from tests.edge.exporter import exporter
from tests.edge.prometheus_double import double, envelope, says
from tests.edge.prometheus_server import is_ready, prometheus
from tests.edge.test_prometheus_real import eventually

RUN_SECONDS = 4
WATTS = {"w1": 300.0, "w2": 500.0}
MATCHERS = read_matchers(DEFAULT_MATCHER)
SERIES = (
    'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:0{gpu}:00.0",device="nvidia{gpu}",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="node-a",DCGM_FI_DRIVER_VERSION="580.95.05",container="main",'
    'namespace="{namespace}",pod="{pod}"}} {watts}'
)


def page(watts: dict[str, float]) -> str:
    """Two workers, a neighbour in the namespace, one of the same name elsewhere, and a GPU that nobody uses."""
    pods = [("serving", pod, draws) for pod, draws in watts.items()]
    others = [("serving", "neighbour", 700.0), ("staging", "w1", 650.0), ("", "", 60.0)]
    lines = [
        SERIES.format(gpu=place, namespace=namespace, pod=pod, watts=f"{draws:f}")
        for place, (namespace, pod, draws) in enumerate([*pods, *others])
    ]
    head = ("# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).", "# TYPE DCGM_FI_DEV_POWER_USAGE gauge")
    return "\n".join((*head, *lines, ""))


def pool(**monitor: object) -> Pool:
    asked = spec({"monitor": {"prometheusRef": {"name": "default"}} | monitor})
    assert isinstance(asked, PoolSpec)
    return Pool("qwen3", "serving", "uid", 1, asked, PoolStatus(), datetime(2026, 11, 30, tzinfo=UTC))


def ab(began: float, *, seconds: float = RUN_SECONDS) -> Experiment:
    """Two blocks whose runs follow each other at once from `began`."""
    plain = experiment(blocks=2)
    runs = [
        replace(run, began_at=began + seconds * n, ended_at=began + seconds * (n + 1))
        for n, run in enumerate(plain.runs)
    ]
    return replace(plain, runs=tuple(runs))


@dataclass(frozen=True)
class Server:
    """A Prometheus that has scraped the exporter each second, and the A/B that ran meanwhile."""

    url: str
    ran: Experiment

    def read(self, pods: tuple[str, ...], ran: Experiment | None = None) -> Efficiency | NoPower:
        return power_reader(lambda _: PrometheusEndpoint("default", self.url, MATCHERS))(pool(), ran or self.ran, pods)


@pytest.fixture(scope="module", params=[True, False], ids=["the pods' labels honoured", "the pods' labels renamed"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with exporter(lambda _: page(WATTS)) as port:
        target = {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "gpu-operator", "pod": "dcgm-exporter-x"}}
        job = {"job_name": "dcgm", "honor_labels": request.param, "static_configs": [target]}
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
        with prometheus(tmp_path_factory.mktemp("prometheus"), yaml.safe_dump(config)) as (url, _):
            eventually(lambda: is_ready(url), "Prometheus to be ready")
            time.sleep(3)
            began = time.time()
            time.sleep(4 * RUN_SECONDS + 2)
            yield Server(url, ab(began))


@pytest.mark.local
def test_tokens_per_joule_are_those_of_the_workers_gpus_alone(server: Server) -> None:
    found = server.read(("w1", "w2"))
    tokens, spent = 2 * 130 * 1000, 2 * RUN_SECONDS * sum(WATTS.values())
    assert not isinstance(found, NoPower), found
    assert dict(found) == {arm: pytest.approx(tokens / spent) for arm in ("RoundRobin", "KV")}


@pytest.mark.local
def test_a_worker_without_a_gpu_leaves_no_number_and_is_named_with_what_was_tried(server: Server) -> None:
    found = server.read(("w1", "w3"))
    assert isinstance(found, NoPower)
    for said in ("DCGM_FI_DEV_POWER_USAGE", "namespace and pod", "exported_namespace and exported_pod", ": w3"):
        assert said in found.message


@pytest.mark.local
def test_a_time_that_nothing_was_scraped_in_has_no_number(server: Server) -> None:
    found = server.read(("w1", "w2"), ab(server.ran.runs[0].began_at - 3600))
    assert isinstance(found, NoPower)
    assert "2 of 2 worker pods have no power" in found.message


@pytest.mark.parametrize(
    ("asked", "ran"),
    [
        pytest.param(pool(prometheusRef=None), ab(1000.0), id="no Prometheus is named"),
        pytest.param(pool(), replace(ab(1000.0), aborted="users were slow"), id="it was ended early"),
        pytest.param(pool(), experiment(blocks=2), id="its runs tell no time"),
        pytest.param(pool(), experiment(runs=()), id="it has no run"),
    ],
)
def test_where_there_is_nothing_to_ask_nobody_complains(asked: Pool, ran: Experiment) -> None:
    endpoint = PrometheusEndpoint("default", "http://127.0.0.1:1", MATCHERS)
    assert power_reader(lambda _: endpoint)(asked, ran, ("w1",)) == ()


def test_a_prometheus_that_fails_is_told_with_the_name_that_was_tried() -> None:
    with double(says(b"no", status=500)) as server:
        endpoint = PrometheusEndpoint("default", server.url, MATCHERS)
        found = power_reader(lambda _: endpoint)(pool(), ab(1000.0), ("w1",))
    assert isinstance(found, NoPower)
    assert 'DCGM_FI_DEV_POWER_USAGE in Prometheus "default"' in found.message
    assert "HTTP 500" in found.message


def test_it_is_asked_for_the_time_of_the_runs() -> None:
    with double(says(envelope([]))) as server:
        endpoint = PrometheusEndpoint("default", server.url, MATCHERS)
        power_reader(lambda _: endpoint)(pool(), ab(1000.0), ("w1",))
    first, second = server.asked
    assert first.params["query"] == ['DCGM_FI_DEV_POWER_USAGE{namespace="serving",pod=~"w1"}[18s]']
    assert second.params["query"] == ['DCGM_FI_DEV_POWER_USAGE{exported_namespace="serving",exported_pod=~"w1"}[18s]']
    assert first.params["time"] == ["1017.000"]


@pytest.mark.parametrize(
    ("matcher", "pods", "query"),
    [
        pytest.param(
            'cluster="prod",namespace="{namespace}",pod=~"{deployment}.*"',
            ("w2", "w.1"),
            'DCGM_FI_DEV_POWER_USAGE{namespace="serving",pod=~"w\\\\.1|w2",cluster="prod"}[9s]',
            id="what names neither namespace nor deployment is kept, and a dot is a dot",
        ),
        pytest.param(
            DEFAULT_MATCHER,
            ('w"} or vector(1) #',),
            'DCGM_FI_DEV_POWER_USAGE{namespace="serving",pod=~"w\\"\\\\} or vector\\\\(1\\\\) #"}[9s]',
            id="no name ends the query",
        ),
    ],
)
def test_the_query_is_of_these_pods_alone(matcher: str, pods: tuple[str, ...], query: str) -> None:
    assert power_query(read_matchers(matcher), "serving", pods, 9, LABELS[0]) == query


@pytest.mark.parametrize(
    ("result", "found"),
    [
        pytest.param([], (), id="none"),
        pytest.param(
            [{"metric": {"pod": "w1", "UUID": "GPU-1"}, "values": [[1.5, "300.5"], [2.5, "NaN"]]}],
            Gpu,
            id="a series, with a sample that is no number",
        ),
        pytest.param({}, NoPower, id="no list"),
        pytest.param([{"metric": {"UUID": "GPU-1"}, "values": []}], NoPower, id="a series without a pod"),
        pytest.param([{"metric": {"pod": "w1"}, "values": [[1]]}], NoPower, id="half a sample"),
        pytest.param([{"metric": {"pod": "w1"}, "values": [[1, "many"]]}], NoPower, id="a word"),
        pytest.param([7], NoPower, id="a number for a series"),
    ],
)
def test_an_answer_is_series_or_none(result: object, found: object) -> None:
    read = read_gpus(result, "pod")
    if found is Gpu:
        assert not isinstance(read, NoPower)
        assert (read[0].pod, read[0].samples[0]) == ("w1", (1.5, 300.5))
    elif found is NoPower:
        assert isinstance(read, NoPower)
    else:
        assert read == found
