"""The operator's real shell as a process of its own, over a ground that counts: what it is given to look at, it notes.

The ground plays pools that are suspended, so that only events bring turns; everything else is what ships.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from kvgate.app.operator.main import OperatorOptions, run_operator
from kvgate.core.world import Pool, World
from kvgate.edge.cluster.client import Client
from kvgate.edge.connection import credentials
from tests.app.operator.memory_ground import MemoryGround, pool
from tests.core import cases


@dataclass
class CountingGround(MemoryGround):
    notes: Path = Path("notes")

    def observe(self, key: str) -> tuple[Pool, World]:
        with self.lock:
            self.pools.setdefault(key, replace(pool(key), spec=cases.spec({"suspend": True})))
        return super().observe(key)

    def _note(self, call: str, key: str) -> None:
        line = json.dumps({"pid": os.getpid(), "call": call, "key": key, "at": time.time()}) + "\n"
        with self.notes.open("a") as lines:
            lines.write(line)
        super()._note(call, key)


def main(kubeconfig: str, notes: str, lease_namespace: str, *namespaces: str) -> int:
    options = OperatorOptions(
        namespaces=namespaces,
        kubeconfig=kubeconfig,
        lease_namespace=lease_namespace,
        health_port=int(os.environ["HEALTH_PORT"]),
    )
    return run_operator(options, Client(credentials(kubeconfig)), lambda *_: CountingGround(notes=Path(notes)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
