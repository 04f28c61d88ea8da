"""How the streams of one test shared a path: what hints at hashing on one member link."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from kvgate_probe.fields import Fields

LARGE_VARIATION = 0.3
ALIKE = 0.05


@dataclass(frozen=True)
class Flows:
    """Each stream's rate at the receiver, in bytes per second; empty where the document does not tell."""

    bytes_per_second: tuple[float, ...] = ()

    @property
    def variation(self) -> float:
        """The coefficient of variation: standard deviation by mean, without a unit."""
        mean = statistics.fmean(self.bytes_per_second) if self.bytes_per_second else 0.0
        return statistics.pstdev(self.bytes_per_second) / mean if mean else 0.0

    @property
    def total(self) -> float:
        return sum(self.bytes_per_second)


def flows_of(fields: Fields) -> Flows:
    """Raises WireError where a stream's rate is no number."""
    end = fields.within("end")
    if not isinstance(end.values.get("streams"), list):
        return Flows()
    receivers = [one.within("receiver") for one in end.objects("streams") if "receiver" in one.values]
    return Flows(tuple(one.number("bits_per_second", above=-1) / 8 for one in receivers))


def hash_limited(flows: Flows, member_bytes_per_second: float | None = None) -> bool:
    """Whether the streams shared unevenly, or together filled one member link of a known rate (bytes per second)."""
    if len(flows.bytes_per_second) < 2:
        return False
    if flows.variation > LARGE_VARIATION:
        return True
    member = member_bytes_per_second
    return member is not None and abs(flows.total - member) <= ALIKE * member
