"""What planning a sweep takes: the whole matrix, parts of it, and samples; beside the libraries that could colour."""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any

from benchmarks.tables import publish
from kvgate.api.words import Phase
from kvgate.core.evidence import Path
from kvgate.core.sampling import Sampling, sampled
from kvgate.core.topology import Places
from kvgate.probe.colouring import rounds_of
from kvgate.probe.jobs import LARGEST_SCHEDULE_BYTES
from kvgate.probe.plan import LinkTest, plan_paths
from kvgate_probe.wire import encode_schedule

SIDE, SAMPLE = 1000, 4096
MATRIX_SECONDS, MATRIX_MIB, SAMPLE_SECONDS = 10.0, 1024, 1.0
TEST = LinkTest(10, 4, 5201)
PEER_SIDES = (64, 128, 256)
PREFILL = [f"gpu-{number:04}" for number in range(SIDE)]
DECODE = [f"gpu-{number:04}" for number in range(SIDE, 2 * SIDE)]
LABELS = {
    name: {
        "nvidia.com/gpu.clique": f"domain-{place // 4}",
        "topology.kubernetes.io/rack": f"rack-{place // 8}",
        "topology.kubernetes.io/zone": f"zone-{place % 3}",
    }
    for side in (PREFILL, DECODE)
    for place, name in enumerate(side)
}
Told = tuple[int, int, int]
"""Rounds, tests of the busiest node, bytes of the encoded schedule (0 where none was made)."""
Measured = tuple[float, float, int, int, int]
"""Seconds, peak of resident MiB above what the process held before, and what was told."""


def matrix() -> Told:
    return planned([Path(a, b) for a, b in product(PREFILL, DECODE)], SIDE)


def planned(paths: Sequence[Path], degree: int) -> Told:
    schedule = plan_paths("run", "uid", paths, TEST, Phase.ISOLATED).schedule
    return len(schedule.rounds), degree, len(encode_schedule(schedule))


def tenth_left() -> Told:
    """All but every tenth path: what is due where a tenth has been measured since."""
    side = 300
    every = enumerate(product(PREFILL[:side], DECODE[:side]))
    paths = [Path(a, b) for n, (a, b) in every if n % 10 != n // side % 10]
    return planned(paths, busiest(paths))


def sample() -> Told:
    paths = sampled(Sampling(PREFILL, DECODE, SAMPLE, "uid", 0, Places(LABELS)))
    return planned(paths, busiest(paths))


def mixed() -> Told:
    """A third of 300 nodes with both roles, a third with either."""
    paths = [Path(a, b) for a, b in product(PREFILL[:200], PREFILL[100:300]) if a != b]
    return len(rounds_of(paths)), busiest(paths), 0


def busiest(paths: Iterable[Path]) -> int:
    return max(Counter(node for path in paths for node in (path.source, path.destination)).values())


def ours(side: int) -> Told:
    paths = [Path(a, b) for a, b in product(PREFILL[:side], DECODE[:side]) if (a, b) != (PREFILL[0], DECODE[0])]
    return len(rounds_of(paths)), side, 0


def networkx_matchings(side: int) -> Told:
    """networkx has no edge colouring: a maximum matching after the other, by Hopcroft and Karp."""
    nx: Any = import_module("networkx")
    graph = nx.complete_bipartite_graph(side, side)
    graph.remove_edge(0, side)
    left, rounds = range(side), 0
    while graph.number_of_edges():
        found = nx.bipartite.hopcroft_karp_matching(graph, left)
        graph.remove_edges_from([(node, found[node]) for node in left if node in found])
        rounds += 1
    return rounds, side, 0


def rustworkx_colouring(side: int) -> Told:
    rx: Any = import_module("rustworkx")
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(list(range(2 * side)))
    graph.add_edges_from_no_data([(a, side + b) for a in range(side) for b in range(side) if a or b])
    return len(set(rx.graph_bipartite_edge_color(graph).values())), side, 0


def measured(work: Callable[..., Told], *arguments: int) -> Measured:
    """In a process of its own, so that nobody else's memory counts."""
    ours_end, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        told: Measured = tuple(json.loads(ours_end.recv()))
    finally:
        process.join()
    return told


def _work(end: Any, work: Callable[..., Told], arguments: Sequence[int]) -> None:
    before, started = _peak_mib(), time.perf_counter()
    found = work(*arguments)
    told = (time.perf_counter() - started, _peak_mib() - before, *found)
    end.send(json.dumps(told))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peers() -> list[tuple[str, Callable[..., Told]]]:
    """Those that are installed: kvgate itself needs neither."""
    known = (("networkx", networkx_matchings), ("rustworkx", rustworkx_colouring))
    return [(name, work) for name, work in known if find_spec(name)]


def main() -> bool:
    plans = {
        f"whole matrix, {SIDE:,} × {SIDE:,}": measured(matrix),
        "300 × 300 without every tenth path": measured(tenth_left),
        f"{SAMPLE:,}-path sample of it": measured(sample),
        "300 nodes, a third with both roles": measured(mixed),
    }
    rows = [(name, *_cells(told)) for name, told in plans.items()]
    for side in PEER_SIDES:
        rows.append((f"{side} × {side} less one path", *_cells(measured(ours, side))))
        rows += [(f"the same by {name}", *_cells(measured(work, side))) for name, work in peers()]
    rows += [(f"{SIDE} × {SIDE} less one path by {name}", *_cells(measured(work, SIDE))) for name, work in peers()[1:]]
    publish(
        "planning",
        "What planning a sweep takes",
        "From node names, or paths, to the rounds of the schedule, each in a process of its own. "
        f"Limits: {MATRIX_SECONDS:g} s and {MATRIX_MIB:,} MiB for the whole matrix, {SAMPLE_SECONDS:g} s for a sample; "
        "choosing its paths by three topology labels is part of it, and so is encoding the schedule, which must fit "
        f"{LARGEST_SCHEDULE_BYTES:,} bytes of a ConfigMap.",
        ("plan", "seconds", "memory", "rounds", "busiest node", "schedule"),
        rows,
    )
    whole, _, drawn, _ = plans.values()
    fits = max(told[4] for told in plans.values()) <= LARGEST_SCHEDULE_BYTES
    return fits and whole[0] <= MATRIX_SECONDS and whole[1] <= MATRIX_MIB and drawn[0] <= SAMPLE_SECONDS


def _cells(told: Measured) -> tuple[str, ...]:
    seconds, mib, rounds, degree, size = told
    return (
        *(f"{seconds:.2f}", f"{mib:.0f} MiB", f"{rounds:,}", f"{degree:,} tests"),
        f"{size:,} bytes" if size else "—",
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
