"""Runs the linters and the tiers that this machine allows, shows their output live, and ends what it started."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import tiers
from tiers import Counts, Machine, Row, Tier

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / ".venv" / "bin"
PYTHON = str(SCRIPTS / "python")
TEARDOWN_SECONDS = 120.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LINTERS: Mapping[str, Sequence[str]] = {
    "ruff check": (PYTHON, "-m", "ruff", "check", "--quiet", "."),
    "ruff format --check": (PYTHON, "-m", "ruff", "format", "--quiet", "--check", "."),
    "mypy": (PYTHON, "-m", "mypy", "--no-error-summary"),
    "lint-imports": (PYTHON, str(SCRIPTS / "lint-imports"), "--no-logo"),
}


class StoppedError(Exception):
    """Someone asked us to end."""


@dataclass
class Runner:
    """Runs one command at a time in a session of its own, so that everything in it can be ended."""

    environment: Mapping[str, str]
    child: subprocess.Popen[bytes] | None = None
    stops: list[int] = field(default_factory=list)

    def stop(self, number: int, _frame: FrameType | None) -> None:
        """The first signal lets the child tear down what it made; a second one ends it at once."""
        self.stops.append(number)
        if self.child is not None:
            self.child.send_signal(signal.SIGINT if len(self.stops) == 1 else signal.SIGKILL)

    def run(self, command: Sequence[str]) -> int:
        if self.stops:
            raise StoppedError
        self.child = subprocess.Popen(  # noqa: S603
            command, cwd=ROOT, env=dict(self.environment), stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            return self._wait(self.child)
        finally:
            _end_group(self.child.pid)
            self.child = None

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                code = child.wait(TEARDOWN_SECONDS)
            except subprocess.TimeoutExpired:
                if self.stops:
                    child.kill()
                continue
            if self.stops:
                raise StoppedError
            return code


def _end_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def this_machine(path: str) -> Machine:
    commands = {command for needed in tiers.TOOLS.values() for command in needed}
    found = frozenset(command for command in commands if shutil.which(command, path=path))
    return Machine(platform.system(), os.geteuid() == 0, found)


def child_environment() -> dict[str, str]:
    """Ours, with the virtual environment's commands first and the system's own folders at hand."""
    path = os.pathsep.join([str(SCRIPTS), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}


def heading(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def lint(runner: Runner) -> Row:
    start, failed = time.monotonic(), []
    for name, command in LINTERS.items():
        heading(f"lint: {name}")
        if runner.run(command):
            failed.append(name)
    remark = f"failed: {', '.join(failed)}" if failed else ""
    return Row(Tier.LINT, time.monotonic() - start, bad=bool(failed), remark=remark)


def build(runner: Runner) -> Row:
    heading("build: etcd and Kubernetes from Go modules, into a cache outside this checkout")
    start = time.monotonic()
    code = runner.run((PYTHON, "-m", "tests.cluster", "build"))
    remark = f"ended with {code}" if code else ""
    return Row(Tier.BUILD, time.monotonic() - start, bad=bool(code), remark=remark)


def test(runner: Runner, tier: Tier, *, strict: bool) -> Row:
    heading(f"{tier}: pytest -m '{tiers.MARKERS[tier]}'")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kvgate-report-") as folder:
        report = Path(folder) / "junit.xml"
        command = (PYTHON, "-m", "pytest", "-q", "--tb=short", "-m", tiers.MARKERS[tier], f"--junitxml={report}")
        code = runner.run(command)
        counts: Counts | None = tiers.read_report(report.read_text("utf-8")) if report.exists() else None
    return tiers.tested(tier, time.monotonic() - start, code, counts, strict=strict)


def run_tier(runner: Runner, tier: Tier, *, strict: bool) -> Row:
    match tier:
        case Tier.LINT:
            return lint(runner)
        case Tier.BUILD:
            return build(runner)
        case _:
            return test(runner, tier, strict=strict)


def run_all(runner: Runner, only: Tier | None, rows: list[Row], *, strict: bool) -> None:
    """Appends a row for each wanted tier as it ends, so that a stopped run still has a table."""
    machine = this_machine(runner.environment["PATH"])
    for tier in tiers.wanted(only, machine):
        failed = frozenset(row.tier for row in rows if row.bad)
        if why := tiers.refusal(tier, machine, failed):
            heading(f"NOT RUN {tier}: {why}")
            rows.append(tiers.not_run(tier, why, strict=strict or only is not None))
        else:
            rows.append(run_tier(runner, tier, strict=strict))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make test", description=__doc__)
    parser.add_argument("tier", nargs="?", choices=[tier.value for tier in Tier])
    chosen = parser.parse_args(arguments).tier
    only = Tier(chosen) if chosen else None
    runner = Runner(child_environment())
    for number in STOPS:
        signal.signal(number, runner.stop)
    rows: list[Row] = []
    with suppress(StoppedError):
        run_all(runner, only, rows, strict=tiers.truthy(os.environ.get("CI", "")))
    return report(rows, only, stopped=bool(runner.stops))


def report(rows: Sequence[Row], only: Tier | None, *, stopped: bool) -> int:
    heading("tiers" if only is None else f"the tier {only} alone was asked for")
    print(tiers.table(rows))
    print("stopped before the end\n" if stopped else "")
    print(tiers.ending(rows), flush=True)
    return 130 if stopped else int(tiers.total(rows).failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
