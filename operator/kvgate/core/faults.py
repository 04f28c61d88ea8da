"""Who is at fault: the fewest paths, nodes and shared links that explain every bad test, and what to test next."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from kvgate.api.words import Phase
from kvgate.core.evidence import Evidence, Path, Sample
from kvgate.core.rates import PathRates, lower_percentile, path_rates
from kvgate.core.topology import Crossing, Places

SLOW_SHARE = 0.5
"""A test below this share of what the better quarter of all tests reaches is bad, as one that carries nothing. Not of
the median: in a small pool one bad node spoils more than half of all paths."""
USUAL_PERCENT = 75
MOST_TESTS = 64
"""Further tests that are asked for at once."""
_FEWEST_SHARED = 2
"""Bad tests that a part must explain which is more than one path."""
_TRIES = 2
"""Tests of one path after which no more of it are asked for: a fault is told from chance once it was seen twice."""


class Part(IntEnum):
    """What may be at fault, the narrower first: of two that explain as much, the narrower is named."""

    PATH = 1
    SENDER = 2
    RECEIVER = 3
    NODE = 4
    UPLINK = 5
    FABRIC = 6


@dataclass(frozen=True)
class Suspect:
    """One part at fault, and the bad tests that it explains.

    `clean` are those of them whose other ends do well elsewhere, as the good tests in `cleared_by` show.
    """

    part: Part
    name: str
    bad: tuple[Path, ...]
    clean: tuple[Path, ...] = ()
    cleared_by: tuple[Path, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether good tests of the other ends leave nothing else to blame; of a path one, of all else two bad tests
        must be so."""
        return self.part is Part.FABRIC or len(self.clean) >= _enough(self.part)


@dataclass(frozen=True)
class Trials:
    """Every path that was tested, in use or not, and how often. Below `least_bytes_per_second` any path is bad."""

    rates: Mapping[Path, PathRates]
    tries: Mapping[Path, int]
    least_bytes_per_second: float = 0.0

    @cached_property
    def usual_bytes_per_second(self) -> float:
        """What the better quarter of all tests reaches."""
        known = ((test.bytes_per_second, 1.0) for test in self.rates.values() if not test.at_least)
        return lower_percentile(((rate, weight) for rate, weight in known if rate is not None), USUAL_PERCENT) or 0.0

    @cached_property
    def bad(self) -> frozenset[Path]:
        limit = max(SLOW_SHARE * self.usual_bytes_per_second, self.least_bytes_per_second)
        return frozenset(path for path, test in self.rates.items() if _bad(test, limit))

    @cached_property
    def good(self) -> frozenset[Path]:
        measured = (path for path, test in self.rates.items() if test.bytes_per_second is not None)
        return frozenset(measured) - self.bad

    @cached_property
    def senders(self) -> Mapping[str, Path]:
        """Nodes that are known to send well, each with the first test that shows it."""
        return {path.source: path for path in sorted(self.good, reverse=True)}

    @cached_property
    def receivers(self) -> Mapping[str, Path]:
        """Nodes that are known to receive well, as above."""
        return {path.destination: path for path in sorted(self.good, reverse=True)}


_Key = tuple[Part, str | Path | Crossing]


@dataclass
class _Group:
    """All tests that cross one part."""

    bad: list[Path] = field(default_factory=list)
    good: bool = False


def _bad(test: PathRates, limit: float) -> bool:
    rate = test.bytes_per_second
    return test.unreachable is not None if rate is None else rate < limit and not test.at_least


def trials_of(evidence: Evidence, least_bytes_per_second: float, before: Mapping[Path, int] | None = None) -> Trials:
    """What each path carried alone, or beside others where it was never alone: who is at fault is a question to tests
    that did not disturb each other. A test that left no node clears and accuses nobody. `before` counts
    the tests of each path in sweeps before this one."""
    by_path: dict[Path, list[Sample]] = defaultdict(list)
    for sample in evidence.samples:
        if not sample.path.same_node:
            by_path[sample.path].append(sample)
    alone = {path: _alone(samples) for path, samples in by_path.items()}
    rates = {path: path_rates(path, samples) for path, samples in alone.items()}
    earlier = before or {}
    tries = {path: len(samples) + earlier.get(path, 0) for path, samples in alone.items()}
    return Trials(rates, tries, least_bytes_per_second)


def _alone(samples: Sequence[Sample]) -> Sequence[Sample]:
    return [sample for sample in samples if sample.phase is Phase.ISOLATED] or samples


