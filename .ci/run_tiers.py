"""Runs the linters and the tiers that this machine allows, shows their output, and ends what it started."""

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

import tiers
from tiers import Machine, Row, Tier

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
    """Runs each command in a session of its own, so that everything in it can be ended."""

    environment: Mapping[str, str]
    children: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stops: list[int] = field(default_factory=list)

    def stop(self, number: int, _frame: FrameType | None) -> None:
        """The first signal lets the children tear down what they made; a second one ends them at once."""
        self.stops.append(number)
        for child in tuple(self.children):
            child.send_signal(signal.SIGINT if len(self.stops) == 1 else signal.SIGKILL)

    def run(self, command: Sequence[str], output: IO[bytes] | None = None) -> int:
        """Its exit code; what it prints goes to ours, or to this file."""
        if self.stops:
            raise StoppedError
        child = subprocess.Popen(  # noqa: S603
            command,
            cwd=ROOT,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self.children.add(child)
        try:
            return self._wait(child)
        finally:
            _end_group(child.pid)
            self.children.discard(child)

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


@dataclass
class Lane:
    """Tiers one after the other; what they print goes to our output, or is held in a file until the end."""

    runner: Runner
    strict: bool
    rows: list[Row]
    output: IO[bytes] | None = None

    def heading(self, text: str) -> None:
        words = f"\n=== {text}\n"
        if self.output is None:
            print(words, end="", flush=True)
        else:
            self.output.write(words.encode())
            self.output.flush()

    def run(self, wanted: Sequence[Tier], *, alone: bool) -> None:
        """Appends a row for each tier as it ends, so that a stopped run still has a table."""
        machine = this_machine(self.runner.environment["PATH"])
        for tier in wanted:
            failed = frozenset(row.tier for row in self.rows if row.bad)
            if why := tiers.refusal(tier, machine, failed):
                self.heading(f"NOT RUN {tier}: {why}")
                self.rows.append(tiers.not_run(tier, why, strict=self.strict or alone))
            else:
                self.rows.append(self._tier(tier))

    def _tier(self, tier: Tier) -> Row:
        match tier:
            case Tier.LINT:
                return self._lint()
            case Tier.BUILD:
                return self._build()
            case _:
                return self._test(tier)

    def _lint(self) -> Row:
        start, failed = time.monotonic(), []
        for name, command in LINTERS.items():
            self.heading(f"lint: {name}")
            if self.runner.run(command, self.output):
                failed.append(name)
        remark = f"failed: {', '.join(failed)}" if failed else ""
        return Row(Tier.LINT, time.monotonic() - start, bad=bool(failed), remark=remark)

    def _build(self) -> Row:
        self.heading("build: etcd and Kubernetes from Go modules, into a cache outside this checkout")
        start = time.monotonic()
        code = self.runner.run((PYTHON, "-m", "tests.cluster", "build"), self.output)
        remark = f"ended with {code}" if code else ""
        return Row(Tier.BUILD, time.monotonic() - start, bad=bool(code), remark=remark)

    def _test(self, tier: Tier) -> Row:
        self.heading(f"{tier}: pytest -m '{tiers.MARKERS[tier]}'")
        with tempfile.TemporaryDirectory(prefix="kvgate-report-") as folder:
            row, text = self._pytest(tier, Path(folder), "first")
            if not tiers.worth_a_second_try(row):
                return row
            names = tiers.failed_tests(text)
            self.heading(f"{tier}: once more {', '.join(names)}")
            again, _ = self._pytest(tier, Path(folder), "second", "--last-failed", "--last-failed-no-failures=none")
            return tiers.after_second_try(row, again, names)

    def _pytest(self, tier: Tier, folder: Path, name: str, *more: str) -> tuple[Row, str]:
        """The row of one run and its JUnit report; both runs of a tier remember what failed in the folder."""
        start, report = time.monotonic(), folder / f"{name}.xml"
        memory = f"cache_dir={folder / 'cache'}"
        command = (PYTHON, "-m", "pytest", "-q", "--tb=short", "-o", memory, "-m", tiers.MARKERS[tier], *more)
        code = self.runner.run((*command, f"--junitxml={report}"), self.output)
        text = report.read_text("utf-8") if report.exists() else ""
        counts = tiers.read_report(text) if text else None
        return tiers.tested(tier, time.monotonic() - start, code, counts, strict=self.strict), text


def run_all(runner: Runner, only: Tier | None, rows: list[Row], *, strict: bool) -> None:
    """Two lanes side by side, then what runs alone; the second lane's output is shown when both have ended."""
    wanted = tiers.wanted(only, this_machine(runner.environment["PATH"]))
    first, beside, after = tiers.lanes(wanted)
    alone = only is not None
    with tempfile.TemporaryFile() as held:
        second = Lane(runner, strict, [], held if first else None)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(second.run, beside, alone=alone)
            try:
                Lane(runner, strict, rows).run(first, alone=alone)
            finally:
                running.exception()
                rows += second.rows
                show(held)
        running.result()
    Lane(runner, strict, rows).run(after, alone=alone)


def show(held: IO[bytes]) -> None:
    held.seek(0)
    shutil.copyfileobj(held, sys.stdout.buffer)
    sys.stdout.flush()


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
    print("\n=== tiers" if only is None else f"\n=== the tier {only} alone was asked for")
    print(tiers.table(sorted(rows, key=lambda row: list(Tier).index(row.tier))))
    print("stopped before the end\n" if stopped else "")
    print(tiers.ending(rows), flush=True)
    return 130 if stopped else int(tiers.total(rows).failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
