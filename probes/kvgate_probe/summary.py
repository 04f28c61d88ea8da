"""What a walker leaves as its last word: the termination message of its container, which the kubelet keeps."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate_probe.fields import Fields, WireError
from kvgate_probe.wire import WIRE_VERSION, Unreadable, dump, refuse_unmarked

MAX_TERMINATION_BYTES = 4096


@dataclass(frozen=True)
class Summary:
    """What the termination message carries: counts, never a measurement."""

    run_id: str
    node: str
    planned: int
    measured: int
    troubled: int
    interrupted: bool
    seconds: float
    message: str = ""


def encode_summary(summary: Summary) -> str:
    """At most MAX_TERMINATION_BYTES bytes, whatever the message."""
    return dump(
        {
            "kvgateProbe": WIRE_VERSION,
            "runID": _plain(summary.run_id, 253),
            "node": _plain(summary.node, 255),
            "planned": summary.planned,
            "measured": summary.measured,
            "troubled": summary.troubled,
            "interrupted": summary.interrupted,
            "seconds": round(summary.seconds, 3),
            "message": _plain(summary.message, 400),
        }
    )


def decode_summary(text: str) -> Summary | Unreadable:
    try:
        reader = Fields.of(text, "summary")
        refuse_unmarked(reader)
        return Summary(
            run_id=reader.name("runID"),
            node=reader.name("node"),
            planned=reader.whole("planned"),
            measured=reader.whole("measured"),
            troubled=reader.whole("troubled"),
            interrupted=reader.flag("interrupted"),
            seconds=reader.number("seconds"),
            message=reader.text("message"),
        )
    except WireError as error:
        return Unreadable(str(error))


def _plain(text: str, most: int) -> str:
    return text[:most].encode("ascii", "replace").decode("ascii")