def suspects(trials: Trials, places: Places) -> tuple[Suspect, ...]:
    """The smallest explanation of all bad tests: parts all of whose tests are bad, each time the one that explains
    most of what is left, the narrower of equals; one that others make needless is dropped. Nothing bad gives none."""
    if not trials.bad:
        return ()
    if not trials.good and len(trials.bad) > 1:
        return (Suspect(Part.FABRIC, "all paths", tuple(sorted(trials.bad))),)
    blamed = _blamed(trials, places)
    shared = {key: bad for key, bad in blamed.items() if key[0] is not Part.PATH}
    chosen: dict[_Key, tuple[Path, ...]] = {}
    left = set(trials.bad)
    while shared:
        best = min(shared, key=lambda key: (-len(left.intersection(shared[key])), key[0], str(key[1])))
        if len(left.intersection(shared[best])) < _FEWEST_SHARED:
            break
        chosen[best] = shared.pop(best)
        left.difference_update(chosen[best])
    chosen.update({(Part.PATH, path): (path,) for path in sorted(left, key=str)})
    return tuple(_suspect(key, bad, trials) for key, bad in _needed(chosen).items())


def _blamed(trials: Trials, places: Places) -> Mapping[_Key, tuple[Path, ...]]:
    """The parts that no good test crosses, with their bad tests: two at least, but for a path itself."""
    groups: dict[_Key, _Group] = defaultdict(_Group)
    for path in sorted(trials.bad):
        for part in _parts(path, places):
            groups[part].bad.append(path)
    for path in trials.good:
        for part in _parts(path, places):
            if part in groups:
                groups[part].good = True
    whole = {key: tuple(group.bad) for key, group in groups.items() if not group.good}
    return {key: bad for key, bad in whole.items() if len(bad) >= _enough(key[0])}


def _enough(part: Part) -> int:
    return 1 if part is Part.PATH else _FEWEST_SHARED


def _parts(path: Path, places: Places) -> Iterator[_Key]:
    yield Part.PATH, path
    yield Part.SENDER, path.source
    yield Part.RECEIVER, path.destination
    yield Part.NODE, path.source
    if not path.same_node:
        yield Part.NODE, path.destination
    for crossing in places.crossings(path):
        yield Part.UPLINK, crossing


def _needed(chosen: Mapping[_Key, tuple[Path, ...]]) -> Mapping[_Key, tuple[Path, ...]]:
    kept = dict(chosen)
    covered = Counter(path for bad in kept.values() for path in bad)
    for part, bad in chosen.items():
        if all(covered[path] > 1 for path in bad):
            covered.subtract(kept.pop(part))
    return kept


def _suspect(key: _Key, bad: tuple[Path, ...], trials: Trials) -> Suspect:
    part, name = key[0], str(key[1])
    clean = tuple(path for path in bad if all(_witness(end, trials) for end in _ends(part, name, path)))
    shown = clean[: _enough(part)]
    witnesses = (_witness(end, trials) for path in shown for end in _ends(part, name, path))
    return Suspect(part, name, bad, clean, tuple(dict.fromkeys(path for path in witnesses if path)))


def _ends(part: Part, name: str, path: Path) -> tuple[tuple[Part, str], ...]:
    """What else could be at fault for this path, beside the accused part: the ends that are not the part's own."""
    ends = ((Part.SENDER, path.source), (Part.RECEIVER, path.destination))
    if part is Part.NODE:
        return tuple(end for end in ends if end[1] != name)
    return tuple(end for end in ends if end[0] is not part)


def _witness(end: tuple[Part, str], trials: Trials) -> Path | None:
    """A good test that clears this end."""
    return (trials.senders if end[0] is Part.SENDER else trials.receivers).get(end[1])


def further_tests(trials: Trials, found: Iterable[Suspect]) -> tuple[Path, ...]:
    """The paths whose test would tell the suspects apart, some perhaps between nodes that no KV bytes travel: each
    accused path once more, and each end that nothing clears yet with a partner that is known to be good.

    A function of the evidence alone. Each answer adds a test of a path that is asked for, so that it ends.
    """
    asked: dict[Path, None] = {}
    for suspect in found:
        if suspect.part is Part.FABRIC:
            continue
        for path in (*suspect.clean, *suspect.bad)[: _enough(suspect.part)]:
            asked.update(dict.fromkeys(_wanted(suspect, path, trials)))
    return tuple(asked)[:MOST_TESTS]


def _wanted(suspect: Suspect, path: Path, trials: Trials) -> Iterator[Path]:
    if trials.tries.get(path, 0) < _TRIES:
        yield path
    for part, node in _ends(suspect.part, suspect.name, path):
        if _witness((part, node), trials) is None:
            yield from _clearing(suspect, part, node, trials)


def _clearing(suspect: Suspect, part: Part, node: str, trials: Trials) -> Iterator[Path]:
    """One test of this end, not tried yet: across a shared link with a partner on its own side, else with one that
    does well."""
    sends = part is Part.SENDER
    ends = (trials.receivers, trials.senders) if sends else (trials.senders, trials.receivers)
    near = {path.source if sends else path.destination for path in suspect.bad} if suspect.part is Part.UPLINK else ()
    partners = (*sorted(near), *sorted(ends[0]), *sorted(ends[1]))
    paths = (Path(node, partner) if sends else Path(partner, node) for partner in partners)
    untried = (path for path in paths if not path.same_node and path not in trials.tries)
    first = next(untried, None)
    if first is not None:
        yield first
