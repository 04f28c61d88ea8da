"""Whether a worker publishes KV events by its spec: every engine, both versions, and each way to get it wrong."""

from __future__ import annotations

import pytest

from kvgate.core.events_seen import Declares, Routes
from kvgate.dynamo.component import Component
from kvgate.dynamo.publishing import declared, must_publish, routes
from kvgate.dynamo.shape import read_target
from tests.dynamo.support import EXAMPLES, Node, beta, component, load, main, target_of

ON = '{"publisher":"zmq","topic":"kv-events","endpoint":"tcp://*:20080","enable_kv_cache_events":true}'
VLLM, SGLANG, TRTLLM, MOCKER = "vllm", "sglang", "trtllm", "mocker"


def events(endpoint: str, more: str = "") -> str:
    return f'{{"publisher":"zmq","endpoint":"{endpoint}","enable_kv_cache_events":true{more}}}'


def part(engine: str, *args: str, env: dict[str, str] | None = None, **fields: object) -> Component:
    entries = [{"name": name, "value": value} for name, value in (env or {}).items()]
    container = main(command=["python3", "-m", f"dynamo.{engine}"], args=list(args), env=entries, **fields)
    return target_of(beta(component("Worker", "worker", container))).components[0]


CASES: tuple[tuple[str, Component, Declares, str], ...] = (
    ("vLLM as the examples write it", part(VLLM, "--kv-events-config", ON), Declares.ON, ""),
    ("the = form", part(VLLM, f"--kv-events-config={ON}"), Declares.ON, ""),
    ("the flag with underscores", part(VLLM, "--kv_events_config", ON), Declares.ON, ""),
    (
        "enable alone is enough for vLLM",
        part(VLLM, "--kv-events-config", '{"enable_kv_cache_events":true}'),
        Declares.ON,
        "",
    ),
    ("dotted flags", part(VLLM, "--kv-events-config.enable_kv_cache_events", "True"), Declares.ON, ""),
    (
        "a publisher without enable_kv_cache_events",
        part(VLLM, "--kv-events-config", '{"publisher":"zmq","endpoint":"tcp://*:20080"}'),
        Declares.OFF,
        "enable_kv_cache_events: true",
    ),
    ("no flag in 1.6.1", part(VLLM), Declares.OFF, "no --kv-events-config"),
    ("no flag in 1.0", part(VLLM, image="vllm-runtime:1.0.0"), Declares.UNKNOWN, "differs between releases"),
    ("no flag, and no version", part(VLLM, image="vllm-runtime:latest"), Declares.UNKNOWN, "differs"),
    (
        "JSON in the wrong quotes",
        part(VLLM, "--kv-events-config", "{'enable_kv_cache_events':true}"),
        Declares.BROKEN,
        "args[1] is not one JSON object",
    ),
    (
        "prefix caching off beats all",
        part(VLLM, "--kv-events-config", ON, "--no-enable-prefix-caching"),
        Declares.OFF,
        "--no-enable-prefix-caching in args[2]",
    ),
    (
        "prefix caching off, then on again",
        part(VLLM, "--no-enable-prefix-caching", "--kv-events-config", ON, "--enable-prefix-caching"),
        Declares.ON,
        "",
    ),
    (
        "the null publisher",
        part(VLLM, "--kv-events-config", '{"publisher":"null","enable_kv_cache_events":true}'),
        Declares.OFF,
        '"zmq"',
    ),
    (
        "an endpoint with a host",
        part(VLLM, "--kv-events-config", events("tcp://0.0.0.0:5557")),
        Declares.BROKEN,
        "tcp://*:PORT",
    ),
    (
        "an endpoint on loopback",
        part(VLLM, "--kv-events-config", events("tcp://127.0.0.1:5557")),
        Declares.BROKEN,
        "connect",
    ),
    (
        "an endpoint bound to IPv6's loopback",
        part(VLLM, "--kv-events-config", events("tcp://[::1]:5557")),
        Declares.ON,
        "",
    ),
    ("an endpoint within the pod", part(VLLM, "--kv-events-config", events("ipc:///tmp/kv")), Declares.ON, ""),
    (
        "replay on the port of the second rank",
        part(
            VLLM,
            "--data-parallel-size",
            "2",
            "--kv-events-config",
            events("tcp://*:5557", ',"replay_endpoint":"tcp://*:5558"'),
        ),
        Declares.BROKEN,
        "5557 and replay from 5558 collide with 2 ranks",
    ),
    (
        "replay beside the only rank",
        part(VLLM, "--kv-events-config", events("tcp://*:5557", ',"replay_endpoint":"tcp://*:5558"')),
        Declares.ON,
        "",
    ),
    ("port 0", part(VLLM, "--kv-events-config", events("tcp://*:0"), "-dp", "4"), Declares.UNKNOWN, "(0)"),
    (
        "ports beyond the last",
        part(VLLM, "--kv-events-config", events("tcp://*:65534"), "--data-parallel-size", "4"),
        Declares.BROKEN,
        "65534 to 65537 for 4 ranks, limit 65535",
    ),
    (
        "SGLang as the examples write it",
        part(SGLANG, "--kv-events-config", '{"publisher":"zmq","endpoint":"tcp://*:5557"}'),
        Declares.ON,
        "",
    ),
    (
        "SGLang with vLLM's form",
        part(SGLANG, "--kv-events-config", '{"enable_kv_cache_events":true}'),
        Declares.OFF,
        "names no publisher",
    ),
    ("SGLang without the flag", part(SGLANG), Declares.OFF, "no --kv-events-config"),
    (
        "SGLang without an endpoint",
        part(SGLANG, "--kv-events-config", '{"publisher":"zmq"}'),
        Declares.BROKEN,
        "names no endpoint",
    ),
    ("SGLang with a host", part(SGLANG, "--kv-events-config", events("tcp://0.0.0.0:1")), Declares.BROKEN, "connect"),
    (
        "SGLang without its radix cache",
        part(SGLANG, "--disable-radix-cache", "--kv-events-config", ON),
        Declares.OFF,
        "--disable-radix-cache in args[0]",
    ),
    ("TensorRT-LLM's flag", part(TRTLLM, "--publish-kv-events"), Declares.ON, ""),
    ("TensorRT-LLM's old flag", part(TRTLLM, "--publish-events-and-metrics"), Declares.ON, ""),
    ("TensorRT-LLM's variable", part(TRTLLM, env={"DYN_TRTLLM_PUBLISH_KV_EVENTS": "true"}), Declares.ON, ""),
    ("TensorRT-LLM's old variable", part(TRTLLM, env={"DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS": "1"}), Declares.ON, ""),
    (
        "TensorRT-LLM's flag against its variable",
        part(TRTLLM, "--no-publish-kv-events", env={"DYN_TRTLLM_PUBLISH_KV_EVENTS": "true"}),
        Declares.OFF,
        "--no-publish-kv-events",
    ),
    ("TensorRT-LLM without a word", part(TRTLLM), Declares.OFF, "no --publish-kv-events"),
    (
        "TensorRT-LLM without block reuse",
        part(
            TRTLLM,
            "--publish-kv-events",
            "--override-engine-args",
            '{"kv_cache_config": {"enable_block_reuse": false}}',
        ),
        Declares.OFF,
        "enable_block_reuse: false",
    ),
    ("a mocker", part(MOCKER), Declares.ON, ""),
    ("a mocker without prefix caching", part(MOCKER, "--no-enable-prefix-caching"), Declares.OFF, "prefix caching"),
)


