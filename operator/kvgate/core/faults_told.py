"""What is said of a suspect: which part of the fabric, and the tests by which it is accused and others are cleared."""

from __future__ import annotations

from collections.abc import Iterable

from kvgate.core import text
from kvgate.core.evidence import Path
from kvgate.core.faults import Part, Suspect, Trials

_TOLD = 2
_NAMED = {
    Part.PATH: "path {name} alone",
    Part.SENDER: "node {name}, sending",
    Part.RECEIVER: "node {name}, receiving",
    Part.NODE: "node {name}, both ways",
    Part.UPLINK: "what traffic {name} shares",
    Part.FABRIC: "{name} alike: no part of the fabric stands out",
}


def named(suspect: Suspect) -> str:
    """`node d1, receiving`."""
    return _NAMED[suspect.part].format(name=suspect.name)


def blame(found: tuple[Suspect, ...], trials: Trials) -> str:
    """`; at fault: ...` for the end of a message; nothing where nobody is suspected."""
    if not found:
        return ""
    told = "; ".join(explained(suspect, trials) for suspect in found[:_TOLD])
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return f"; at fault: {told}{more}"


def explained(suspect: Suspect, trials: Trials) -> str:
    """The part, the bad tests that accuse it, and the good ones that clear everything else on the way."""
    what, bad = named(suspect), _tests((*suspect.clean, *_unclear(suspect)), trials)
    if suspect.part is Part.FABRIC:
        return f"{what} (bad: {bad})"
    if suspect.settled:
        return f"{what} (bad: {bad}; good: {_tests(suspect.cleared_by, trials)})"
    return f"{what}, as far as was tested (bad: {bad}; no test with other partners clears its ends)"


def _unclear(suspect: Suspect) -> tuple[Path, ...]:
    return tuple(path for path in suspect.bad if path not in suspect.clean)


def _tests(paths: Iterable[Path], trials: Trials) -> str:
    return text.listed(tuple(_test(path, trials) for path in paths))


def _test(path: Path, trials: Trials) -> str:
    rate, tries = trials.rates[path].bytes_per_second, trials.tries[path]
    again = f" in {tries} tests" if tries > 1 else ""
    return f"{path} {'nothing' if rate is None else text.rate(rate)}{again}"
