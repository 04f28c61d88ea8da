"""The page: one HTML file that shows a report, asks the network for nothing, and needs no script to be read."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import resources

from kvgate import __version__
from kvgate.api.status import Estimate
from kvgate.app.report import charts, sections
from kvgate.app.report.html import Html, element, join, picture
from kvgate.app.report.matrix import LARGEST_TABLE, as_table, as_text
from kvgate.app.report.names import escaped
from kvgate.app.report.scale import MARKS, Cell, Scale, scale_of
from kvgate.app.report.subject import Subject
from kvgate.core import text
from kvgate.core.evidence import Path

Draw = Callable[[charts.Theme], charts.Chart]


def page(subjects: Sequence[Subject], now: datetime) -> str:
    """The whole file, with a section per pool."""
    style, script = _asset("page.css"), _asset("page.js")
    title = f"kvgate report: {', '.join(subject.key for subject in subjects)}"
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    body = join(_subject(subject, now) for subject in subjects)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy)}; base-uri &#x27;none&#x27;">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<footer>kvgate {escaped(__version__)}, {escaped(text.moment(now))}. An estimate screens; only the time to "
        f"first token that is measured after enabling decides.</footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("kvgate.app.report").joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _subject(subject: Subject, now: datetime) -> Html:
    scale = scale_of(subject)
    parts = (
        sections.head(subject, now),
        _paths(subject, scale),
        sections.worst_paths(subject, scale),
        sections.dead_paths(subject),
        sections.nodes(subject),
        _distribution(subject),
        _estimates(subject),
        sections.coverage(subject),
        sections.strata(subject),
        sections.criteria(subject),
        sections.provenance(subject),
    )
    return element("article", join(parts))


def _paths(subject: Subject, scale: Scale) -> Html:
    how = (
        f"Each row sends (prefill), each column receives (decode): a decode worker pulls the KV cache from a prefill "
        f"worker. 100% is {scale.by}, {text.rate(scale.reference)}."
    )
    small = len(subject.sources) <= LARGEST_TABLE and len(subject.destinations) <= LARGEST_TABLE
    shown = as_table(subject, scale) if small else _image(subject, scale)
    return element(
        "section",
        join((element("h2", "Paths, node by node"), element("p", escaped(how)), _legend(subject, scale), shown)),
    )


def _legend(subject: Subject, scale: Scale) -> Html:
    counts = dict.fromkeys(reversed(Cell), 0)
    for source in subject.sources:
        for destination in subject.destinations:
            counts[scale.cell(subject.by_path.get(Path(source, destination)))] += 1
    order = (Cell.A, Cell.B, Cell.C, Cell.D, Cell.E, Cell.UNREACHABLE, Cell.FAILED, Cell.SAME_NODE, Cell.UNMEASURED)
    items = (
        f'<li><span class="key c{cell.value}" aria-hidden="true">{MARKS[cell]}</span>'
        f"{escaped(scale.words(cell))} <b>{counts[cell]:,}</b></li>"
        for cell in order
        if counts[cell] or cell <= Cell.A
    )
    return element("ul", join(items), "legend")


def _image(subject: Subject, scale: Scale) -> Html:
    what = f"Heat map of {len(subject.sources)} sending by {len(subject.destinations)} receiving nodes"
    drawn = {theme.name: charts.heat_map(subject, scale, theme) for theme in charts.THEMES}
    plot = " ".join(f"{share:.5f}" for share in drawn["light"].plot)
    shown = picture(
        {name: chart.svg for name, chart in drawn.items()}, f"{what}; the tables below say the same in words"
    )
    marks = "Where at most 400 cells are of a kind, marks point at them: ✕ unreachable, + failed, ▾ band E."
    hint = element("output", "Point at a cell to read it. All numbers stand below as text.")
    held = element("details", element("summary", "All numbers, in MB/s") + as_text(subject))
    return f'<div class="map" data-plot="{plot}">{shown}{hint}</div>{element("p", escaped(marks))}{held}'


def _distribution(subject: Subject) -> Html:
    if not subject.rated:
        return element("section", element("h2", "Distribution") + element("p", "No path has a number."))
    drawn = _both(lambda theme: charts.distribution(subject, theme))
    chart = picture(drawn, "Share of paths by throughput; the table beside it says the same in numbers")
    return element(
        "section", join((element("h2", "Distribution of path throughput"), chart, sections.percentiles(subject)))
    )


def _estimates(subject: Subject) -> Html:
    entries: Sequence[Estimate] = subject.verdict.status.estimates if subject.verdict else ()
    if not entries:
        return ""
    drawn = _both(lambda theme: charts.estimates(entries, theme))
    chart = picture(drawn, "Added time to first token by prompt size, beside the budget; the table says the same")
    return element("section", join((element("h2", "Estimates by prompt size"), chart, sections.estimates(subject))))


def _both(draw: Draw) -> dict[str, bytes]:
    return {theme.name: draw(theme).svg for theme in charts.THEMES}
