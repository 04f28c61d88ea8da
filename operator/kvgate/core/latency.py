"""How long paths take, apart from what they carry: a round trip idle and under load, and a first transfer's set-up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from kvgate.core.evidence import Sample
from kvgate.core.rates import Fabric


@dataclass(frozen=True)
class Latency:
    """Seconds; None where no tool told.

    `round_trip` is of small packets just before a test, `loaded` of those that the test itself sent, by the sender's
    kernel, and `set_up` from the start of the KV transport's tool to its first measured transfer.
    """

    round_trip: float | None = None
    loaded: float | None = None
    set_up: float | None = None


def latency_of(samples: Iterable[Sample]) -> Latency:
    """Of one path, by its samples: the median of its idle round trips, and the largest of the others."""
    told = tuple(samples)
    return Latency(
        _median([s.round_trip_seconds for s in told]),
        _largest([s.loaded_round_trip_seconds for s in told]),
        _largest([s.set_up_seconds for s in told]),
    )


@dataclass(frozen=True)
class Latencies:
    """The medians over the paths that tell, and the largest round trip under load."""

    median: Latency
    worst_loaded: float | None


def latencies(fabric: Fabric) -> Latencies | None:
    """None where no measured path tells any."""
    told = (path.samples for path in fabric.measured if any(map(_tells, path.samples)))
    each = [latency_of(samples) for samples in told]
    loaded = [one.loaded for one in each]
    median = Latency(_median([one.round_trip for one in each]), _median(loaded), _median([one.set_up for one in each]))
    return None if median == Latency() else Latencies(median, _largest(loaded))


def _tells(sample: Sample) -> bool:
    known = (sample.round_trip_seconds, sample.loaded_round_trip_seconds, sample.set_up_seconds)
    return any(value is not None for value in known)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median_low(known) if known else None


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
