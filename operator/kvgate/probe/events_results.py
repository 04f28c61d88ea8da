"""From the log of the event probe's pod to what was heard: a line counts for one endpoint of the plan, or not."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.core.events_seen import Heard, Hears
from kvgate_probe.fields import Fields, WireError
from kvgate_probe.kvevents_wire import Endpoint

MOST_LOG_CHARACTERS = 4 * 1024 * 1024
MOST_BLOCK_SIZES = 16


@dataclass(frozen=True)
class HeardAll:
    """What was read, and in a few words what is missing."""

    entries: tuple[Heard, ...] = ()
    trouble: str = ""


def read_listening(log: str, run_id: str, endpoints: tuple[Endpoint, ...]) -> HeardAll:
    """Never raises, and repeats nothing of the log. Lines of other runs and endpoints are passed over; an endpoint of
    which there are two lines counts as not told."""
    if len(log) > MOST_LOG_CHARACTERS:
        return HeardAll((), f"its log has {len(log)} characters, at most {MOST_LOG_CHARACTERS} are read")
    told: dict[Endpoint, list[Heard]] = {endpoint: [] for endpoint in endpoints}
    for line in log.splitlines():
        if (heard := _line(line, run_id)) is not None and (place := Endpoint(heard.pod, heard.address)) in told:
            told[place].append(heard)
    entries = tuple(found[0] for found in told.values() if len(found) == 1)
    missing = len(told) - len(entries)
    return HeardAll(entries, f"of {missing} of {len(told)} endpoints it says nothing" if missing else "")


def _line(line: str, run_id: str) -> Heard | None:
    if not line.startswith("{"):
        return None
    try:
        fields = Fields.of(line, "line")
        if fields.text("runID") != run_id:
            return None
        sizes = fields.items("blockTokens")[:MOST_BLOCK_SIZES]
        whole = tuple(size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0)
        return Heard(fields.name("worker"), fields.name("address"), Hears(fields.one_of("state", Hears)), whole)
    except WireError:
        return None
