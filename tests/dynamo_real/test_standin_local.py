"""The stand-in for Dynamo's operator with local processes: its rollouts are those that the facts describe (4, 5, 8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pytest

from tests.dynamo_stage.client import UserDoor
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Frontend, Role, Worker
from tests.dynamo_stage.stage import Stage
from tests.dynamo_stage.standin.batches import Batch
from tests.dynamo_stage.standin.controller import StandIn
from tests.dynamo_stage.standin.graph import Document
from tests.dynamo_stage.standin.local import LocalRuntime
from tests.dynamo_stage.standin.samples import deployment, set_modes, set_router
from tests.dynamo_stage.standin.sources import MemorySource

pytestmark = pytest.mark.dynamo
NAME = "qwen"


@dataclass
class Installed:
    """One deployment of a worker pair that a stand-in has brought up."""

    stage: Stage
    source: MemorySource
    runtime: LocalRuntime

    @property
    def door(self) -> UserDoor:
        return self.runtime.door(NAME)

    def status(self) -> Document:
        found: Document = self.source.get(NAME).get("status", {})
        return found

    def ready(self) -> bool:
        held = self.status()
        current = held.get("observedGeneration") == self.source.get(NAME)["metadata"]["generation"]
        return bool(current) and str(held["conditions"][0]["status"]) == "True"

    def settle(self) -> None:
        self.stage.until(self.ready, f"{NAME} to be Ready: {self.status()}")

    def serving(self, **present: tuple[str, ...]) -> None:
        self.stage.until(lambda: self.door.readiness().ready, "the model to be ready")
        types = set(self.door.readiness().types("present").values())
        assert types == {tuple(sorted(one)) for one in present.values()}


@pytest.fixture
def installed(stage: Stage) -> Iterator[Installed]:
    made = Installed(stage, MemorySource(), LocalRuntime(stage))
    made.source.apply(deployment(NAME))
    with StandIn(made.source, made.runtime):
        made.settle()
        stage.until(lambda: made.door.readiness().ready, "the model to be ready")
        yield made


def test_a_deployment_serves_and_its_status_says_so(installed: Installed) -> None:
    held = installed.status()
    assert (held["state"], held["conditions"][0]["reason"]) == ("successful", "all_resources_are_ready")
    assert {name: part["readyReplicas"] for name, part in held["components"].items()} == {
        "Frontend": 1,
        "PrefillWorker": 1,
        "DecodeWorker": 1,
    }
    spaces = {name: part["runtimeNamespace"] for name, part in held["components"].items()}
    assert spaces["Frontend"] == f"default-{NAME}"
    assert spaces["PrefillWorker"] == spaces["DecodeWorker"] != spaces["Frontend"]
    assert installed.door.readiness().missing == {spaces["DecodeWorker"]: ()}


def test_flipping_both_modes_and_back_under_load_is_no_outage(installed: Installed) -> None:
    with SteadyLoad(installed.door, 8) as load:
        load.wait_for(8)
        for modes, phase, split in ((("prefill", "decode"), "split", True), (("agg", "agg"), "aggregated", False)):
            load.phase = f"to {phase}"
            installed.source.patch(NAME, partial(set_modes, prefill=modes[0], decode=modes[1]))
            installed.settle()
            load.wait_for(2)
            load.phase = phase
            load.wait_for(16)
            assert {one.answer.split for one in load.so_far() if one.phase == phase} == {split}
            assert installed.status()["rollingUpdate"]["phase"] == "Completed"
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 2, load.told()


def test_a_frontend_rolls_to_another_router_under_load_and_workers_stay(installed: Installed) -> None:
    before = [worker.process.pid for worker in installed.runtime.workers(NAME)]
    with SteadyLoad(installed.door, 8) as load:
        load.wait_for(8)
        for mode in ("kv", "round-robin"):
            installed.source.patch(NAME, partial(set_router, mode=mode))
            installed.settle()
            load.wait_for(8)
            (frontend,) = installed.runtime.frontends(NAME)
            name = "dynamo_component_kv_cache_events_applied"
            assert frontend.door.scrape().has(name) is (mode == "kv")
    assert load.failed() == [], load.told()
    assert [worker.process.pid for worker in installed.runtime.workers(NAME)] == before


def test_a_prefill_that_never_gets_ready_leaves_the_old_one_serving(installed: Installed) -> None:
    """Fact 8: prefill and decode progress alone; the aggregated twin of the stuck one keeps serving."""

    def stuck(_: Batch, worker: Worker) -> Worker:
        return replace(worker, loading_seconds=3600.0) if worker.role is Role.PREFILL else worker

    installed.runtime.shape = stuck
    with SteadyLoad(installed.door, 8) as load:
        installed.source.patch(NAME, lambda spec: set_modes(spec, "prefill", "decode"))
        installed.stage.until(
            lambda: installed.status().get("rollingUpdate", {}).get("updatedComponents") == ["DecodeWorker"],
            "the old decode worker to be replaced",
        )
        load.wait_for(16)
        held = installed.status()
        assert held["conditions"][0]["reason"] == "rolling_update_in_progress"
        assert held["rollingUpdate"]["updatedComponents"] == ["DecodeWorker"]
        assert len(installed.runtime.workers(NAME)) == 3
        installed.source.patch(NAME, lambda spec: set_modes(spec, "agg", "agg"))
        installed.settle()
        load.wait_for(8)
    assert load.outages() == [], load.told()
    assert len(load.raced()) <= 2, load.told()
    assert {one.answer.split for one in load.so_far()} == {False}


def test_a_crash_looping_frontend_leaves_the_old_one_serving(installed: Installed) -> None:
    def broken(batch: Batch, frontend: Frontend) -> Frontend:
        bad = batch.component.environment["DYN_ROUTER_MODE"] == "kv"
        return replace(frontend, arguments=("--no-such-flag",)) if bad else frontend

    installed.runtime.frontend_shape = broken
    installed.source.patch(NAME, lambda spec: set_router(spec, "kv"))
    installed.stage.until(
        lambda: any(pod.restarts >= 2 for pod in installed.runtime.pods_of(NAME)), "the frontend to crash twice"
    )
    assert installed.door.chat("hello").good
    assert installed.status()["components"]["Frontend"]["updatedReplicas"] == 1
    assert not installed.ready()


def test_prefill_patched_to_zero_is_an_outage(installed: Installed) -> None:
    """Fact 0.5: in one patch to aggregated with prefill at zero, the old prefill goes before the new pod serves."""

    def slow(_: Batch, worker: Worker) -> Worker:
        return replace(worker, loading_seconds=3.0)

    installed.source.patch(NAME, lambda spec: set_modes(spec, "prefill", "decode"))
    installed.settle()
    installed.runtime.shape = slow

    def naive(spec: Document) -> None:
        set_modes(spec, "agg", "agg")
        spec["components"][1]["replicas"] = 0

    with SteadyLoad(installed.door, 8) as load:
        load.wait_for(8)
        installed.source.patch(NAME, naive)
        installed.settle()
        load.wait_for(8)
    assert {one.answer.status for one in load.failed()} == {503}, load.told()


def test_a_deleted_deployment_takes_its_processes_along(installed: Installed) -> None:
    installed.source.delete(NAME)
    installed.stage.until(lambda: not installed.runtime.pods_of(NAME), "all pods to go")
    installed.stage.until(lambda: installed.door.get("/live")[0] == 0, "nobody to answer")
