"""Every path's number, node by node: as a table whose cells are coloured, or as text where there are too many."""

from __future__ import annotations

import csv
import io

from kvgate.app.report.html import Html, element, join
from kvgate.app.report.names import escaped, shown
from kvgate.app.report.scale import MARKS, Scale
from kvgate.app.report.subject import Reach, Subject
from kvgate.core import text
from kvgate.core.evidence import Path

LARGEST_TABLE = 32
"""Rows and columns that a person can still read as a table."""


def as_table(subject: Subject, scale: Scale) -> Html:
    """The heat map of few nodes: each cell has its number, its mark and its colour."""
    heads = join(f'<th scope="col"><span>{escaped(name)}</span></th>' for name in subject.destinations)
    unit, name = (1e9, "GB/s") if subject.rated and subject.rated[-1][0] >= 1e9 else (1e6, "MB/s")
    rows = join(_row(subject, scale, source, unit) for source in subject.sources)
    caption = f"Throughput in {name}. Rows send ↓, columns receive →."
    corner = '<td class="corner">from ↓ &nbsp; to →</td>'
    body = f"<thead><tr>{corner}{heads}</tr></thead>\n<tbody>{rows}</tbody>"
    inner = f'<table class="heat">{element("caption", escaped(caption))}{body}</table>'
    return f'<div class="wide" tabindex="0">{inner}</div>'


def _row(subject: Subject, scale: Scale, source: str, unit: float) -> Html:
    cells = "".join(_cell(subject, scale, Path(source, end), unit) for end in subject.destinations)
    return f'<tr><th scope="row">{escaped(source)}</th>{cells}</tr>'


def _cell(subject: Subject, scale: Scale, path: Path, unit: float) -> Html:
    fact = subject.by_path.get(path)
    cell, rate = scale.cell(fact), fact.bytes_per_second if fact else None
    number = f"{rate / unit:,.4g}" if rate is not None else ""
    words = text.rate(rate) if rate is not None else scale.words(cell)
    why = f" ({fact.failure}: {fact.message})" if fact and fact.failure else ""
    title = escaped(f"{path}: {words}{why}")
    return f'<td class="c{cell.value}" title="{title}">{number}<i>{MARKS[cell]}</i></td>'


_WORDS = {Reach.UNREACHABLE: "unreachable", Reach.FAILED: "failed", Reach.SAME_NODE: "same node"}


def as_text(subject: Subject) -> Html:
    """CSV in MB/s, a row per sending node; a cell without a number says why, or is empty where nothing was measured."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["from \\ to", *map(shown, subject.destinations)])
    for source in subject.sources:
        writer.writerow([shown(source), *(_told(subject, Path(source, end)) for end in subject.destinations)])
    return element("pre", escaped_lines(out.getvalue()), "matrix")


def _told(subject: Subject, path: Path) -> str:
    fact = subject.by_path.get(path)
    if fact is None:
        return ""
    if fact.bytes_per_second is not None:
        return f"{fact.bytes_per_second / 1e6:.1f}"
    return _WORDS.get(fact.reach, "")


def escaped_lines(lines: str) -> Html:
    return "\n".join(escaped(line) for line in lines.split("\n"))
