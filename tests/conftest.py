"""Fixtures that more than one room's tests use."""

from __future__ import annotations

import signal

from hypothesis import settings

pytest_plugins = ["tests.cluster.fixtures", "tests.dynamo_stage.fixtures"]


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would each process that a test starts and interrupts. How long an
    example takes says more of the machine's load than of the code."""
    settings.register_profile("any load", deadline=None)
    settings.load_profile("any load")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
