"""How a sweep shows that it is at work: a bar on a terminal, one line elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvgate.core.world import Pool

Told = Callable[[int, int], None]


def sweeping(console: Console) -> Callable[[Pool], AbstractContextManager[Told]]:
    """For each pool, what to call with the tests that have ended and those planned, while the sweep runs."""
    return lambda pool: _bar(console, pool) if console.is_terminal else _line(console, pool)


@contextmanager
def _bar(console: Console, pool: Pool) -> Iterator[Told]:
    columns = (TextColumn("measuring {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(pool.key, total=None)
        yield lambda done, planned: progress.update(task, completed=done, total=planned)


@contextmanager
def _line(console: Console, pool: Pool) -> Iterator[Told]:
    console.print(f"measuring {pool.key} ...")
    yield lambda done, planned: None
