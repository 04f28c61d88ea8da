"""What the kubelet is told, over real HTTP."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kvgate.app.operator.health import Beats, Health


@dataclass
class Served:
    seconds: float = 0.0
    ready: bool = False
    beats: Beats = field(init=False)

    def __post_init__(self) -> None:
        self.beats = Beats(lambda: self.seconds)
        self.health = Health(0, self.beats, lambda: self.ready)

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
