"""The operator as a process on this machine, acting as its own ServiceAccount and with nothing but its rights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvgate.app.operator.main import LEASE_NAMESPACE
from tests.cluster.controlplane import LOOPBACK, free_port
from tests.cluster.waiting import eventually

ROOT = Path(__file__).parents[2]
SYSTEM = "kvgate-system"
LEASE = ("kvgate-operator", LEASE_NAMESPACE)
START_SECONDS, END_SECONDS = 40.0, 75.0
LAST_LINES = 25
KVGATE = (sys.executable, "-m", "kvgate.app")


@dataclass
class Operator:
    """One operator's life, or several behind one another; what all of them said is kept in one log."""

    kubeconfig: Path
    settings: Path
    log: Path
    command: Sequence[str] = KVGATE
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    health_port: int = field(default_factory=lambda: free_port(LOOPBACK))
    process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        argv = [
            *self.command,
            "operator",
            f"--settings={self.settings}",
            f"--health-port={self.health_port}",
            *self.options,
        ]
        environment = {**os.environ, **self.environment, "KUBECONFIG": str(self.kubeconfig)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=ROOT
            )
        if wait:
            eventually(self.ready, START_SECONDS)

    def ready(self) -> bool:
        """What a kubelet would ask."""
        assert self.process is not None
        assert self.process.poll() is None, f"the operator ended with {self.process.returncode}:\n{self.last_words()}"
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.health_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """As a kubelet does: SIGTERM, and time to end."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            code = self.process.wait(END_SECONDS)
        finally:
            self.process.kill()
            self.process = None
        assert code == 0, f"the operator ended with {code} after SIGTERM:\n{self.last_words()}"

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.process = None

    def has_died(self) -> bool:
        """Whether SIGKILL from within ended it; any other end is a fault."""
        assert self.process is not None
        code = self.process.poll()
        assert code in {None, -signal.SIGKILL}, f"the operator ended with {code}:\n{self.last_words()}"
        return code is not None

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it said, one JSON object per line; anything else that it printed is a fault of its own."""
        for line in self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else ():
            try:
                yield json.loads(line)
            except ValueError:
                yield {"level": "error", "message": f"a line that is no JSON: {line}"}

    def faults(self) -> list[str]:
        """Lines that say that something is wrong with kvgate or with its rights."""
        bad = (line for line in self.lines() if line.get("level") in {"error", "critical"} or _is_forbidden(line))
        return [json.dumps(line) for line in bad]

    def said(self, message: str) -> int:
        """How many lines say it."""
        return sum(line.get("message") == message for line in self.lines())

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8").splitlines()[-LAST_LINES:])


def _is_forbidden(line: dict[str, Any]) -> bool:
    return "forbidden" in str(line.get("reason", "")).lower() or "403" in str(line.get("message", ""))