@pytest.mark.parametrize(
    ("worker", "says", "words"), [pytest.param(worker, says, words, id=name) for name, worker, says, words in CASES]
)
def test_what_a_spec_says(worker: Component, says: Declares, words: str) -> None:
    found = declared(worker)
    assert (found.says, words in found.why) == (says, True), found.why


def test_a_launcher_hides_everything() -> None:
    container = main(command=["/workload/launcher/launch-workload.sh"])
    worker = target_of(beta(component("Worker", "worker", container))).components[0]
    found = declared(worker)
    assert found.says is Declares.UNKNOWN
    assert "launcher" in found.why


@pytest.mark.parametrize(
    ("role", "must"),
    [
        pytest.param("agg", True, id="an aggregated worker"),
        pytest.param("prefill", True, id="a prefill worker"),
        pytest.param("decode", False, id="a decode worker need not"),
        pytest.param("encode", False, id="nor an encode worker"),
    ],
)
def test_who_must_publish(role: str, must: bool) -> None:
    assert must_publish(part(VLLM, "--disaggregation-mode", role)) is must


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        pytest.param([], {}, Routes.OTHER, id="Dynamo's default"),
        pytest.param([], {"DYN_ROUTER_MODE": "kv"}, Routes.KV, id="kv by the variable"),
        pytest.param(["--router-mode", "kv"], {}, Routes.KV, id="kv by the flag"),
        pytest.param(["--no-router-kv-events"], {"DYN_ROUTER_MODE": "kv"}, Routes.APPROXIMATE, id="told not to listen"),
        pytest.param(["--no-kv-events"], {}, Routes.APPROXIMATE, id="told so before the switch"),
        pytest.param([], {"DYN_ROUTER_USE_KV_EVENTS": "false"}, Routes.APPROXIMATE, id="told so by the variable"),
        pytest.param(["--router-mode", "$(MODE)"], {}, Routes.UNKNOWN, id="an expansion"),
    ],
)
def test_how_frontends_route(args: list[str], env: dict[str, str], expected: Routes) -> None:
    entries = [{"name": name, "value": value} for name, value in env.items()]
    container = main(command=["python3", "-m", "dynamo.frontend"], args=args, env=entries)
    assert routes(target_of(beta(component("Frontend", "frontend", container)))) is expected


