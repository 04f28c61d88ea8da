"""Waits for what another process brings about."""

import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Poll until `holds` is true; raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"still not so after {seconds:.0f} s"
        time.sleep(0.1)
