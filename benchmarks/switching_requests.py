"""How many requests fail in each switch: kvgate's way, and by scaling the prefill workers to zero and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.switching import REQUESTS_PER_SECOND, WON, gate, routed
from benchmarks.tables import publish
from kvgate.core.ab.experiment import Arm
from tests.cluster.access import Document
from tests.core.ab.trials import run
from tests.core.worlds import ROUTING, SPLIT
from tests.dynamo_real.switching_gate import Gate, outages, stopped
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.standin.samples import set_modes

ROUNDS = 3
ANSWERS_AFTER = 2 * REQUESTS_PER_SECOND
LOST = replace(WON, runs=tuple(run(block, arm, 2.0 if arm is Arm.KV else 1.0) for block in range(8) for arm in Arm))
CRITERIA = {"routing": {}, "disaggregation": {"ttftBudget": "2s"}}


@dataclass(frozen=True)
class Switch:
    """One way to switch, and what users saw of it."""

    what: str
    way: str
    act: Callable[[Gate], None]


def split_up(made: Gate) -> None:
    made.swept()
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
    """As a person would: change the manifest, apply it, and wait until it is rolled out."""
    document = made.deployment()
    change(document["spec"])
    head = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    metadata = {"name": made.name, "namespace": "default"}
    made.access.apply({**head, "metadata": metadata, "spec": document["spec"]})
    made.until_rolled_out()


def _replicas(count: int) -> Callable[[Document], None]:
    def change(spec: Document) -> None:
        next(one for one in spec["components"] if one["name"] == "PrefillWorker")["replicas"] = count

    return change


def scaled_to_zero(made: Gate) -> None:
    patched(made, _replicas(0))
    patched(made, lambda spec: set_modes(spec, "prefill", "agg"))


def scaled_back(made: Gate) -> None:
    patched(made, _replicas(1))
    patched(made, lambda spec: set_modes(spec, "prefill", "decode"))


OURS, NAIVE = "kvgate", "prefill replicas"
ROUND = (
    Switch("round-robin → kv", OURS, routed),
    Switch("kv → round-robin", OURS, round_robin),
    Switch("agg → split", OURS, split_up),
    Switch("split → agg", OURS, aggregated),
)
BY_HAND = (
    Switch("split → agg", f"{NAIVE} → 0, then the others to agg", scaled_to_zero),
    Switch("agg → split", f"{NAIVE} 0 → 1, then the others to decode", scaled_back),
)


def ours(made: Gate, load: SteadyLoad) -> None:
    made.asked(criteria=CRITERIA, rollback__onApprovalLost="Revert")
    made.restarted()
    for switch in ROUND:
        _take(switch, made, load)
    made.until_gone()


def _take(switch: Switch, made: Gate, load: SteadyLoad) -> None:
    """What began in it, and for two seconds after, counts."""
    load.phase = f"{switch.what}, {switch.way}"
    switch.act(made)
    load.wait_for(ANSWERS_AFTER)
    load.phase = "between"


def row(switch: Switch, load: SteadyLoad) -> tuple[str, ...]:
    mine = f"{switch.what}, {switch.way}"
    kinds = (load.so_far(), load.raced(), stopped(load), outages(load))
    counts = (sum(one.phase == mine for one in ones) for ones in kinds)
    return (switch.what, switch.way, str(ROUNDS), *map(str, counts))


def main() -> bool:
    with gate(frontends=1) as made, SteadyLoad(made.door, REQUESTS_PER_SECOND) as load:
        for _ in range(ROUNDS):
            ours(made, load)
    with gate(frontends=1) as made, SteadyLoad(made.door, REQUESTS_PER_SECOND) as by_hand:
        patched(made, lambda spec: set_modes(spec, "prefill", "decode"))
        for _ in range(ROUNDS):
            for switch in BY_HAND:
                _take(switch, made, by_hand)
    publish(
        "switching-requests",
        "Requests that fail in a switch",
        f"Real frontend and mock workers, {REQUESTS_PER_SECOND} requests per second through the live frontend, "
        "migration limit 3. A switch lasts from its cause to its proof, and two seconds more. Some failures are "
        "Dynamo's own: 503 in the milliseconds between two generations, and 500 to what waits in a KV frontend that is "
        "asked to stop. An outage is every other failure: the model not found, not ready or not "
        "reachable. Limit for kvgate: no outage, and two requests of Dynamo's own per switch.",
        ("switch", "way", "times", "requests", "between generations", "in a frontend that stops", "in an outage"),
        [*(row(switch, load) for switch in ROUND), *(row(switch, by_hand) for switch in BY_HAND)],
    )
    mine = {f"{switch.what}, {switch.way}" for switch in ROUND}
    own = [one for one in (*load.raced(), *stopped(load)) if one.phase in mine]
    return not any(one.phase in mine for one in outages(load)) and len(own) <= 2 * ROUNDS * len(ROUND)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
