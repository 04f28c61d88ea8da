"""The rules of the stand-in for Dynamo's operator, without any process: hash, names, rollout steps, status (fact 8)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.dynamo_stage.specs import Role, Worker
from tests.dynamo_stage.standin.batches import Batch, BatchKey
from tests.dynamo_stage.standin.graph import SURGE, UNAVAILABLE, Document, Graph, read_graph
from tests.dynamo_stage.standin.mapping import Refused, frontend_of, worker_of
from tests.dynamo_stage.standin.rollout import Budget, Counts, step
from tests.dynamo_stage.standin.samples import EVENTS, deployment, set_env, set_modes, set_router
from tests.dynamo_stage.standin.status import Seen, render_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def changed(change: Callable[[Document], object]) -> Graph:
    document = deployment("qwen")
    change(document["spec"])
    return read_graph(document)


ORIGINAL = read_graph(deployment("qwen"))


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        pytest.param(lambda spec: set_modes(spec, "prefill", "decode"), True, id="a worker's environment"),
        pytest.param(lambda spec: spec.update(env=[{"name": "X", "value": "1"}]), True, id="the graph's environment"),
        pytest.param(lambda spec: spec["components"][2].update(type="worker"), True, id="a worker's type"),
        pytest.param(lambda spec: spec["components"][2].update(replicas=7), False, id="a number of workers"),
        pytest.param(lambda spec: spec["components"][2].update(scalingAdapter={}), False, id="a scaling adapter"),
        pytest.param(lambda spec: set_router(spec, "kv"), False, id="the frontend"),
    ],
)
def test_what_makes_a_new_generation_of_all_workers(change: Callable[[Document], object], rolls: bool) -> None:
    graph = changed(change)
    assert (graph.worker_hash != ORIGINAL.worker_hash) is rolls
    spaces = {graph.runtime_namespace(component) for component in graph.components if component.worker}
    assert spaces == {f"default-qwen-{graph.worker_hash}"}


def test_the_order_of_the_components_is_no_part_of_the_hash() -> None:
    """A server-side apply that names two of them may change it; the operator hashes workers by their names."""
    document = deployment("qwen")
    document["spec"]["components"].reverse()
    assert read_graph(document).worker_hash == ORIGINAL.worker_hash


def test_a_change_that_is_taken_back_has_its_old_hash() -> None:
    document = deployment("qwen")
    set_modes(document["spec"], "prefill", "decode")
    set_modes(document["spec"], "agg", "agg")
    assert read_graph(document).worker_hash == ORIGINAL.worker_hash


def full(number: int) -> Counts:
    return Counts(number, number, number)


@pytest.mark.parametrize(
    ("budget", "counts", "asked"),
    [
        pytest.param(Budget(2, 1, 0), {}, {"new": 2}, id="a birth asks for all"),
        pytest.param(Budget(1, 1, 0), {"old": full(1)}, {"new": 1, "old": 1}, id="one pod rolls by a surge of one"),
        pytest.param(
            Budget(1, 1, 0),
            {"old": full(1), "new": Counts(1, 1, 0)},
            {"new": 1, "old": 1},
            id="what is not available replaces nothing",
        ),
        pytest.param(
            Budget(1, 1, 0), {"old": full(1), "new": full(1)}, {"new": 1, "old": 0}, id="what is available replaces"
        ),
        pytest.param(
            Budget(4, 1, 1), {"old": full(4)}, {"new": 1, "old": 3}, id="the share that may lack goes at once"
        ),
        pytest.param(
            Budget(4, 1, 1),
            {"old": Counts(3, 4, 4), "new": Counts(1, 1, 0)},
            {"new": 1, "old": 3},
            id="a pod that is still ending takes its place in the surge",
        ),
        pytest.param(
            Budget(4, 1, 1),
            {"old": full(3), "new": full(1)},
            {"new": 2, "old": 2},
            id="then as many come as went",
        ),
        pytest.param(Budget(0, 0, 1), {"old": full(1)}, {"new": 0, "old": 0}, id="zero ends the old ones at once"),
        pytest.param(
            Budget(1, 1, 0, recreates=True), {"old": full(1)}, {"new": 0, "old": 0}, id="recreate ends the old first"
        ),
        pytest.param(Budget(1, 1, 0, recreates=True), {}, {"new": 1}, id="and then starts the new"),
        pytest.param(Budget(3, 1, 0), {"new": full(1)}, {"new": 3}, id="more of the same is no roll"),
    ],
)
def test_a_step_of_a_rollout(budget: Budget, counts: dict[str, Counts], asked: dict[str, int]) -> None:
    assert dict(step(budget, "new", counts)) == asked


@pytest.mark.parametrize(
    ("replicas", "annotations", "surge", "unavailable"),
    [
        pytest.param(1, {}, 1, 0, id="a quarter of one surges by one and lacks none"),
        pytest.param(8, {}, 2, 2, id="a quarter of eight"),
        pytest.param(5, {SURGE: "50%", UNAVAILABLE: "50%"}, 3, 2, id="shares of five, up and down"),
        pytest.param(5, {SURGE: "2", UNAVAILABLE: "0"}, 2, 0, id="numbers of pods"),
        pytest.param(5, {SURGE: "0", UNAVAILABLE: "0"}, 0, 1, id="one of the two must be possible"),
    ],
)
def test_surge_and_unavailable(replicas: int, annotations: dict[str, str], surge: int, unavailable: int) -> None:
    document = deployment("qwen", replicas=(1, 1, replicas))
    document["spec"]["components"][2]["podTemplate"]["metadata"] = {"annotations": annotations}
    component = read_graph(document).components[2]
    assert (component.surge, component.unavailable) == (surge, unavailable)


def worker(change: Callable[[Document], object], number: int = 2) -> Worker | Refused:
    graph = changed(change)
    return worker_of(Batch(graph, graph.components[number]))


def arguments(*words: str) -> Callable[[Document], object]:
    def change(spec: Document) -> None:
        spec["components"][2]["podTemplate"]["spec"]["containers"][0]["args"] = ["-m", "dynamo.vllm", *words]

    return change


@pytest.mark.parametrize(
    ("change", "role"),
    [
        pytest.param(lambda spec: None, Role.AGGREGATED, id="agg in the environment"),
        pytest.param(lambda spec: set_modes(spec, "agg", "pd"), Role.AGGREGATED, id="pd is agg"),
        pytest.param(lambda spec: set_modes(spec, "agg", "decode"), Role.DECODE, id="decode in the environment"),
        pytest.param(
            arguments("--disaggregation-mode", "decode"), Role.DECODE, id="the argument wins over the environment"
        ),
    ],
)
def test_the_role_of_a_worker(change: Callable[[Document], object], role: Role) -> None:
    found = worker(change)
    assert isinstance(found, Worker)
    assert found.role is role


def test_a_prefill_worker_without_a_transfer_ends_at_once() -> None:
    assert isinstance(worker(arguments("--disaggregation-mode", "prefill")), Refused)


@pytest.mark.parametrize(
    ("words", "caches", "publishes"),
    [
        pytest.param(("--kv-events-config", EVENTS), True, True, id="events on"),
        pytest.param((f"--kv-events-config={EVENTS}",), True, True, id="events on, in one word"),
        pytest.param((), False, False, id="no configuration of events"),
        pytest.param(
            ("--kv-events-config", EVENTS.replace("true", "false")), False, False, id="events switched off there"
        ),
        pytest.param(("--kv-events-config", EVENTS, "--no-enable-prefix-caching"), False, True, id="no caching"),
    ],
)
def test_the_events_of_a_worker(words: tuple[str, ...], caches: bool, publishes: bool) -> None:
    found = worker(arguments(*words))
    assert isinstance(found, Worker)
    assert (found.prefix_caching, found.zmq_events) == (caches, publishes)


def test_a_frontend_serves_every_generation_and_its_environment_says_the_mode() -> None:
    found = frontend_of(Batch(ORIGINAL, ORIGINAL.components[0]))
    assert (found.namespace, found.prefix, found.router_mode) == ("default-qwen", True, "")
    assert (found.migration_limit, found.environment["DYN_ROUTER_MODE"]) == (3, "round-robin")


def test_the_graphs_environment_reaches_workers_and_makes_them_advertise() -> None:
    found = worker(lambda spec: spec.update(env=[{"name": "DYN_ROUTER_MODE", "value": "kv"}]))
    assert isinstance(found, Worker)
    assert found.environment["DYN_ROUTER_MODE"] == "kv"


def seen(document: Document, current: str, **available: tuple[int, int]) -> Seen:
    """`available` is component → pods of the old and of the new generation."""
    made = copy.deepcopy(document)
    made["metadata"]["annotations"] = {"nvidia.com/current-worker-hash-v2": current}
    graph = read_graph(made)
    counts = {}
    for component in graph.components:
        old, new = available[component.name]
        counts[BatchKey(component.name, "old")] = full(old)
        counts[BatchKey(component.name, graph.generation_of(component))] = full(new)
    return Seen(graph, counts)


def test_a_roll_is_in_progress_until_the_current_hash_moves_and_is_completed_then() -> None:
    document = deployment("qwen")
    half = seen(document, "old", Frontend=(0, 1), PrefillWorker=(1, 0), DecodeWorker=(0, 1))
    first = render_status(half, NOW)
    assert first["state"] == "pending"
    assert first["rollingUpdate"] == {
        "phase": "InProgress",
        "startTime": "2026-01-01T00:00:00Z",
        "updatedComponents": ["DecodeWorker"],
    }
    condition = first["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "rolling_update_in_progress")
    document["status"] = first
    done = seen(document, ORIGINAL.worker_hash, Frontend=(0, 1), PrefillWorker=(0, 1), DecodeWorker=(0, 1))
    last = render_status(done, NOW)
    assert (last["state"], last["rollingUpdate"]["phase"]) == ("successful", "Completed")
    assert last["rollingUpdate"]["updatedComponents"] == ["PrefillWorker", "DecodeWorker"]


def test_a_frontend_that_rolls_is_no_rolling_update() -> None:
    held = seen(deployment("qwen"), ORIGINAL.worker_hash, Frontend=(1, 0), PrefillWorker=(0, 1), DecodeWorker=(0, 1))
    status = render_status(held, NOW)
    assert "rollingUpdate" not in status
    assert (status["conditions"][0]["reason"], status["state"]) == ("some_resources_are_not_ready", "pending")


def test_a_status_that_says_the_same_is_the_same() -> None:
    document = deployment("qwen")
    held = seen(document, ORIGINAL.worker_hash, Frontend=(0, 1), PrefillWorker=(0, 1), DecodeWorker=(0, 1))
    first = render_status(held, NOW)
    document["status"] = first
    again = seen(document, ORIGINAL.worker_hash, Frontend=(0, 1), PrefillWorker=(0, 1), DecodeWorker=(0, 1))
    assert render_status(again, datetime(2026, 1, 2, tzinfo=UTC)) == first


def test_pods_carry_the_operators_labels() -> None:
    labels = Batch(ORIGINAL, ORIGINAL.components[2]).labels()
    generation = ORIGINAL.worker_hash
    assert labels == {
        "nvidia.com/dynamo-graph-deployment-name": "qwen",
        "nvidia.com/dynamo-component": "DecodeWorker",
        "nvidia.com/dynamo-component-type": "decode",
        "nvidia.com/dynamo-namespace": f"default-qwen-{generation}",
        "nvidia.com/dynamo-worker-hash": generation,
        "nvidia.com/metrics-enabled": "true",
    }


def test_environments_are_merged_by_name() -> None:
    def both(spec: Document) -> None:
        spec["env"] = [{"name": "DYN_LOG", "value": "warn"}, {"name": "DYN_A", "value": "graph"}]
        set_env(spec, "DecodeWorker", "DYN_LOG", "debug")

    found = worker(both)
    assert isinstance(found, Worker)
    assert (found.environment["DYN_LOG"], found.environment["DYN_A"]) == ("debug", "graph")
