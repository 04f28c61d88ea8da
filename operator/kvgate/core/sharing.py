"""Links that paths share: what paths carry together, against what they carry alone; and where that happens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from kvgate.api.words import Phase
from kvgate.core.evidence import Evidence, Path, Uplink
from kvgate.core.rates import Fabric, carried
from kvgate.core.topology import Places

SQUEEZED = 0.8
"""Paths share something where together they carry less than this share of what they carry alone,"""
GIVES_WAY = 0.95
"""and each of them carries less than this share of its own rate."""
_FEWEST = 2


@dataclass(frozen=True)
class SharedLink:
    """Paths that slow each other down, and what they carry together and alone, in bytes per second.

    `crossing` is what the labels call it, empty where none fits. `paths` are all that were seen to, `at_once` those of
    the slot in which they carried most together.
    """

    name: str
    crossing: str
    paths: tuple[Path, ...]
    at_once: tuple[Path, ...]
    together: float
    alone: float

    @property
    def oversubscription(self) -> float:
        """2.0 where twice of what is carried together could be carried alone."""
        return self.alone / self.together


@dataclass(frozen=True)
class _Squeeze:
    """What one path carried beside others, and alone; None where it was not tested alone."""

    path: Path
    together: float
    alone: float | None

    @property
    def gave_way(self) -> bool:
        return self.alone is not None and self.together < GIVES_WAY * self.alone


def shared_links(evidence: Evidence, places: Places) -> tuple[SharedLink, ...]:
    """The fewest shared links that explain all paths which carried less beside others of their slot than alone.

    One is named by the label of the place that it leaves or enters; where no label fits, by its paths.
    """
    found: dict[str, list[tuple[_Squeeze, ...]]] = defaultdict(list)
    for running in _slots(evidence):
        for name, paths in _explained(running, places):
            found[name].append(paths)
    return tuple(_link(name, slots) for name, slots in sorted(found.items()))


def _slots(evidence: Evidence) -> Iterator[tuple[_Squeeze, ...]]:
    """Per slot of the concurrent phase of one sweep, what its paths carried: each sweep numbers its own."""
    beside = (sample for sample in evidence.samples if sample.phase is Phase.CONCURRENT)
    together = tuple(sample for sample in beside if not sample.path.same_node)
    alone = _rates(evidence, Phase.ISOLATED) if together else {}
    slots: dict[tuple[str, int], list[_Squeeze]] = defaultdict(list)
    for sample in together:
        rate = carried(sample)
        if sample.slot is not None and rate is not None:
            squeeze = _Squeeze(sample.path, rate, alone.get((sample.path, sample.layer)))
            slots[sample.run_id, sample.slot].append(squeeze)
    for _, running in sorted(slots.items()):
        yield tuple(running)


def _rates(evidence: Evidence, phase: Phase) -> Mapping[tuple[Path, str], float]:
    rates: dict[tuple[Path, str], list[float]] = defaultdict(list)
    for sample in evidence.samples:
        if sample.phase is phase and (rate := carried(sample)) is not None:
            rates[sample.path, sample.layer].append(rate)
    return {key: median_low(found) for key, found in rates.items()}


def _explained(running: tuple[_Squeeze, ...], places: Places) -> Iterator[tuple[str, tuple[_Squeeze, ...]]]:
    left = {test.path for test in running if test.gave_way}
    groups = _crossed(running, places)
    while groups:
        name = min(groups, key=lambda name: (-len(left.intersection(_paths(groups[name]))), name))
        hit = groups.pop(name)
        if len(left.intersection(_paths(hit))) < _FEWEST:
            break
        left.difference_update(_paths(hit))
        yield name, hit
    rest = tuple(test for test in running if test.path in left)
    if _squeezed(rest) and all(test.alone is not None for test in running):
        yield "", rest


def _crossed(running: tuple[_Squeeze, ...], places: Places) -> dict[str, tuple[_Squeeze, ...]]:
    """Places that several paths cross at once and are squeezed in."""
    groups: dict[str, list[_Squeeze]] = defaultdict(list)
    for test in running:
        for crossing in places.crossings(test.path):
            groups[str(crossing)].append(test)
    return {name: tuple(tests) for name, tests in groups.items() if _squeezed(tests)}


def _squeezed(tests: Sequence[_Squeeze]) -> bool:
    """Whether several paths all gave way, and together to much less than they carry alone: however unevenly. Of those
    that were not tested alone nothing is said."""
    known = [(test, test.alone) for test in tests if test.alone is not None]
    together, alone = sum(test.together for test, _ in known), sum(alone for _, alone in known)
    return len(known) >= _FEWEST and all(test.gave_way for test, _ in known) and together < SQUEEZED * alone


def _would_carry(tests: Sequence[_Squeeze]) -> float:
    """What all of them carry alone, bytes per second: those that were not tested alone as the others, in proportion."""
    known = [(test.together, test.alone) for test in tests if test.alone is not None]
    share = sum(alone for _, alone in known) / sum(together for together, _ in known)
    return share * sum(test.together for test in tests)


def _paths(tests: Iterable[_Squeeze]) -> tuple[Path, ...]:
    return tuple(test.path for test in tests)


def _link(name: str, slots: list[tuple[_Squeeze, ...]]) -> SharedLink:
    most = max(slots, key=lambda tests: sum(test.together for test in tests))
    paths = tuple(sorted({test.path for tests in slots for test in tests}))
    what = f"what traffic {name} shares" if name else f"what {', '.join(map(str, paths[:3]))} share"
    return SharedLink(
        name=what,
        crossing=name,
        paths=paths,
        at_once=_paths(most),
        together=sum(test.together for test in most),
        alone=_would_carry(most),
    )


def uplinks(found: Iterable[SharedLink], fabric: Fabric, places: Places) -> tuple[Uplink, ...]:
    """Shared links as places that can fill up: their aggregate, and the share of all traffic of the paths in use that
    crosses them."""
    whole = sum(fabric.weight(path.path) for path in fabric.paths)
    if not whole:
        return ()
    shares = ((link, sum(map(fabric.weight, _crossing(link, fabric, places))) / whole) for link in found)
    return tuple(Uplink(link.name, link.together, share) for link, share in shares if share)


def _crossing(link: SharedLink, fabric: Fabric, places: Places) -> Iterator[Path]:
    """The paths in use across the link: by their labels, or those that were seen to share it."""
    for rates in fabric.paths:
        named = link.crossing and link.crossing in map(str, places.crossings(rates.path))
        if named or rates.path in link.paths:
            yield rates.path
