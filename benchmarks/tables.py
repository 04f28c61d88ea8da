"""A table on stdout and in results/, with what it was measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def publish(name: str, title: str, said: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table and keep it as results/NAME.md."""
    lines = [f"| {' | '.join(heads)} |", f"|{'|'.join('---' for _ in heads)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().split('-')[0]}"
    load = f"load average over five minutes {os.getloadavg()[1]:.1f}"
    text = "\n".join(
        (f"# {title}", "", said, "", *lines, "", f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine}; {load}.", "")
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
