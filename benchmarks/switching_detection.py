"""How long KV events may be lost before every frontend goes round-robin again: real processes, real ring, real load."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from benchmarks.switching import REQUESTS_PER_SECOND, gate, routed, turns_until
from benchmarks.tables import publish
from kvgate.api.words import ConditionType
from kvgate.app.ring import Turn
from kvgate.core.steps import Revert
from tests.core.worlds import told
from tests.dynamo_real.switching_gate import ROUTER_ENV, Gate
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Worker
from tests.dynamo_stage.standin.local import LocalPod

INTERVAL_SECONDS = 5.0
AFTER_INTERVAL_SECONDS = 5.0
FRONTENDS = 2
Change = Callable[[Worker], Worker]
FEWEST, TRIALS, MOST_SECONDS = 10, 12, 600.0
"""No trial begins after so many seconds; fewer than ten tell too little."""
EVENTS = ConditionType.KV_EVENTS_HEALTHY


@dataclass(frozen=True)
class Trial:
    """Seconds from the loss to the look with which it held, and to the last frontend on round-robin."""

    found: float
    served: float

    @property
    def acted(self) -> float:
        return self.served - self.found


@dataclass
class Frontends:
    """When all frontend pods that serve were last seen to become round-robin."""

    gate: Gate
    at: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        while not self.stop.wait(0.02):
            fronts = [pod for pod in self.gate.runtime.pods_of(self.gate.name) if pod.batch.component.frontend]
            modes = {pod.batch.component.environment[ROUTER_ENV] for pod in fronts}
            whole = modes == {"round-robin"} and len(fronts) == FRONTENDS and all(pod.available for pod in fronts)
            self.at = (self.at or time.monotonic()) if whole else None

    @contextmanager
    def watched(self) -> Iterator[Frontends]:
        thread = threading.Thread(target=self.look, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop.set()
            thread.join()


def workers(made: Gate) -> list[LocalPod]:
    return [pod for pod in made.runtime.pods_of(made.name) if not pod.batch.component.frontend]


def comes_back(made: Gate, change: Change) -> float:
    """One worker crashes and is started again with this change; when it is healthy."""
    made.runtime.shape = lambda _, worker: change(worker)
    pod = workers(made)[0]
    assert pod.running is not None
    before = pod.restarts
    os.kill(pod.running.process.pid, signal.SIGKILL)
    made.stage.until(lambda: pod.restarts > before and pod.healthy_since is not None, "the worker to be back")
    return time.monotonic()


def speechless(worker: Worker) -> Worker:
    """Its card says that it publishes no KV events."""
    return replace(worker, prefix_caching=False)


def trials(made: Gate) -> list[Trial]:
    began, done = time.monotonic(), list[Trial]()
    while len(done) < TRIALS and time.monotonic() < began + MOST_SECONDS:
        done.append(trial(made))
        print(f"{done[-1].found:.1f} s, {done[-1].served:.1f} s", flush=True)
    return done


def trial(made: Gate) -> Trial:
    made.asked(criteria={"routing": {}}, monitor__interval=f"{INTERVAL_SECONDS:.0f}s")
    routed(made)
    turns_until(made, lambda taken: told(taken.decision.status, EVENTS)[0] == "True", "events that flow")
    lost = comes_back(made, speechless)
    with Frontends(made).watched() as fronts:
        found = looked_at(made, turns_until(made, _reverts, "the loss to be found"))
        made.stage.until(lambda: fronts.at is not None, "round-robin at every frontend")
    assert fronts.at is not None
    made.until_gone()
    comes_back(made, lambda worker: worker)
    made.stage.until(lambda: all(pod.available for pod in workers(made)), "both workers")
    return Trial(found - lost, fronts.at - lost)


def looked_at(made: Gate, taken: Turn) -> float:
    """When the last look at a worker was taken by which this turn judged, by the monotonic clock."""
    assert taken.world.events is not None
    last = max(look.taken_at for worker in taken.world.events.workers for look in worker.looks)
    return time.monotonic() - (made.clock() - last).total_seconds()


def _reverts(taken: Turn) -> bool:
    return any(isinstance(step, Revert) for step in taken.decision.steps)


def spans(of: str, seconds: list[float]) -> tuple[str, ...]:
    return (of, f"{statistics.median(seconds):.1f} s", f"{max(seconds):.1f} s")


def main() -> bool:
    limit = INTERVAL_SECONDS + AFTER_INTERVAL_SECONDS
    with gate(FRONTENDS) as made, SteadyLoad(made.door, REQUESTS_PER_SECOND):
        done = trials(made)
    publish(
        "switching-detection",
        "From lost KV events to round-robin at every frontend",
        f"{len(done)} times: kvgate's ring over a real API server, {FRONTENDS} real frontends and two mock workers, "
        f"{REQUESTS_PER_SECOND} requests per second, monitor.interval {INTERVAL_SECONDS:g} s. A worker crashes and "
        "comes back with events off; they are lost once it is healthy. Its pod says that it was ready a minute ago, "
        "which kvgate would wait for otherwise. A loss holds from the second of two looks, an interval apart, that "
        f"found it; from there every frontend must be on round-robin within the interval + "
        f"{AFTER_INTERVAL_SECONDS:g} s = {limit:g} s, most of which the frontends take to start.",
        ("span", "median", "worst"),
        [
            spans("loss → it holds", [one.found for one in done]),
            spans(f"it holds → round-robin (limit {limit:g} s)", [one.acted for one in done]),
            spans("loss → round-robin", [one.served for one in done]),
        ],
    )
    return len(done) >= FEWEST and max(one.acted for one in done) <= limit


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
