"""What is on is watched by a real Prometheus that scrapes real frontends: seen, lost, seen again, and then errors.

The A/B that opens routing was run by nobody: its report is written here, and so is whose word it would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from kubernetes import client

from kvgate.api.status import PoolStatus
from kvgate.api.words import Capability
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.sweeps import ProbePolicy
from tests.cluster.waiting import eventually
from tests.core.ab.trials import experiment
from tests.dynamo_real.switching_documents import benchmark_documents
from tests.dynamo_stage import model
from tests.dynamo_stage.beside import Turning
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.stage import HTTP_PORT
from tests.e2e.dynamo_side import SPACE, UP_SECONDS, Side, is_on, router_of, routing_pool, sides, told_when
from tests.e2e.running import Operator
from tests.e2e.stage import POOL, Stage, condition, is_true, running
from tests.edge.prometheus_server import is_ready, prometheus
from tests.ports import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
BUSY = "DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD"
NEVER_BUSY, ALWAYS_BUSY = 1.0, 0.0001
"""Shares of a worker's KV blocks above which a frontend answers 529; a request to it changes the number."""
FRONTENDS = "nvidia.com/dynamo-component-type=frontend"
LEAST_REQUESTS, REQUESTS_PER_SECOND = 200, 20
LOSS_SECONDS = "5s"
MONITOR = {
    "interval": "3s",
    "prometheusRef": {"name": "default"},
    "maxErrorRateIncrease": "3%",
    "onMetricsLost": {"after": LOSS_SECONDS},
}
SWITCH_SECONDS, TELL_SECONDS = 120.0, 60.0


CONFIGURATION = yaml.safe_dump(
    {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "frontends", "file_sd_configs": [{"files": ["frontends.yml"]}]}],
    }
)


@dataclass
class Discovery(Turning):
    """Tells a Prometheus where frontends are and what to label them, as the PodMonitor of Dynamo's chart has it: the
    distribution's own is built without the discovery of Kubernetes."""

    title = "discovery of frontends"
    folder: Path
    pods: client.CoreV1Api

    def turn(self) -> None:
        found: list[Any] = self.pods.list_namespaced_pod(SPACE, label_selector=FRONTENDS).items
        groups = [_target(pod.status.pod_ip, pod.metadata.labels) for pod in found if pod.status.pod_ip]
        (self.folder / "written").write_text(yaml.safe_dump(groups))
        (self.folder / "written").rename(self.folder / "frontends.yml")
        self.stop.wait(1.0)


def _target(address: str, labels: Mapping[str, str]) -> dict[str, object]:
    named = {"namespace": SPACE, "dynamo_namespace": labels["nvidia.com/dynamo-namespace"]}
    return {"targets": [f"{address}:{HTTP_PORT}"], "labels": named}


@dataclass
class Watcher:
    """A Prometheus that can be taken away, and that knows what it saw when it is back."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(1))
    running: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.running.enter_context(prometheus(self.folder, CONFIGURATION, self.port))
        eventually(lambda: is_ready(self.url), 30)

    def stop(self) -> None:
        self.running.close()

    def counts(self, least: int) -> bool:
        """Whether it has seen the frontends end so many requests more than when it first looked."""
        query = {"query": "sum(increase(dynamo_frontend_requests_total[10m]))"}
        found = requests.get(f"{self.url}/api/v1/query", query, timeout=5).json()["data"]["result"]
        return bool(found) and float(found[0]["value"][1]) >= least


@pytest.fixture(scope="module")
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watcher]:
    made = Watcher(tmp_path_factory.mktemp("prometheus"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def operator(stage: Stage, watcher: Watcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Its settings name the Prometheus."""
    made = stage.operator(tmp_path_factory.mktemp("operator"))
    known = {"prometheus": {"default": {"url": watcher.url}}}
    made.settings.write_text(yaml.safe_dump({**yaml.safe_load(made.settings.read_text()), **known}))
    with running(made) as started:
        yield started


@pytest.fixture
def side(shaped: Stage) -> Iterator[Side]:
    with sides(shaped, "") as (made,):
        made.apply(frontend={BUSY: str(NEVER_BUSY)})
        eventually(made.serves, UP_SECONDS)
        yield made