def test_a_frontend_need_not_publish() -> None:
    assert not must_publish(part("frontend"))


EXAMPLE_EVENTS = {
    "vllm-1.5.0/agg_router.yaml": {"VllmDecodeWorker": Declares.ON},
    "vllm-1.5.0/disagg_router.yaml": {"VllmDecodeWorker": Declares.UNKNOWN, "VllmPrefillWorker": Declares.ON},
    "vllm-1.0.0/disagg_router.yaml": {"VllmDecodeWorker": Declares.UNKNOWN, "VllmPrefillWorker": Declares.ON},
    "trtllm-1.5.0/disagg_router.yaml": {"decode": Declares.OFF, "prefill": Declares.ON},
    "sglang-1.5.0/agg_router.yaml": {"decode": Declares.ON},
}


@pytest.mark.parametrize("path", EXAMPLE_EVENTS)
def test_nvidias_own_examples_of_both_versions(path: str) -> None:
    target = target_of(load(EXAMPLES / path))
    assert {worker.name: declared(worker).says for worker in target.workers} == EXAMPLE_EVENTS[path]


def old_recipe() -> Node:
    """v1alpha1: command and args apart, an unnamed container, and the publisher's old flag."""
    worker = {
        "componentType": "worker",
        "subComponentType": "prefill",
        "extraPodSpec": {
            "containers": None,
            "mainContainer": {
                "name": "",
                "image": "trtllm-runtime:1.0.0",
                "command": ["python3"],
                "args": ["-m", "dynamo.trtllm", "--publish-events-and-metrics", "--kv-block-size", "64"],
            },
        },
    }
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "x"},
        "spec": {"services": {"prefill": worker}},
    }


def test_an_old_recipe_of_v1alpha1() -> None:
    assert declared(target_of(old_recipe()).components[0]).says is Declares.ON


def test_the_oldest_style_publishes_nothing() -> None:
    """args that begin with python3, and no flag of events."""
    worker = {
        "componentType": "worker",
        "extraPodSpec": {"mainContainer": {"args": ["python3", "-m", "dynamo.trtllm"]}},
    }
    document = {**old_recipe(), "spec": {"services": {"decode": worker}}}
    target = read_target(document)
    assert declared(target_of(document).components[0]).says is Declares.OFF, target
