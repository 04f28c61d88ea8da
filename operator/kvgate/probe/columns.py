"""Many rows of the same fields as columns: what all rows share is said once, and nodes by their place in a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvgate.core.evidence import Path

Column = list[Any] | dict[str, Any]
_ALL = "all"


def paths_out(paths: Sequence[Path]) -> dict[str, Any]:
    """Paths as the names of their nodes, each once, and two lists of places among them."""
    names = list(dict.fromkeys(end for path in paths for end in path))
    place = {name: number for number, name in enumerate(names)}
    return {
        "names": names,
        "from": [place[path.source] for path in paths],
        "to": [place[path.destination] for path in paths],
    }


def paths_in(body: Mapping[str, Any]) -> list[Path]:
    """What `paths_out` wrote. Raises KeyError, TypeError, ValueError or IndexError for anything else."""
    names: list[str] = [_text(name) for name in body["names"]]
    return [Path(_at(names, a), _at(names, b)) for a, b in zip(body["from"], body["to"], strict=True)]


def column_out(values: Sequence[Any]) -> Column:
    """One field of all rows: `{"all": value}` where it is the same in each."""
    first = values[0]
    same = all(type(value) is type(first) and value == first for value in values)
    return {_ALL: first} if same else list(values)


def column_in(column: object, count: int) -> Iterable[Any]:
    """The field of each of `count` rows. Raises KeyError or ValueError for what is no such column."""
    if isinstance(column, dict):
        return (column[_ALL] for _ in range(count))
    if not isinstance(column, list) or len(column) != count:
        raise ValueError("column")
    return column


def rows_in(columns: Mapping[str, object], count: int) -> Iterator[dict[str, Any]]:
    """The rows of these columns, each with every field."""
    for values in zip(*(column_in(column, count) for column in columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))


def _at(names: Sequence[str], place: object) -> str:
    if type(place) is not int or place < 0:
        raise ValueError("place")
    return names[place]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value
