"""How a sweep shows that it is at work: a bar on a terminal, one line elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvgate.core.world import Pool

Told = Callable[[int, int], None]


def sweeping(console: Console) -> Callable[[Pool], Told]:
    """For each pool, what to call with the tests that have ended and those planned."""
    return lambda pool: _bar(console, pool) if console.is_terminal else _line(console, pool)


def _bar(console: Console, pool: Pool) -> Told:
    columns = (TextColumn("measuring {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console)
    task = progress.add_task(pool.key, total=None)
    progress.start()

    def told(done: int, planned: int) -> None:
        progress.update(task, completed=done, total=planned)
        if done == planned:
            progress.stop()

    return told


def _line(console: Console, pool: Pool) -> Told:
    console.print(f"measuring {pool.key} ...")
    return lambda done, planned: None
