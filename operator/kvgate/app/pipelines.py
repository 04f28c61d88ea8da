"""What pipelines read of a lint or a verdict: SARIF 2.1.0 for code scanning, JUnit for test reports."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from kvgate import __version__

_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold."""


class Level(StrEnum):
    """How bad it is; the first is no news, and the last two fail the pipeline."""

    PASS = "none"  # noqa: S105
    NOTE = "note"
    FAILURE = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: what of which subject, what it came to, and where it stands. `rule` is one word
    for programs; `broken` says that the look itself failed, and not what was looked at."""

    subject: str
    name: str
    level: Level
    rule: str
    message: str
    file: str
    line: int
    broken: bool = False

    @property
    def failed(self) -> bool:
        return self.level in {Level.FAILURE, Level.ERROR}


def sarif(checks: Sequence[Check]) -> str:
    """One run. A rule is a reason; what passed is no result."""
    told = [check for check in checks if check.level is not Level.PASS]
    rules = sorted({check.rule: check for check in told}.values(), key=lambda check: check.rule)
    places = {check.rule: place for place, check in enumerate(rules)}
    driver: dict[str, Any] = {
        "name": "kvgate",
        "version": __version__,
        "rules": [{"id": check.rule, "shortDescription": {"text": f"{check.name}: {check.rule}"}} for check in rules],
    }
    results = [_result(check, places[check.rule]) for check in told]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"version": "2.1.0", "$schema": SCHEMA, "runs": [run]}, indent=2)


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _result(check: Check, rule: int) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": check.file}, "region": {"startLine": check.line}}
    return {
        "ruleId": check.rule,
        "ruleIndex": rule,
        "level": check.level.value,
        "message": {"text": f"{check.subject}: {check.message}"},
        "locations": [{"physicalLocation": place}],
    }


def junit(suite: str, checks: Iterable[Check]) -> str:
    """A suite per subject and a case per check; what fails the pipeline is a failure or an error."""
    by_subject: dict[str, list[Check]] = {}
    for check in checks:
        by_subject.setdefault(check.subject, []).append(check)
    root = ET.Element("testsuites", {"name": suite, **_counts([c for found in by_subject.values() for c in found])})
    for subject, found in by_subject.items():
        element = ET.SubElement(
            root, "testsuite", {"name": _clean(subject), **_counts(found), "skipped": "0", "time": "0"}
        )
        for check in found:
            _case(element, check)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}'


FORMS: Mapping[str, Callable[[Sequence[Check]], str]] = {"sarif": sarif, "junit": partial(junit, "kvgate")}
"""By the word that follows `-o`."""


def _counts(checks: Sequence[Check]) -> dict[str, str]:
    failed = [check for check in checks if check.failed]
    errors = sum(check.broken for check in failed)
    return {"tests": str(len(checks)), "failures": str(len(failed) - errors), "errors": str(errors)}


def _case(suite: ET.Element, check: Check) -> None:
    words = {"name": check.name, "classname": check.subject, "file": check.file, "line": str(check.line), "time": "0"}
    case = ET.SubElement(suite, "testcase", {key: _clean(value) for key, value in words.items()})
    if check.failed:
        kind = "error" if check.broken else "failure"
        told = ET.SubElement(case, kind, type=check.rule, message=_clean(check.message))
        told.text = _clean(f"{check.file}:{check.line}: {check.message}")
    elif check.message:
        ET.SubElement(case, "system-out").text = _clean(check.message)


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)
