"""The listener against real ZMQ publishers on loopback: what flows, what is silent, garbage, or not there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from kvgate_probe.fields import WireError
from kvgate_probe.kvevents import line, listen, main
from kvgate_probe.kvevents_wire import Endpoint, Plan, decode_plan
from tests.edge.prometheus_double import double, says

DATA = Path(__file__).parents[1] / "data"
PAYLOADS: Mapping[str, str] = json.loads((DATA / "kv-event-payloads.json").read_text("utf-8"))
LEGACY = bytes.fromhex(PAYLOADS["vllm_legacy_medium"])
Publish = Callable[[list[bytes] | None], str]


@pytest.fixture
def publish() -> Iterator[Publish]:
    """Binds a publisher that says these frames ten times a second, or nothing at all."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def speak(server: zmq.Socket[bytes], frames: list[bytes] | None) -> None:
        number = 0
        while not ended.wait(0.1):
            if frames is not None:
                server.send_multipart(
                    [frames[0], number.to_bytes(8, "big"), *frames[1:]] if len(frames) > 1 else frames
                )
                number += 1
        server.close(0)

    def start(frames: list[bytes] | None) -> str:
        server = context.socket(zmq.PUB)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        threads.append(threading.Thread(target=speak, args=(server, frames), daemon=True))
        threads[-1].start()
        return f"tcp://127.0.0.1:{port}"

    yield start
    ended.set()
    for thread in threads:
        thread.join(5)
    context.destroy(0)


def heard(*addresses: str, seconds: float = 10.0, block: int | None = 4) -> list[dict[str, object]]:
    plan = Plan("run", seconds, tuple(Endpoint(f"w{place}", address) for place, address in enumerate(addresses)), block)
    return [json.loads(line(plan, listener)) for listener in listen(plan)]


def test_it_ends_as_soon_as_every_worker_was_heard(publish: Publish) -> None:
    began = time.monotonic()
    lines = heard(publish([b"kv-events", LEGACY]), publish([b"", LEGACY]), seconds=60)
    assert time.monotonic() - began < 30
    assert [(told["worker"], told["state"], told["topics"]) for told in lines] == [
        ("w0", "Flows", ["kv-events"]),
        ("w1", "Flows", [""]),
    ]


def test_four_kinds_of_trouble_are_told_apart(publish: Publish) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        lines = heard(
            publish(None),
            publish([b"only one frame"]),
            publish([b"", bytes.fromhex(PAYLOADS["block_size_2096"])]),
            nobody,
            seconds=2,
        )
    assert [told["state"] for told in lines] == [
        "PublishesNothing",
        "PublishesGarbage",
        "OtherBlockSize",
        "NotReachable",
    ]
    assert "2096" in str(lines[2]["message"])


def test_a_port_that_speaks_http_is_no_publisher() -> None:
    with double(says(b"hello")) as server:
        lines = heard(server.url.replace("http", "tcp"), seconds=2)
    assert [told["state"] for told in lines] == ["NotZMQ"]


def test_an_engine_that_connects_instead_of_binding_is_not_there() -> None:
    """Both sides connect: no error anywhere, and no message."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    engine = context.socket(zmq.PUB)
    engine.setsockopt(zmq.LINGER, 0)
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        engine.connect(address)
        engine.send_multipart([b"", b"\0" * 8, LEGACY])
        lines = heard(address, seconds=1)
    context.destroy(0)
    assert [told["state"] for told in lines] == ["NotReachable"]


def test_a_message_that_is_too_large_ends_nothing(publish: Publish) -> None:
    """ZMQ itself drops such a connection; the listener goes on."""
    lines = heard(publish([b"", b"x" * (17 * 1024 * 1024)]), publish([b"", LEGACY]), seconds=2)
    assert (lines[0]["stored"], lines[1]["state"]) == (0, "Flows")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"endpoints": []}, "1 to", id="no endpoint"),
        pytest.param({"seconds": 0}, "seconds", id="no time"),
        pytest.param({"seconds": 10_000}, "seconds", id="too long"),
        pytest.param({"endpoints": [{"worker": "w", "address": "tcp://example.org:1"}]}, "tcp://IP:PORT", id="a name"),
        pytest.param({"endpoints": [{"worker": "w", "address": "ipc:///run/x"}]}, "tcp://IP:PORT", id="a file"),
        pytest.param({"endpoints": [{"worker": "w", "address": "tcp://*:1"}]}, "tcp://IP:PORT", id="a wildcard"),
        pytest.param({"endpoints": [{"worker": "w", "address": "tcp://1.2.3.4:70000"}]}, "tcp://IP:PORT", id="no port"),
        pytest.param({"endpoints": [{"worker": "", "address": "tcp://1.2.3.4:1"}]}, "worker", id="no worker's name"),
        pytest.param({"blockTokens": 0}, "blockTokens", id="blocks of 0 tokens"),
    ],
)
def test_a_plan_that_cannot_be_followed_says_where(change: dict[str, object], words: str) -> None:
    plan = {"runID": "r", "seconds": 1, "endpoints": [{"worker": "w", "address": "tcp://[::1]:5557", "rank": 3}]}
    assert decode_plan(json.dumps(plan)).endpoints[0].rank == 3
    with pytest.raises(WireError, match=words.replace("[", r"\[")):
        decode_plan(json.dumps(plan | change))


def test_the_command_says_one_line_for_each_worker(publish: Publish, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    endpoints = [{"worker": f"w{place}", "address": publish([b"kv-events", LEGACY])} for place in range(2)]
    plan.write_text(json.dumps({"runID": "r", "seconds": 30, "endpoints": endpoints, "blockTokens": 4}), "utf-8")
    command = (sys.executable, "-m", "kvgate_probe.kvevents", "--plan", str(plan))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [json.loads(told)["state"] for told in ran.stdout.splitlines()] == ["Flows", "Flows"]
    assert ran.stderr == "2 of 2 endpoints publish KV events\n"


def test_a_plan_that_is_not_there_is_told_without_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == "kvgate_probe.kvevents: plan: No such file or directory\n"