def compared(side: Side) -> None:
    """An A/B of the deployment as it stands, which KV routing has won; then the pool gets a turn."""
    reader = Client(side.access.api_client().configuration, "kvgate/test")
    ground = ClusterGround(reader, lambda: ProbePolicy("probe"), lambda: datetime.now(UTC), namespaces=[SPACE])
    pool, world = ground.observe(f"{SPACE}/{side.name}")
    side.access.apply(*benchmark_documents(pool, world, experiment(), datetime.now(UTC)))
    side.access.kubectl("label", POOL, side.name, "-n", SPACE, "test/compared=yes", check=True)


def refuse(side: Side, share: float) -> None:
    """Have the frontend call a worker busy from this share of its blocks on."""
    body: dict[str, str | float] = {"model": model.NAME, "active_decode_blocks_threshold": share}
    answer = requests.post(f"{side.frontend().base}/busy_threshold", json=body, timeout=10)
    assert answer.ok, answer.text


def is_verified(status: PoolStatus) -> bool:
    return any(one.capability is Capability.ROUTING and bool(one.verified_at) for one in status.verifications)


def tells(reason: str, status: PoolStatus) -> bool:
    return any((one.type, one.reason) == ("MetricsHealthy", reason) for one in status.conditions)


def is_back(status: PoolStatus) -> bool:
    return bool(status.history) and status.history[0].action == "Reverted" and status.operation is None


def test_it_is_told_what_is_seen_and_what_is_lost_and_errors_switch_back(
    side: Side, shaped: Stage, operator: Operator, watcher: Watcher
) -> None:
    access = side.access
    watcher.start()
    found = Discovery(watcher.folder, client.CoreV1Api(access.api_client()))
    with found, SteadyLoad(side.door, REQUESTS_PER_SECOND) as load:
        eventually(lambda: watcher.counts(LEAST_REQUESTS), UP_SECONDS)
        asked = {"kvEvents": "Ignored"}
        access.apply(routing_pool(side, asked, monitor=MONITOR, enforcement={"onConflict": "TakeOver"}))
        told_when(shaped, operator, side, "a look at the pool", lambda one: bool(one.conditions), TELL_SECONDS)
        load.phase = "switched on"
        compared(side)
        told_when(shaped, operator, side, "a verified switch", is_verified, SWITCH_SECONDS)
        status = told_when(shaped, operator, side, "metrics that arrive", is_true("MetricsHealthy"), TELL_SECONDS)
        assert (is_on(status), router_of(side)) == (True, "kv")
        seen = status.monitoring
        assert seen is not None
        [before] = seen.before
        assert (before.capability, before.requests >= LEAST_REQUESTS) == (Capability.ROUTING, True)
        assert (seen.requests or 0) >= LEAST_REQUESTS
        assert float(seen.error_percent) < 3
        assert (seen.mean_ttft_milliseconds or 0) > 0

        watcher.stop()
        lost = told_when(shaped, operator, side, "a loss", lambda one: tells("MetricsLost", one), TELL_SECONDS)
        said = condition(lost, "MetricsHealthy")
        assert (said.status.value, is_on(lost)) == ("Unknown", True)
        assert f"monitor.onMetricsLost.after is {LOSS_SECONDS}: what is on stays on, unwatched" in said.message
        watcher.start()
        told_when(shaped, operator, side, "metrics again", is_true("MetricsHealthy"), TELL_SECONDS)

        load.phase = "refused"
        refuse(side, ALWAYS_BUSY)
        with SteadyLoad(side.door, REQUESTS_PER_SECOND, max_tokens=200):
            back = told_when(shaped, operator, side, "a rollback", is_back, SWITCH_SECONDS)
    newest, *_ = back.history
    assert (newest.capability, newest.reason) == (Capability.ROUTING, "ErrorsIncreased")
    assert "Monitor: " in condition(back, "RolledBack").message
    assert (is_on(back), router_of(side)) == (False, "round-robin")
    shaped.check()
