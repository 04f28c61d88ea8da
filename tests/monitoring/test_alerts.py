"""The alerts: each fires where it should by promtool's own engine, and leads to a section that exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.api.words import ConditionType
from kvgate.app.operator.pool_series import SERIES
from kvgate.core.switching import Held
from tests.docs import pages, reasons

ALERTS = pages.ROOT / "charts" / "kvgate" / "alerts.yaml"
CASES = Path(__file__).parent / "alerts.yaml"
OURS = re.compile(r"\bkvgate_\w+")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


RULES = {rule["alert"]: rule for rule in rules()}


def promtool(*words: str, folder: Path) -> str:
    found = shutil.which("promtool")
    assert found, "promtool comes with Debian's package prometheus"
    ran = subprocess.run([found, *words], cwd=folder, capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


@pytest.mark.local
def test_promtool_reads_the_rules(tmp_path: Path) -> None:
    assert promtool("check", "rules", str(ALERTS), folder=tmp_path) == ""


@pytest.mark.local
def test_each_alert_fires_where_it_should_and_not_beside_it(tmp_path: Path) -> None:
    """Without annotations, which promtool compares too, and which are prose."""
    bare = yaml.safe_load(ALERTS.read_text())
    for group in bare["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (tmp_path / "alerts-under-test.yaml").write_text(yaml.safe_dump(bare))
    (tmp_path / CASES.name).write_text(CASES.read_text())

    assert promtool("test", "rules", CASES.name, folder=tmp_path) == ""


def test_each_alert_is_tried_both_firing_and_silent() -> None:
    asked = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in asked if case["exp_alerts"]}
    silent = {case["alertname"] for case in asked if not case["exp_alerts"]}

    assert firing == set(RULES)
    assert set(RULES) - silent <= {"KvgateRolledBack", "KvgateDrifted"}, "these fire at once; others beside stay silent"


@pytest.mark.parametrize("name", RULES)
def test_the_runbook_of_an_alert_has_the_section(name: str) -> None:
    page, _, fragment = RULES[name]["annotations"]["runbook_url"].partition("#")
    sections = {pages.anchor(heading) for heading in pages.headings((pages.ROOT / page).read_text())}

    assert fragment in sections


@pytest.mark.parametrize("name", RULES)
def test_an_alert_has_a_severity_and_says_what_is_wrong(name: str) -> None:
    rule = RULES[name]

    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert all(text == text.strip() and text.endswith(".") for text in list(rule["annotations"].values())[:2])


def test_alerts_ask_for_metrics_labels_and_words_that_exist() -> None:
    text = " ".join(rule["expr"] for rule in RULES.values())
    metrics = {f"{s.name}_total" if s.counts else s.name for s in SERIES} | {"kvgate_leading"}
    types = set(re.findall(r'type="(\w+)"', text))
    told = {word for match in re.findall(r'reason!?[=~]+"([\w|]+)"', text) for word in match.split("|")}
    known = set().union(*reasons.told("conditions").values(), *reasons.told("kstatus").values())
    known |= {finding for _, finding in reasons.found()}
    holds = {word for match in re.findall(r'by=~"([\w|]+)"', text) for word in match.split("|")}

    assert set(OURS.findall(text)) <= metrics
    assert types <= set(ConditionType)
    assert told - known == set()
    assert holds <= set(Held)


def test_the_page_has_each_alert_with_its_severity_and_its_delay() -> None:
    written = {row.word: row.cells[1:3] for row in pages.rows(pages.page("metrics.md"), "alert")}

    assert written == {name: (rule["labels"]["severity"], rule.get("for", "")) for name, rule in RULES.items()}
