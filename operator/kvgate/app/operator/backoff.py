"""How long a pool waits after a turn that could not be carried through."""

from __future__ import annotations

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0
DOUBLINGS = 6


def backoff_seconds(failures: int, fraction: float) -> float:
    """Seconds to wait after so many failures in a row (1 or more): doubled each time, up to a minute.

    `fraction`, from 0 to 1, takes away up to half of it, so that pools that failed together come back apart.
    """
    doublings = min(max(failures, 1) - 1, DOUBLINGS)
    return float(min(FIRST_SECONDS * 2**doublings, LONGEST_SECONDS) * (1 - fraction / 2))
