"""From samples to what each path carries: the smaller of link and endpoint, and the judged percentile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median_low

from kvgate.api.words import Phase
from kvgate.core.evidence import FAULTS_OF_THE_PATH, Evidence, Failure, FailureKind, Layer, Path, Sample

MOST_BELIEVABLE = 1e14
"""Bytes per second. No path carries more; such a number is a fault of the tool."""
LOOPBACK = frozenset({"lo", "lo0"})
REACHES_PACE = 0.95
"""Of the pace that a test asked for: the rest is the tool's own granularity."""


@dataclass(frozen=True, slots=True)
class PathRates:
    """What one path carried, per layer, in bytes per second; None where no tool gave a number.

    `samples` are those that gave the numbers.
    """

    path: Path
    link: float | None = None
    endpoint: float | None = None
    unreachable: Failure | None = None
    samples: tuple[Sample, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def bytes_per_second(self) -> float | None:
        """min(link, endpoint) over what was measured."""
        if self.link is None or self.endpoint is None:
            return self.link if self.endpoint is None else self.endpoint
        return min(self.link, self.endpoint)

    def of(self, layer: Layer) -> float | None:
        return self.link if layer is Layer.LINK else self.endpoint

    @property
    def nearest(self) -> tuple[Sample, ...]:
        """The samples of the layer nearest to the worker: of the endpoint, or of the link where that is all."""
        return tuple(sample for sample in self.samples if sample.layer is Layer.ENDPOINT) or self.samples

    @property
    def at_least(self) -> bool:
        """Whether the number is all that a paced test asked for, so that the path may carry more."""
        return any(reached_pace(sample) for sample in self.samples if carried(sample) == self.bytes_per_second)

    @property
    def answered(self) -> bool:
        """Whether the path has a number, or is known to carry nothing."""
        return bool(self.samples) or self.unreachable is not None


@dataclass(frozen=True)
class Fabric:
    """The paths in use and what they carry: everything that the criteria need of a sweep."""

    paths: tuple[PathRates, ...] = ()
    weights: Mapping[Path, float] = field(default_factory=dict)
    """Pairs of worker pods per path; empty where none is known, and then every path weighs the same."""

    def weight(self, path: Path) -> float:
        return self.weights.get(path, 0.0) if self.weights else 1.0

    @cached_property
    def measured(self) -> tuple[PathRates, ...]:
        return tuple(path for path in self.paths if path.bytes_per_second is not None)

    @cached_property
    def ordered(self) -> Mapping[Layer | None, Sequence[tuple[float, float]]]:
        """Pairs of bytes per second and weight, least first: of each layer, and under None of the paths."""
        weighed = [(path, self.weight(path.path)) for path in self.measured]
        return {
            None: sorted((path.bytes_per_second or 0.0, weight) for path, weight in weighed),
            Layer.LINK: sorted((path.link, weight) for path, weight in weighed if path.link is not None),
            Layer.ENDPOINT: sorted((path.endpoint, weight) for path, weight in weighed if path.endpoint is not None),
        }

    @cached_property
    def apart(self) -> Fabric:
        """The paths between two nodes: those that stay on one are a class of their own, and tell nothing of these."""
        return Fabric(tuple(path for path in self.paths if not path.path.same_node), self.weights)

    @cached_property
    def crossed(self) -> bool:
        """Whether serving may use a path between two nodes: not where every worker pair stays on one."""
        return any(self.weight(path.path) > 0 for path in self.apart.paths)

    @cached_property
    def own(self) -> Fabric:
        """The paths from a node to itself."""
        return Fabric(tuple(path for path in self.paths if path.path.same_node), self.weights)

    @cached_property
    def unreachable(self) -> tuple[PathRates, ...]:
        return tuple(path for path in self.paths if path.unreachable is not None)


def fabric(evidence: Evidence, in_use: Iterable[Path], weights: Mapping[Path, float] | None = None) -> Fabric:
    """What every path in use carries by this evidence; a path without a sample stays without a number."""
    by_path: dict[Path, list[Sample]] = {}
    for sample in evidence.samples:
        by_path.setdefault(sample.path, []).append(sample)
    return Fabric(tuple(path_rates(path, by_path.get(path, [])) for path in in_use), weights or {})


def carried(sample: Sample) -> float | None:
    """Payload and what serving moved meanwhile, in bytes per second; None for what no path can have carried."""
    probe, serving = sample.bytes_per_second, sample.serving_bytes_per_second or 0.0
    if probe is None or not (0 < probe <= MOST_BELIEVABLE and 0 <= serving <= MOST_BELIEVABLE):
        return None
    return probe + serving


def reached_pace(sample: Sample) -> bool:
    """Whether a paced test got what it asked for."""
    asked, rate = sample.paced_bytes_per_second, sample.bytes_per_second
    return asked is not None and rate is not None and rate >= REACHES_PACE * asked


def path_rates(path: Path, samples: Sequence[Sample]) -> PathRates:
    """What these samples of one path amount to. No number of another test makes up for data that arrived changed.
    One from a node to itself by loopback left no pod, and says nothing."""
    if path.same_node:
        samples = [sample for sample in samples if sample.interface not in LOOPBACK]
    if not samples:
        return PathRates(path)
    if len(samples) == 1 and samples[0].failure is None and (rate := carried(samples[0])) is not None:
        link, endpoint = (rate, None) if samples[0].layer is Layer.LINK else (None, rate)
        return PathRates(path, link, endpoint, samples=tuple(samples))
    rated = [(sample, rate) for sample in samples if (rate := carried(sample)) is not None]
    failures = tuple(sample.failure for sample in samples if sample.failure is not None)
    corrupt = next((failure for failure in failures if failure.kind is FailureKind.DATA_CORRUPT), None)
    if rated and corrupt is None:
        link, endpoint = (_rate([pair for pair in rated if pair[0].layer is layer]) for layer in Layer)
        return PathRates(path, link, endpoint, samples=tuple(sample for sample, _ in rated), failures=failures)
    dead = corrupt or next((failure for failure in failures if failure.kind in FAULTS_OF_THE_PATH), None)
    return PathRates(path, unreachable=dead, failures=failures)


def _rate(rated: Sequence[tuple[Sample, float]]) -> float | None:
    """The smallest over phases and tools; the repeats of a path by one tool in one phase count by their median."""
    if len(rated) <= 1:
        return rated[0][1] if rated else None
    repeats: dict[tuple[Phase, str], list[float]] = {}
    for sample, rate in rated:
        repeats.setdefault((sample.phase, sample.tool), []).append(rate)
    return min((median_low(rates) for rates in repeats.values()), default=None)


def lower_percentile(weighted: Iterable[tuple[float, float]], percent: float) -> float | None:
    """The weighted nearest-rank percentile from below of (bytes per second, weight) pairs; None of nothing.

    The smallest value at which the running weight reaches percent/100 of the whole.
    """
    ordered = sorted(pair for pair in weighted if pair[1] > 0)
    goal = percent / 100 * sum(weight for _, weight in ordered)
    running = 0.0
    for value, weight in ordered:
        running += weight
        if running >= goal - 1e-9:
            return value
    return None


def judged(seen: Fabric, slowest_percent: float, layer: Layer | None = None) -> float | None:
    """The throughput that verdicts use, in bytes per second: the lower percentile over measured paths in use, of one
    layer where asked. While no worker pods tell how many pairs share a node, paths that stay on one may lower it, and
    never raise it."""
    whole = lower_percentile(seen.ordered[layer], slowest_percent)
    if whole is None or seen.weights or not seen.own.paths:
        return whole
    between = lower_percentile(seen.apart.ordered[layer], slowest_percent)
    return whole if between is None else min(whole, between)


def slowest(seen: Fabric) -> PathRates | None:
    """The path that carries least; of several the first by name."""
    least = min((path.bytes_per_second or 0.0 for path in seen.measured), default=None)
    return min((path for path in seen.measured if path.bytes_per_second == least), key=lambda p: p.path, default=None)
