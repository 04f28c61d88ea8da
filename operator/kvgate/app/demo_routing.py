"""`kvgate demo routing`: Dynamo's own frontends and mock workers on this host, with KV events and without, and what the
gate of KV routing says of both."""

from __future__ import annotations

import json
import platform
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console

from kvgate.api.words import ConditionStatus, ConditionType
from kvgate.app.demo import empty_folder, sample, teller
from kvgate.app.output import Format, Report, print_reports
from kvgate.app.progress import sweeping
from kvgate.app.ring import Clock, Turn, turn
from kvgate.core.events_view import READY_SECONDS
from kvgate.core.explain import explain
from kvgate.edge.errors import EdgeError
from kvgate.edge.localsweep import LocalSweep
from kvgate.edge.mock_ground import MockGround
from kvgate.edge.mock_model import write_model
from kvgate.edge.mocks import find_python, mocks, wait_until_ready

MODEL = "tiny"
CACHING, NOT_CACHING = "--enable-prefix-caching", "--no-enable-prefix-caching"
TURN_SECONDS = 1.0
PATIENCE_SECONDS = 90.0
"""Beyond the time that workers must have been ready: looks, and canaries to workers that serve nobody."""


@dataclass(frozen=True)
class Deployment:
    """One of the two, and what must be said of its KV events."""

    name: str
    caching: str
    healthy: ConditionStatus
    reason: str

    @property
    def key(self) -> str:
        return f"serving/{self.name}"


DEPLOYMENTS = (
    Deployment("events-on", CACHING, ConditionStatus.TRUE, "KVEventsPublished"),
    Deployment("events-off", NOT_CACHING, ConditionStatus.FALSE, "KVEventsDisabled"),
)


def run(given: Path | None, keep: Path | None, form: Format, console: Console, errors: Console, clock: Clock) -> bool:
    """True when the events of the one are found healthy and those of the other missing, and both gates stay shut.

    `given` is the Python that has Dynamo, where it is not at its usual place. Raises EdgeError when there is none, or
    when its processes do not come up.
    """
    if platform.system() != "Linux":
        raise EdgeError("kvgate demo routing needs Linux, where every address of 127.0.0.0/8 is this host")
    python, tell = find_python(given), teller(form, console)
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvgate-demo-")))
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvgate-mocks-")))
        manifests = _lay_out(folder)
        write_model(work / MODEL, json.loads(yaml.safe_load(sample("config.yaml"))["data"]["config.json"]))
        running = stack.enter_context(mocks(python, work, [yaml.safe_load(text) for text in manifests.values()]))
        tell(f"{len(running)} processes of NVIDIA Dynamo: a frontend and two mock workers for each deployment.")
        wait_until_ready(running, MODEL)
        tell(f"They serve. A worker's KV events are judged once it has been ready for {READY_SECONDS} s.")
        measure = LocalSweep(clock, sweeping(errors))
        ground = MockGround(folder, measure, clock, running, work / "discovery", ready_at=clock())
        stack.callback(ground.end)
        with ground.locked():
            last = _turns(ground, clock)
        print_reports([_report(one) for one in last.values()], form, console)
        ends = {one: _as_expected(last[one.name], one, folder, manifests) for one in DEPLOYMENTS}
    for one, ended in ends.items():
        tell(_ending(last[one.name], one, ended=ended))
    if keep:
        tell(f"The manifests stand in {keep}.")
    return all(ends.values())


def _lay_out(folder: Path) -> dict[str, str]:
    """Write the manifests. Returns the text of each deployment."""
    empty_folder(folder)
    texts = {one.name: _renamed(sample("mock-deployment.yaml"), one) for one in DEPLOYMENTS}
    try:
        (folder / "nodes.yaml").write_text(sample("mock-nodes.yaml"), encoding="utf-8")
        for one in DEPLOYMENTS:
            _file(folder, one).write_text(texts[one.name], encoding="utf-8")
            (folder / f"{one.name}-pool.yaml").write_text(_renamed(sample("mock-pool.yaml"), one), encoding="utf-8")
    except OSError as error:
        raise EdgeError(f"{folder}: cannot be written ({error.strerror})") from error
    return texts


def _file(folder: Path, one: Deployment) -> Path:
    return folder / f"{one.name}-deployment.yaml"


def _renamed(text: str, one: Deployment) -> str:
    for here in ("name: mock\n", "targetRef: {name: mock}"):
        text = text.replace(here, here.replace("mock", one.name))
    return text.replace(CACHING, one.caching)


def _turns(ground: MockGround, clock: Clock) -> dict[str, Turn]:
    """The last turn of each pool: that in which its events are told of as they must be, or that which ran out of
    patience."""
    ends = time.monotonic() + READY_SECONDS + PATIENCE_SECONDS
    while True:
        last = {one.name: turn(ground, one.key, clock) for one in DEPLOYMENTS}
        if all(_told(last[one.name], one) for one in DEPLOYMENTS) or time.monotonic() > ends:
            return last
        time.sleep(TURN_SECONDS)


def _told(seen: Turn, one: Deployment) -> bool:
    held = next((c for c in seen.decision.status.conditions if c.type == ConditionType.KV_EVENTS_HEALTHY), None)
    return held is not None and (held.status, held.reason) == (one.healthy, one.reason)


def _report(last: Turn) -> Report:
    return Report(last.pool, last.decision.status, explain(last.pool, last.world, last.at))


def _as_expected(last: Turn, one: Deployment, folder: Path, manifests: dict[str, str]) -> bool:
    shut = not any(entry.enabled for entry in last.decision.status.capabilities)
    untouched = _file(folder, one).read_text(encoding="utf-8") == manifests[one.name]
    return _told(last, one) and shut and untouched


def _ending(last: Turn, one: Deployment, *, ended: bool) -> str:
    routing = last.decision.status.routing
    events = routing.events if routing else None
    told = f"{events.publishing_workers} of {events.expected_workers} workers publish KV events" if events else "unseen"
    if not ended:
        return f"{one.name}: NOT as expected, which was KVEventsHealthy {one.healthy.value} {one.reason}; {told}"
    if one.healthy is ConditionStatus.TRUE:
        return f"{one.name}: {told}; what the gate waits for is an A/B against round-robin, which runs in a cluster"
    return f"{one.name}: {told}; the gate stays shut, and its frontend on round-robin"
