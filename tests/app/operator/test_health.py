"""What the kubelet is told, over real HTTP."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from kubernetes import client as kubernetes

from kvgate.app.operator.calls import Calls
from kvgate.app.operator.health import Beats, Health
from kvgate.edge.cluster.client import JOBS, Client
from kvgate.edge.errors import EdgeError
from tests.app.operator.memory_ground import until


@dataclass
class Served:
    seconds: float = 0.0
    ready: bool = False
    beats: Beats = field(init=False)

    def __post_init__(self) -> None:
        self.beats = Beats(lambda: self.seconds)
        self.calls = Calls(lambda: self.seconds)
        hanging = lambda: (*self.beats.hanging(), *self.calls.hanging())  # noqa: E731
        self.health = Health(0, hanging, lambda: self.ready, lambda: b"a 1\n")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    made.health.start()
    yield made
    made.health.stop()


def test_it_is_alive_while_every_part_moves_in_its_time(served: Served) -> None:
    beat = served.beats.part("election", 60)
    served.seconds = 59
    beat()
    served.seconds = 118

    assert served.get("/healthz") == (200, "ok\n")


def test_it_names_the_part_that_hangs(served: Served) -> None:
    served.beats.part("election", 60)
    slow = served.beats.part("worker-0", 600)
    served.seconds = 61
    slow()

    assert served.get("/healthz") == (503, "hangs: election\n")


def test_it_is_ready_when_the_operator_says_so(served: Served) -> None:
    before = served.get("/readyz")
    served.ready = True

    assert (before[0], served.get("/readyz")) == (503, (200, "ok\n"))


def test_there_is_nothing_else_to_see(served: Served) -> None:
    assert served.get("/")[0] == served.get("/healthz/..")[0] == 404


def test_metrics_are_served_beside_it(served: Served) -> None:
    assert served.get("/metrics") == (200, "a 1\n")


@contextmanager
def drip() -> Iterator[str]:
    """An API server whose answer never comes to its end: it sends a byte more often than a read times out."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
            while not stop.wait(0.1):
                connection.sendall(b" ")
            connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        stop.set()
        thread.join(5)


def test_a_request_to_the_api_server_that_hangs_is_noticed_within_60_seconds_and_forgiven_when_it_ends(
    served: Served,
) -> None:
    ended: list[str] = []
    with drip() as server:
        client = Client(kubernetes.Configuration(host=server), observer=served.calls.begun)

        def ask() -> None:
            try:
                client.get(JOBS, "serving", "x")
            except EdgeError as error:
                ended.append(str(error))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        until(lambda: bool(served.calls._open))
        served.seconds = 40
        early = served.get("/healthz")
        served.seconds = 59
        late = served.get("/healthz")
        assert not ended, "it hangs in truth"
    asking.join(10)

    assert (early, late) == ((200, "ok\n"), (503, "hangs: GET jobs\n"))
    assert len(ended) == 1
    assert served.get("/healthz") == (200, "ok\n")


def test_what_every_request_came_to_is_told_with_its_time() -> None:
    told: list[tuple[str, str, int, float]] = []
    seconds = [10.0]
    calls = Calls(lambda: seconds[0], lambda *call: told.append(call))
    first, second = calls.begun("GET", "pods"), calls.begun("PATCH", "nodes")
    seconds[0] = 12.5
    first(200)
    second(0)

    assert told == [("GET", "pods", 200, 2.5), ("PATCH", "nodes", 0, 2.5)]
    assert calls.hanging() == ()
