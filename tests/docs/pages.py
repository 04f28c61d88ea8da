"""The pages under docs/ as data: headings, links, tables and fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = tuple(sorted((ROOT / "docs").glob("*.md")))
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CELL_END = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line on which it begins."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Row:
    """One row of a table, under the heading above it; `kind` is the head of the first column."""

    heading: str
    kind: str
    cells: tuple[str, ...]

    @property
    def word(self) -> str:
        """The first cell without its backticks."""
        return self.cells[0].strip("`")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(path.name, text[: match.start()].count("\n") + 1, match[1], match[2]) for match in _FENCE.finditer(text)
    ]


def prose(text: str) -> str:
    """The text without its fenced blocks and code spans."""
    return _CODE.sub("", _FENCE.sub("", text))


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)


def anchor(heading: str) -> str:
    """The fragment under which a rendered page shows the heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def rows(text: str, kind: str) -> list[Row]:
    """The rows of every table whose first column has this head."""
    return [row for row in _rows(text) if row.kind == kind]


def _rows(text: str) -> Iterator[Row]:
    heading, kind = "", ""
    for line in _FENCE.sub("", text).splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if not line.startswith("|"):
            kind = ""
            continue
        cells = tuple(cell.strip() for cell in _CELL_END.split(line.strip("|")))
        if not kind:
            kind = cells[0]
        elif set(line) - set("|-: "):
            yield Row(heading, kind, cells)
