"""Whether a tool got the processor that it asked for: what one did not get says nothing of the path."""

from __future__ import annotations

from kvgate.probe.measured import Reader
from kvgate_probe.wire import Load, Result

MOST_WAITED = 0.2
MOST_STOLEN = 0.1
MOST_THROTTLED = 0.1
SATURATED_CORES = 0.95
"""iperf3 before 3.16 has one thread: at a whole core it is the sender that is slow."""


def starved(reader: Reader, *ends: Result | None) -> str:
    """Which end did not get its processor, by what and beyond which limit; "" where both did, as far as they tell."""
    return "; ".join(filter(None, (_end(reader, end) for end in ends if end is not None)))


def _end(reader: Reader, end: Result) -> str:
    told = [*_held(end.load), *(_saturated(end.load) if not reader.spins else [])]
    return f"{end.node}: {', '.join(told)}" if told else ""


def _held(load: Load) -> list[str]:
    limits = (
        ("the probe waited for a processor", load.waited, MOST_WAITED),
        ("the hypervisor took", load.stolen, MOST_STOLEN),
        ("the probe's CPU limit held it", load.throttled, MOST_THROTTLED),
    )
    return [
        f"{what} {share:.0%} of the time, at most {most:.0%}" for what, share, most in limits if share and share > most
    ]


def _saturated(load: Load) -> list[str]:
    if load.cores is None or load.cores < SATURATED_CORES:
        return []
    return [f"the probe used {load.cores:.2f} cores, and {SATURATED_CORES:g} of one is all that its thread can"]
