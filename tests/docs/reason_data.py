"""Writes what `kubectl kvgate` says of a reason from docs/conditions.md and docs/runbook.md: `make reasons`."""

from __future__ import annotations

import json
import re

from tests.docs import pages
from tests.docs.pages import ROOT

WRITTEN = ROOT / "operator" / "kvgate" / "app" / "people" / "reasons.json"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
_MARKUP = re.compile(r"`|\*\*")
_KINDS = ("reason", "heldBy", "approval", "finding", "look")


def rendered() -> str:
    """Every row of the tables of reasons in words without markup, and the runbook's section for some of them."""
    page, runbook = pages.page("conditions.md"), pages.page("runbook.md")
    entries = [_entry(row) for kind in _KINDS for row in pages.rows(page, kind)]
    sections = {word: _section(row) for row in pages.rows(runbook, "reason") for word in _words(row.cells[0])}
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    places = json.dumps(sections, indent=0, ensure_ascii=False)
    return f'{{"entries": [\n{lines}\n],\n"runbook": {places}}}\n'


def _entry(row: pages.Row) -> dict[str, str]:
    told = {"kind": row.kind, "heading": row.heading, "word": row.word}
    outcome = row.cells[1] if row.kind in {"reason", "finding", "look"} else ""
    means = row.cells[-3]
    return told | {
        "outcome": _plain(outcome),
        "means": _plain(means),
        "who": row.cells[-2],
        "next": _plain(row.cells[-1]),
    }


def _plain(text: str) -> str:
    return _MARKUP.sub("", _LINK.sub(lambda found: f"{found[1]} ({_place(found[2])})", text)).strip()


def _place(link: str) -> str:
    return f"docs/conditions.md{link}" if link.startswith("#") else f"docs/{link}"


def _words(cell: str) -> list[str]:
    return re.findall(r"\w+", cell)


def _section(row: pages.Row) -> str:
    """The section that the row links to, else the one that it stands in."""
    found = _LINK.search(row.cells[-1])
    link = found[2] if found and found[2].startswith("#") else f"#{pages.anchor(row.heading)}"
    return f"docs/runbook.md{link}"


if __name__ == "__main__":
    WRITTEN.write_text(rendered(), encoding="utf-8")
