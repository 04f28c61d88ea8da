"""The real Helm, against one API server."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.access import Access, Document
from tests.install.plane import ROOT, SYSTEM

CHART = ROOT / "charts" / "kvgate"
BEFORE = Path(__file__).parent / "previous" / "kvgate-0.0.9.tgz"
"""The chart as it was before it had policies and a role for the network team."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True)
class Helm:
    program: Path
    access: Access
    home: Path

    def __call__(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HELM_CACHE_HOME": str(self.home), "HELM_CONFIG_HOME": str(self.home)}
        argv = [str(self.program), f"--kubeconfig={self.access.kubeconfig}", *map(str, args)]
        return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=120, check=False)

    def does(self, *args: str | Path) -> str:
        done = self(*args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def history(self, name: str) -> list[tuple[str, str]]:
        """Chart and status of each revision."""
        return [(r["chart"], r["status"]) for r in json.loads(self.does("history", name, "-n", SYSTEM, "-o", "json"))]

    def names(self, kind: str) -> list[str]:
        found = self.access.get(kind)["items"]
        return sorted(item["metadata"]["name"].removeprefix("kvgate-") for item in found if is_ours(item))


def is_ours(document: Document) -> bool:
    return str(document["metadata"]["name"]).startswith("kvgate-")
