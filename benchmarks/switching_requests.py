"""How many requests fail in each switch: kvgate's way, and by scaling the prefill workers to zero."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from benchmarks.switching import REQUESTS_PER_SECOND, gate, routed
from benchmarks.tables import publish
from kvgate.core.ab.experiment import Arm
from tests.cluster.access import Document
from tests.core.ab.trials import experiment, run
from tests.core.worlds import ROUTING, SPLIT
from tests.dynamo_real.switching_gate import Gate, outages
from tests.dynamo_stage.load import Sent, SteadyLoad
from tests.dynamo_stage.specs import Worker
from tests.dynamo_stage.standin.samples import set_modes

ROUNDS = 3
WINDOW_SECONDS, BEFORE_SECONDS = 20.0, 2.0
LOADING_SECONDS = 3.0
SLOW_SECONDS = 2.0
PUT_BACK_SECONDS = 60.0
MOST_SECONDS = 310.0
MOST_LOST_PER_SWITCH = 2
MIGRATION_LIMIT = 3
LOST = experiment(runs=tuple(run(block, arm, 2.0 if arm is Arm.KV else 1.0) for block in range(8) for arm in Arm))
CRITERIA = {"routing": {}, "disaggregation": {"ttftBudget": "2s"}}
Row = list[str]
SPLIT_UP, WHOLE = ("prefill", "decode"), ("agg", "agg")


@dataclass(frozen=True)
class Switch:
    """One way to switch."""

    what: str
    way: str
    act: Callable[[Gate], None]

    def of(self, sent: Sequence[Sent]) -> list[list[Sent]]:
        """The requests of each time that it was taken, from two seconds before its cause to its proof, in order."""
        mine = [one for one in sent if one.phase.rpartition(" ")[0] == self._title]
        mine.sort(key=lambda one: one.began_seconds)
        return [list(ones) for _, ones in groupby(mine, key=lambda one: one.phase)]

    def taken(self, made: Gate, load: SteadyLoad, number: int) -> None:
        """At least for the window."""
        ends = time.monotonic() + WINDOW_SECONDS
        load.phase = f"{self._title} {number}"
        time.sleep(BEFORE_SECONDS)
        self.act(made)
        time.sleep(max(0.0, ends - time.monotonic()))
        load.phase = "between"
        print(f"{self._title} {number}", flush=True)

    @property
    def _title(self) -> str:
        return f"{self.what}, {self.way}"


def loading(worker: Worker) -> Worker:
    return replace(worker, loading_seconds=LOADING_SECONDS)


def split_up(made: Gate) -> None:
    made.approved()
    made.until_on(SPLIT)
    made.until_rolled_out()


def aggregated(made: Gate) -> None:
    made.withdrawn()
    made.until_off(SPLIT)


def round_robin(made: Gate) -> None:
    made.compared(LOST)
    made.until_off(ROUTING)


def patched(made: Gate, change: Callable[[Document], None]) -> None:
    """As a person would: change the manifest and apply it."""
    document = made.deployment()
    change(document["spec"])
    head = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    made.access.apply({**head, "metadata": {"name": made.name, "namespace": "default"}, "spec": document["spec"]})


def prefill_workers(spec: Document, count: int) -> None:
    next(one for one in spec["components"] if one["name"] == "PrefillWorker")["replicas"] = count


def scaled_to_zero(made: Gate) -> None:
    patched(made, lambda spec: prefill_workers(spec, 0))


def scaled_and_joined(made: Gate) -> None:
    scaled_to_zero(made)
    patched(made, lambda spec: set_modes(spec, *WHOLE))


KV, ROUND_ROBIN = Switch("round-robin → kv", "kvgate", routed), Switch("kv → round-robin", "kvgate", round_robin)
APART, TOGETHER = Switch("agg → split", "kvgate", split_up), Switch("split → agg", "kvgate", aggregated)
OURS = (KV, ROUND_ROBIN, APART, TOGETHER)
NAIVE = (
    Switch("split → agg", "prefill replicas → 0", scaled_to_zero),
    Switch("split → agg", "prefill replicas → 0, then the workers to agg", scaled_and_joined),
)


def rounds() -> Iterator[int]:
    """No round begins after MOST_SECONDS; the table says how many there were."""
    ends = time.monotonic() + MOST_SECONDS
    for number in range(ROUNDS):
        if time.monotonic() < ends:
            yield number


def ours() -> SteadyLoad:
    with gate(frontends=1) as made, SteadyLoad(made.door, REQUESTS_PER_SECOND) as load:
        for number in rounds():
            made.asked(criteria=CRITERIA, rollback__onApprovalLost="Revert")
            made.shaped(loading)
            made.restarted()
            KV.taken(made, load, number)
            ROUND_ROBIN.taken(made, load, number)
            made.swept()
            APART.taken(made, load, number)
            TOGETHER.taken(made, load, number)
            made.until_gone()
    return load


def naive() -> SteadyLoad:
    """Each starts on a split deployment that serves, which it is made again after its window."""
    with gate(frontends=1) as made, SteadyLoad(made.door, REQUESTS_PER_SECOND) as load:
        made.runtime.shape = lambda _, worker: loading(worker)
        for number in rounds():
            for switch in NAIVE:
                put_back(made)
                switch.taken(made, load, number)
    return load


def put_back(made: Gate) -> None:
    def change(spec: Document) -> None:
        prefill_workers(spec, 1)
        set_modes(spec, *SPLIT_UP)

    patched(made, change)
    served = [False] * 3

    def serves() -> bool:
        served.append(made.door.chat("put back", seconds=5).split)
        time.sleep(0.5)
        return all(served[-3:])

    made.stage.until(serves, "the split to serve", seconds=PUT_BACK_SECONDS)


def outage_seconds(sent: Sequence[Sent]) -> float:
    """The longest time in which every request failed, from the first that did to the next that did not."""
    longest, began = 0.0, None
    for one in sent:
        if not one.answer.good:
            began = one.began_seconds if began is None else began
        if began is not None:
            longest = max(longest, one.began_seconds - began + (not one.answer.good) / REQUESTS_PER_SECOND)
        if one.answer.good:
            began = None
    return longest


def row(switch: Switch, load: SteadyLoad) -> Row:
    times = switch.of(load.so_far())
    sent = [one for ones in times for one in ones]
    failed = [one for one in sent if not one.answer.good]
    slow = [one for one in sent if one.answer.good and one.answer.seconds > SLOW_SECONDS]
    longest = max((outage_seconds(ones) for ones in times), default=0.0)
    return [switch.what, switch.way, str(len(times)), *map(str, map(len, (sent, failed, slow))), f"{longest:.1f} s"]


def kvgate() -> tuple[list[Row], bool]:
    load = ours()
    counted = [one for switch in OURS for ones in switch.of(load.so_far()) for one in ones]
    failed = [one for one in counted if not one.answer.good]
    tell(failed)
    away = outages(load)
    good = not any(one in away for one in failed) and len(failed) <= MOST_LOST_PER_SWITCH * ROUNDS * len(OURS)
    return [row(switch, load) for switch in OURS], good


def by_hand() -> tuple[list[Row], bool]:
    load = naive()
    tell([one for switch in NAIVE for ones in switch.of(load.so_far()) for one in ones if not one.answer.good])
    return [row(switch, load) for switch in NAIVE], True


def tell(failed: Sequence[Sent]) -> None:
    for (phase, status, error), count in Counter(
        (one.phase, one.answer.status, one.answer.error[:160]) for one in failed
    ).items():
        print(f"{phase}: {count} × {status} {error}", flush=True)


PARTS = {"kvgate": kvgate, "hand": by_hand}


def main(parts: Sequence[str] = tuple(PARTS), kept: Path | None = None) -> bool:
    """The table is published once all parts are measured; rows of an earlier call come from `kept`."""
    rows: dict[str, list[Row]] = json.loads(kept.read_text("utf-8")) if kept and kept.exists() else {}
    found = {part: PARTS[part]() for part in parts}
    rows |= {part: told for part, (told, _) in found.items()}
    if kept:
        kept.write_text(json.dumps(rows), "utf-8")
    if rows.keys() == PARTS.keys():
        _publish([told for part in PARTS for told in rows[part]])
    return all(good for _, good in found.values())


def _publish(rows: list[Row]) -> None:
    publish(
        "switching-requests",
        "Requests that fail in a switch",
        f"Real frontend and mock workers, {REQUESTS_PER_SECOND} requests per second through the live frontend, "
        f"migration limit {MIGRATION_LIMIT}; a worker takes {LOADING_SECONDS:g} s to load. Counted are the requests "
        f"from {BEFORE_SECONDS:g} s before the cause until the switch is proven, for {WINDOW_SECONDS:g} s at least; by "
        f"hand nothing is proven, and {WINDOW_SECONDS:g} s are counted. A request is slow above {SLOW_SECONDS:g} s; "
        "the longest outage is the longest time in which every request failed. Without a prefill worker the model is "
        "not ready, and no decode worker takes its place; by hand the deployment was split again each time. What fails "
        "in kvgate's way is Dynamo's own: 503 for milliseconds between two generations, 500 in a KV frontend that "
        "stops.",
        ("switch", "way", "times", "requests", "failed", "slow", "longest outage"),
        rows,
    )


def _asked() -> tuple[Sequence[str], Path | None]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="Measure this part alone.")
    parser.add_argument("--kept", type=Path, help="Where the rows of a part are kept until all are measured.")
    asked = parser.parse_args()
    return asked.part or tuple(PARTS), asked.kept


if __name__ == "__main__":
    sys.exit(0 if main(*_asked()) else 1)
