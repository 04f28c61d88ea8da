"""What a reason means, who must act and what to do next, in the words of the documentation."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from kvgate.api.wire import Condition

NOBODY = "nobody"
_PREFIXES = {"HeldBy": "heldBy", "HoldingFor": "heldBy", "Approval": "approval"}
"""Reasons that end in a word of another table."""


@dataclass(frozen=True)
class Reason:
    """One row of the pages: `who` is owner, deployer, network, approver, admin or nobody."""

    word: str
    outcome: str = ""
    means: str = ""
    who: str = NOBODY
    next: str = ""
    runbook: str = ""
    """The section of the runbook, where one is named after it."""


NOT_JUDGED = Reason(
    "NotJudged",
    means="no operator has judged this pool yet",
    who="admin",
    next="See that kvgate runs, and watches this namespace: kubectl get pods -A -l app.kubernetes.io/name=kvgate",
)
"""What is said of a pool that has no condition, which no page can list."""


def of_condition(condition: Condition) -> Reason:
    """What the reason of this condition means there; a word that no page knows means nothing and is nobody's."""
    own = [row for row in _rows() if row[0] == "reason" and condition.type in row[1]]
    found = _first(condition.reason, own) or _ending(condition.reason) or _finding(condition.reason)
    return found or Reason(condition.reason)


def of_finding(word: str) -> Reason:
    """What the reason of a finding, or of a look at a link, means."""
    return _finding(word) or Reason(word)


def of_held(word: str) -> Reason:
    """What the word of `heldBy` means."""
    return _first(word, _of_kind("heldBy")) or Reason(word)


_Row = tuple[str, str, Reason]
"""Kind of the table, its heading, and the row."""


def _ending(word: str) -> Reason | None:
    for prefix, kind in _PREFIXES.items():
        if word.startswith(prefix) and (found := _first(word.removeprefix(prefix), _of_kind(kind))):
            return replace(found, word=word)
    return None


def _finding(word: str) -> Reason | None:
    return _first(word, [*_of_kind("finding"), *_of_kind("look"), *_of_kind("reason")])


def _first(word: str, rows: list[_Row]) -> Reason | None:
    return next((row for _, _, row in rows if row.word == word), None)


def _of_kind(kind: str) -> list[_Row]:
    return [row for row in _rows() if row[0] == kind]


@cache
def _rows() -> tuple[_Row, ...]:
    packaged = (resources.files(__package__) / "reasons.json").read_text(encoding="utf-8")
    data = json.loads(packaged)
    sections: dict[str, str] = data["runbook"]
    return tuple((entry["kind"], entry["heading"], _reason(entry, sections)) for entry in data["entries"])


def _reason(entry: dict[str, str], sections: dict[str, str]) -> Reason:
    word = entry["word"]
    return Reason(word, entry["outcome"], entry["means"], entry["who"], entry["next"], sections.get(word, ""))
