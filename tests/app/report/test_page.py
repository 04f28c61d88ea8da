"""The page holds every path's number, asks the network for nothing, and takes no name for markup."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kvgate.core.evidence import Failure
from kvgate.core.evidence import Path as Way
from tests.app.report import saved
from tests.app.yard import kvgate

VOID = frozenset({"meta", "img", "source", "link", "br", "hr", "input"})
LOADING = frozenset({"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href", "style"})
HOSTILE = (
    "<script>alert(1)</script>", "a\"onmouseover=\"alert(1)", "</title></style><b>", "$\\frac{a}{", "n\x1b[31m\x00",
    "\u202eevil", "\ufffe", "x" * 300, "a,b\"c",
)  # fmt: skip


class Page(HTMLParser):
    """Every tag, attribute and text of a page, and whether what is opened is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.cells: list[str] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"td", "th"}:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data

    def of(self, *names: str) -> list[str]:
        return [value for _, name, value in self.attributes if name in names]

    @property
    def drawings(self) -> Iterable[ET.Element]:
        for value in self.of("src", "srcset"):
            kind, _, data = value.partition(",")
            assert kind == "data:image/svg+xml;base64"
            yield ET.fromstring(base64.b64decode(data))


def made(
    tmp_path: Path, rates: dict[Way, float | Failure | None], *, with_pool: bool = True, **criteria: object
) -> str:
    documents = [*([saved.pool(**criteria)] if with_pool else []), *saved.reports(saved.evidence(rates))]
    out = tmp_path / "report.html"
    assert kvgate("report", saved.save(tmp_path, documents), "-o", out) == 0
    return out.read_text(encoding="utf-8")


FEW, MANY = saved.grid(3), saved.grid(40)


@pytest.fixture(scope="module", params=[3, 40], ids=["few nodes", "many nodes"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    return made(tmp_path_factory.mktemp("page"), saved.grid(request.param)), request.param


def test_it_is_well_formed_and_loads_nothing(written: tuple[str, int]) -> None:
    text, _ = written
    page = Page(text)
    assert page.open == []
    loaded = [value for _, name, value in page.attributes if name in LOADING]
    assert loaded
    assert all(value.startswith("data:image/svg+xml;base64,") for value in loaded)
    assert "@import" not in text
    assert "url(" not in text.partition("</style>")[0]
    for drawing in page.drawings:
        for node in drawing.iter():
            links = [value for name, value in node.attrib.items() if name.endswith(("href", "src"))]
            assert all(value.startswith(("#", "data:image/png;base64,")) for value in links)


def test_its_policy_lets_its_own_style_and_script_through_and_nothing_else(written: tuple[str, int]) -> None:
    text, _ = written
    [policy] = [value for value in Page(text).of("content") if value.startswith("default-src 'none'")]
    for tag, word in (("style", "style-src"), ("script", "script-src")):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{word} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not [name for _, name, _ in Page(text).attributes if name.startswith("on") or name == "style"]


def test_it_holds_the_number_of_every_path(written: tuple[str, int]) -> None:
    text, count = written
    page, rates = Page(text), saved.grid(count)
    if count == 3:
        titles = page.of("title")
        for way, told in rates.items():
            [title] = [one for one in titles if one.startswith(f"{way}: ")]
            assert told is None or isinstance(told, Failure) or f"{told / 1e6:.1f} MB/s" in title
            assert told is None or isinstance(told, Failure) or any(f"{told / 1e6:,.4g}" in c for c in page.cells)
        return
    [head, *rows] = csv.reader(io.StringIO(page.texts["pre"]))
    numbers = {Way(row[0], end): cell for row in rows for end, cell in zip(head[1:], row[1:], strict=True)}
    assert set(numbers) == set(rates)
    for way, told in rates.items():
        words = {None: "", saved.GONE: "unreachable", saved.CUT: "failed"}
        assert numbers[way] == (words[told] if not isinstance(told, float) else f"{told / 1e6:.1f}")


def test_dead_failed_and_unmeasured_cells_differ_by_more_than_colour(tmp_path: Path) -> None:
    text = made(tmp_path, FEW)
    for title, mark in (
        ("p0→d0: unreachable: the path carries nothing (NoRoute: no route to host)", "✕"),
        ("p0→d1: failed: tested, and the test could not look (ConnectTimeout: timed out)", "!"),
        ("p0→d2: not measured", "–"),
    ):
        assert re.search(f'title="{re.escape(title)}">[^<]*<i>{mark}</i>', text), title


def test_it_says_verdict_criteria_estimates_and_what_is_required(tmp_path: Path) -> None:
    page = Page(made(tmp_path, FEW, minThroughput="800Mbit/s"))
    cells = set(page.cells)
    assert {"minThroughput", "ttftBudget", "512 tokens", "3,216 tokens", "351.75 MiB", "CriteriaAccepted"} & cells >= {
        "minThroughput", "512 tokens", "3,216 tokens", "351.75 MiB",
    }  # fmt: skip
    assert any("PathUnreachable" in cell or "Unreachable" in cell for cell in cells)
    assert "✕ Fail" in "".join(page.texts.values())


def test_reports_alone_are_shown_and_not_judged(tmp_path: Path) -> None:
    text = made(tmp_path, FEW, with_pool=False)
    assert "No verdict: the report was made from FabricReports alone." in text
    assert "the InferencePool was not given, so nothing is judged" in text


@pytest.mark.parametrize("many", [False, True], ids=["in a table", "in a drawing"])
def test_hostile_names_are_words(many: bool, tmp_path: Path) -> None:
    names = [*HOSTILE, *(f"n{number}" for number in range(40 if many else 2))]
    rates: dict[Way, float | Failure | None] = {Way(a, b): 1e8 for a in names for b in names[:3]}
    rates |= {Way(names[0], b): Failure(saved.GONE.kind, "<img src=x onerror=alert(1)>") for b in names[1:3]}
    page = Page(made(tmp_path, rates, with_pool=False))
    assert page.open == []
    tags = {tag for tag, _, _ in page.attributes}
    assert "b" not in {tag for tag, name, _ in page.attributes if name == "onmouseover"}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert tags <= {
        "html", "meta", "div", "th", "td", "table", "section", "ul", "li", "p", "img", "source", "span", "pre", "i",
    }  # fmt: skip
    assert list(page.drawings)
    if many:
        [head, *rows] = csv.reader(io.StringIO(page.texts["pre"]))
        assert len(head) == 4
        assert all(len(row) == 4 for row in rows)


def test_a_page_of_many_nodes_stays_small(tmp_path: Path) -> None:
    assert len(made(tmp_path, saved.grid(120), with_pool=False)) < 1_000_000
