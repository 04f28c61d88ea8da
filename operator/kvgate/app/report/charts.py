"""The charts of a report, drawn by matplotlib as SVG: the heat map of many nodes, the distribution, the estimates."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from kvgate.api.status import Estimate
from kvgate.app.report.names import short_name
from kvgate.app.report.scale import Cell, Scale
from kvgate.app.report.subject import Subject
from kvgate.core import text
from kvgate.core.evidence import Path
from kvgate.core.topology import short

_MOST_TICKS, _MOST_GROUPS, _MOST_MARKS = 24, 16, 400
_DASHES = ("--", "-.")
_LONGEST_BAR = 4.0
"""Bars end at so many budgets; their labels say the rest."""


@dataclass(frozen=True)
class Theme:
    """Colours of a chart. Of the bands, that which differs most from the paper is the worst."""

    name: str
    paper: str
    ink: str
    faint: str
    hatch: str
    alarm: str
    doubt: str
    bands: tuple[str, str, str, str, str]


_VIRIDIS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
LIGHT = Theme("light", "#ffffff", "#1b1f24", "#8c959f", "#c4cbd2", "#d1242f", "#bc4c00", _VIRIDIS)
DARK = Theme("dark", "#14181d", "#e6edf3", "#7d8590", "#3d444d", "#ff6b66", "#f0883e", _VIRIDIS[::-1])
THEMES = (LIGHT, DARK)


@dataclass(frozen=True)
class Chart:
    """An SVG, and where its plot lies in it: left, top, width and height as shares of the whole."""

    svg: bytes
    plot: tuple[float, float, float, float]


def heat_map(subject: Subject, scale: Scale, theme: Theme) -> Chart:
    """Rows send, columns receive. What has no number is hatched paper, a mark, or both."""
    sources, destinations = subject.sources, subject.destinations
    height = min(9.6, max(3.2, 2.4 + 7.2 * len(sources) / max(len(destinations), 1)))
    with _styled(theme):
        figure = Figure(figsize=(9.6, height), facecolor=theme.paper)
        left, bottom, width, tall = 0.17, 1.5 / height, 0.81, 1 - 2.0 / height
        axes = figure.add_axes((left, bottom, width, tall))
        cells = [[scale.cell(subject.by_path.get(Path(a, b))) for b in destinations] for a in sources]
        axes.patch.set(facecolor=theme.paper, hatch="////", edgecolor=theme.hatch)
        axes.imshow(_seen(cells), cmap=_map(theme), vmin=0, vmax=7, interpolation="none", aspect="auto")
        _mark(axes, cells, theme)
        axes.set_ylabel("from: prefill node, sends  ↓")
        axes.set_xlabel("to: decode node, receives  →")
        axes.xaxis.set_label_position("top")
        _ticks(axes, subject, theme)
        return Chart(_svg(figure), (left, 1 - bottom - tall, width, tall))


def _seen(cells: Sequence[Sequence[Cell]]) -> Any:
    """Nothing is drawn where nothing was measured."""
    import numpy as np  # noqa: PLC0415  matplotlib brings it

    numbers = np.array(cells, dtype=float)
    return np.ma.masked_equal(numbers, Cell.UNMEASURED)


def _map(theme: Theme) -> Colormap:
    return ListedColormap([*theme.bands, theme.alarm, theme.doubt, theme.faint]).with_extremes(bad=(0, 0, 0, 0))


def _mark(axes: Axes, cells: Sequence[Sequence[Cell]], theme: Theme) -> None:
    """Single cells of many are too small to be seen without a mark."""
    around = [withStroke(linewidth=3, foreground=theme.paper)]
    for cell, mark, colour in (
        (Cell.UNREACHABLE, "x", theme.alarm),
        (Cell.FAILED, "+", theme.doubt),
        (Cell.E, "v", theme.ink),
    ):
        places = [(x, y) for y, row in enumerate(cells) for x, found in enumerate(row) if found is cell]
        if 0 < len(places) <= _MOST_MARKS:
            xs, ys = zip(*places, strict=True)
            axes.scatter(xs, ys, s=22, marker=mark, c=colour, linewidths=1.4, path_effects=around, zorder=3)


def _ticks(axes: Axes, subject: Subject, theme: Theme) -> None:
    key = _grouping(subject)
    for names, axis, line in (
        (subject.sources, axes.yaxis, axes.axhline),
        (subject.destinations, axes.xaxis, axes.axvline),
    ):
        groups = list(_groups(names, subject, key)) if key else []
        for begin, _, _ in groups[1:]:
            line(begin - 0.5, color=theme.paper, linewidth=1.2)
        if groups:
            axis.set_ticks([(a + b) / 2 for a, b, _ in groups], [short_name(word, 22) for _, _, word in groups])
        else:
            step = -(-len(names) // _MOST_TICKS)
            axis.set_ticks(range(0, len(names), step), [short_name(name, 22) for name in names[::step]])
    axes.tick_params(axis="x", rotation=90)
    axes.tick_params(labelsize=8)


def _grouping(subject: Subject) -> str:
    """The narrowest label that puts the nodes of both sides into a few groups; empty where there is none."""
    for key in subject.places.keys:
        sides = [
            [subject.places.labels.get(n, {}).get(key, "") for n in s] for s in (subject.sources, subject.destinations)
        ]
        if all(all(side) and 1 <= len(set(side)) <= _MOST_GROUPS for side in sides) and len({*sides[0], *sides[1]}) > 1:
            return key
    return ""


def _groups(names: Sequence[str], subject: Subject, key: str) -> Iterator[tuple[int, int, str]]:
    """First and last place, and name, of each run of nodes with one value of the label."""
    begin = 0
    values = [subject.places.labels[name][key] for name in names]
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[begin]:
            yield begin, place - 1, f"{short(key)} {values[begin]}"
            begin = place


def distribution(subject: Subject, theme: Theme) -> Chart:
    """How many of the measured paths carry no more than so much, with what is judged and what is required."""
    rates = [rate for rate, _ in subject.rated]
    lines = [
        (f"worst path: {text.rate(rates[0])}", rates[0], ":", theme.alarm),
        (f"judged, the slowest {subject.percent:g}%: {text.rate(subject.judged_bytes_per_second or rates[0])}",
         subject.judged_bytes_per_second or rates[0], "-", theme.doubt),
        *((f"required by {line.by}: {text.rate(line.bytes_per_second)}", line.bytes_per_second, dash, theme.ink)
          for line, dash in zip(subject.required, _DASHES, strict=False)),
    ]  # fmt: skip
    unit, name = (1e9, "GB/s") if max(rates) >= 1e9 else (1e6, "MB/s")
    bit_name = "Gbit/s" if unit == 1e9 else "Mbit/s"
    with _styled(theme):
        height = 3.9 + 0.22 * len(lines)
        figure = Figure(figsize=(9.6, height), facecolor=theme.paper)
        axes = figure.add_axes((0.09, 1 - 3.1 / height, 0.88, 2.5 / height))
        axes.set_facecolor(theme.paper)
        axes.ecdf([rate / unit for rate in rates], color=theme.ink, linewidth=1.8, label=f"{len(rates)} measured paths")
        for label, at, style, colour in lines:
            axes.axvline(at / unit, linestyle=style, color=colour, linewidth=1.6, label=label)
        axes.set_xlabel(f"throughput of a path, {name}")
        axes.set_ylabel("share of paths\nat most as fast")
        axes.set_xlim(0, max(*rates, *(at for _, at, _, _ in lines)) / unit * 1.05)
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.grid(color=theme.hatch, linewidth=0.5)
        axes.secondary_xaxis("top", functions=(_bits, _bytes)).set_xlabel(bit_name)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), frameon=False, fontsize=9, ncols=1)
        return Chart(_svg(figure), (0, 0, 1, 1))


def _bits(count: Any) -> Any:
    return count * 8


def _bytes(count: Any) -> Any:
    return count / 8


def estimates(entries: Sequence[Estimate], theme: Theme) -> Chart:
    """What the split adds to the time to first token at each prompt size, beside the budget."""
    budget = max(entry.budget_milliseconds for entry in entries) or 1
    with _styled(theme):
        height = 1.7 + 0.5 * len(entries)
        figure = Figure(figsize=(9.6, height), facecolor=theme.paper)
        axes = figure.add_axes((0.15, 1.15 / height, 0.74, 0.5 * len(entries) / height))
        axes.set_facecolor(theme.paper)
        for place, entry in enumerate(entries):
            _bar(axes, place, entry, budget, theme)
        axes.axvline(
            budget, color=theme.alarm, linestyle="--", linewidth=1.6, label=f"budget, {text.span(budget / 1000)}"
        )
        axes.set_yticks(range(len(entries)), [f"{entry.prompt_tokens} tokens" for entry in entries])
        axes.set_ylim(len(entries) - 0.5, -0.5)
        axes.set_xlim(0, 1.15 * max(budget, *(_length(e.added_ttft_milliseconds, budget) for e in entries)))
        axes.set_xlabel("added to the time to first token, ms")
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(
            unique.values(), unique.keys(), loc="lower left", bbox_to_anchor=(0.15, 0), frameon=False, ncols=3
        )
        return Chart(_svg(figure), (0, 0, 1, 1))


def _bar(axes: Axes, place: int, entry: Estimate, budget: int, theme: Theme) -> None:
    whole = entry.added_ttft_milliseconds
    length = _length(whole, budget)
    waiting = length * min(1.0, (entry.queue_milliseconds or 0) / whole) if whole else 0.0
    axes.barh(place, length - waiting, color=theme.bands[2], height=0.55, label="transfer and overhead")
    axes.barh(
        place, waiting, left=length - waiting, color=theme.paper, edgecolor=theme.bands[2], hatch="////", height=0.55,
        label="waiting",
    )  # fmt: skip
    axes.annotate(text.span(whole / 1000), (length, place), (4, 0), textcoords="offset points", va="center", fontsize=9)


def _length(milliseconds: int, budget: int) -> float:
    return min(float(milliseconds), _LONGEST_BAR * budget)


@contextmanager
def _styled(theme: Theme) -> Iterator[None]:
    """Text stays text, a name is never taken for a formula, and the same chart has the same bytes."""
    ink = theme.ink
    with mpl.rc_context(
        {
            "svg.fonttype": "none", "svg.hashsalt": "kvgate", "text.parse_math": False, "font.size": 10.0,
            "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False, "hatch.linewidth": 0.6,
            "text.color": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink, "axes.edgecolor": ink,
        }
    ):  # fmt: skip
        yield


def _svg(figure: Figure) -> bytes:
    """The same bytes for the same figure."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", facecolor=figure.get_facecolor(), metadata={"Date": None, "Creator": None})
    return out.getvalue()
