"""The two ends that commands write to: a console for the answer, and one for what is not the answer."""

from __future__ import annotations

from rich.console import Console

_PLAIN_WIDTH = 200


class _Terminal(Console):
    """A console that leaves it to its caller what a reader who went away means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output; wide where it is no terminal."""
    found = _Terminal(highlight=False, markup=False, emoji=False)
    return found if found.is_terminal else _Terminal(highlight=False, markup=False, emoji=False, width=_PLAIN_WIDTH)


def errors() -> Console:
    """Standard error."""
    return _Terminal(stderr=True, highlight=False, markup=False, emoji=False)
