"""Which tests may run beside each other though each is meant to be alone: those that share no link by any label."""

from __future__ import annotations

from kvgate.core.at_once import Apart, AtOnce, PlaceLimit
from kvgate.core.evidence import Path
from kvgate.core.extent import at_once
from kvgate.core.judging import Case
from kvgate.core.topology import Places


def apart(case: Case) -> Apart:
    """One test at a time in each narrowest place that labels tell, and one over the edge of each wider one; where no
    label tells nodes apart, one at a time. What failed comes first."""
    limits, places = at_once(case), case.places
    narrow = {name: place for name in places.labels if (place := _narrowest(places, name))}
    wider = (PlaceLimit(1, {n: own[key] for n, own in places.labels.items() if own.get(key)}) for key in places.keys)
    within = (PlaceLimit(1, narrow, inside=True), *(limit for limit in wider if limit.places), *limits.places)
    return Apart(AtOnce(limits.paths, within), frozenset(failing(case)))


def failing(case: Case) -> tuple[Path, ...]:
    """The paths in use that the verdict rests on where it is bad: those that carry nothing, and those no faster than
    the judged one."""
    return tuple(path.path for path in (*case.fabric.unreachable, *case.slow))


def _narrowest(places: Places, node: str) -> str:
    labels = places.labels[node]
    return next((f"{key}={labels[key]}" for key in places.keys if labels.get(key)), "")
