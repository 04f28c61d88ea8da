"""Fixtures that more than one room's tests use."""

from __future__ import annotations

import signal

pytest_plugins = ["tests.cluster.fixtures", "tests.dynamo_stage.fixtures"]


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would each process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
