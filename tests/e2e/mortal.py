"""`python -m tests.e2e.mortal`: the operator as it ships, killed by SIGKILL right after a write of its was answered."""

from __future__ import annotations

import itertools
import logging
import os
import signal
from typing import Any

from kvgate.app.cli import run
from kvgate.app.operator.logs import say
from kvgate.edge.cluster.client import Client

WRITES = "KVGATE_E2E_WRITES"
"""After how many writes it dies; what the API server refused does not count."""
NO_STEPS = ("/apis/coordination.k8s.io/", "/apis/events.k8s.io/")
"""Renewals of the Lease, and news: no later step depends on them."""


def main() -> None:
    ask, left = Client._ask, itertools.count(int(os.environ[WRITES]) - 1, -1)

    def mortal(client: Client, method: str, path: str, what: str, **rest: Any) -> str:
        told = ask(client, method, path, what, **rest)
        if method != "GET" and not path.startswith(NO_STEPS) and next(left) == 0:
            say(logging.INFO, "killed by the test", after=f"{method} {path}")
            os.kill(os.getpid(), signal.SIGKILL)
        return told

    Client._ask = mortal  # type: ignore[assignment, method-assign]
    run()


if __name__ == "__main__":
    main()
