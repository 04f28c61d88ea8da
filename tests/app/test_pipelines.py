"""What a pipeline reads of `kvgate lint` and `kvgate evaluate`: SARIF, JUnit, and exit codes that agree with both."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sarif_pydantic import Sarif

from kvgate.app.pipelines import Check, Level, junit, sarif
from kvgate.edge.yamlplaces import Named, Places
from tests.app.test_evaluate import CASES, exported
from tests.app.yard import FAST, yard
from tests.app.yard import kvgate as run
from tiers import read_report

GOOD = """apiVersion: kvgate.dev/v1alpha1
kind: InferencePool
metadata: {name: good, namespace: serving}
spec:
  targetRef: {name: qwen3}
  model: {name: Qwen/Qwen3-0.6B}
  workload:
    prompts:
    - tokens: 3000
"""
BAD = GOOD.replace("name: good", "name: bad").replace("tokens: 3000", "tokens: -1\n      shar: 3")
BOTH = f"{GOOD}---\n{BAD}"
TOKENS_LINE = GOOD.count("\n") + 1 + 9


def results(text: str) -> list[dict[str, Any]]:
    """The results of a SARIF log, each with a rule that is declared."""
    log = json.loads(text)
    Sarif.model_validate(log)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    found: list[dict[str, Any]] = run["results"]
    for result in found:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"note", "warning", "error"}
        assert result["message"]["text"]
    return found


def place(result: dict[str, Any]) -> tuple[str, int]:
    (location,) = result["locations"]
    physical = location["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


def failing(text: str) -> list[str]:
    """The names of the cases that fail; the counts of each suite are those of its cases."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    for suite in root.iter("testsuite"):
        cases = suite.findall("testcase")
        told = [int(suite.get(name, "")) for name in ("tests", "failures", "errors")]
        assert told == [len(cases), sum(bool(c.findall("failure")) for c in cases),
                        sum(bool(c.findall("error")) for c in cases)]  # fmt: skip
    return [case.get("name", "") for case in root.iter("testcase") if case.findall("failure") + case.findall("error")]


class Done(NamedTuple):
    returncode: int
    stdout: str


Kvgate = Callable[..., Done]


@pytest.fixture
def kvgate(capsys: pytest.CaptureFixture[str]) -> Kvgate:
    """The command: its exit code and what it printed."""

    def ran(*words: str) -> Done:
        capsys.readouterr()
        code = run(*words)
        return Done(code, capsys.readouterr().out)

    return ran


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("both.yaml").write_text(BOTH)
    Path("good.yaml").write_text(GOOD)
    Path("broken.yaml").write_text("a: [")
    return tmp_path


def test_lint_tells_code_scanning_each_complaint_at_its_line(files: Path, kvgate: Kvgate) -> None:
    done = kvgate("lint", "both.yaml", "-o", "sarif")
    found = results(done.stdout)

    assert done.returncode == 1
    assert {place(result) for result in found} == {("both.yaml", TOKENS_LINE), ("both.yaml", TOKENS_LINE + 1)}
    assert all("InferencePool serving/bad" in result["message"]["text"] for result in found)
    assert {result["level"] for result in found} == {"error"}


def test_lint_tells_a_test_report_what_is_good_and_what_is_not(files: Path, kvgate: Kvgate) -> None:
    done = kvgate("lint", "both.yaml", "-o", "junit")
    counts = read_report(done.stdout)

    assert done.returncode == 1
    assert sorted(failing(done.stdout)) == ["spec.workload.prompts[0].shar", "spec.workload.prompts[0].tokens"]
    assert counts is not None
    assert (counts.passed, counts.failed) == (1, 2)


@pytest.mark.parametrize("form", ["sarif", "junit"])
def test_lint_of_what_is_good_is_a_report_without_a_fault(files: Path, kvgate: Kvgate, form: str) -> None:
    done = kvgate("lint", "good.yaml", "-o", form)

    assert done.returncode == 0
    assert (results if form == "sarif" else failing)(done.stdout) == []


@pytest.mark.parametrize("form", ["sarif", "junit"])
def test_a_file_that_cannot_be_read_is_an_error_of_the_report(files: Path, kvgate: Kvgate, form: str) -> None:
    done = kvgate("lint", "broken.yaml", "-o", form)

    assert done.returncode == 1
    assert "Unreadable" in done.stdout
    assert len((results if form == "sarif" else failing)(done.stdout)) == 1


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_fails_the_pipeline_exactly_where_it_does_not_pass(case: str, kvgate: Kvgate, tmp_path: Path) -> None:
    made = CASES[case](tmp_path / "pools")
    pool, evidence, target = exported(made, tmp_path / "export", target_given=True)
    words = ["evaluate", "--pool", str(pool), "--evidence", str(evidence[0]), "--target", str(target)]
    scanned, reported = kvgate(*words, "-o", "sarif"), kvgate(*words, "-o", "junit")
    bad = [result for result in results(scanned.stdout) if result["level"] != "note"]

    assert scanned.returncode == reported.returncode == (1 if bad else 0)
    assert bool(bad) == bool(failing(reported.stdout))
    line = next(n for n, text in enumerate(pool.read_text().splitlines(), 1) if "disaggregation:" in text)
    assert {place(result) for result in bad} <= {(pool.as_posix(), line)}


def test_too_slow_a_link_is_an_error_with_its_reason(kvgate: Kvgate, tmp_path: Path) -> None:
    made = CASES["too slow"](tmp_path / "pools")
    pool, evidence, _ = exported(made, tmp_path / "export", target_given=False)
    done = kvgate("evaluate", "--pool", str(pool), "--evidence", str(evidence[0]), "-o", "sarif")

    assert ("TTFTBudgetExceeded", "error") in {(r["ruleId"], r["level"]) for r in results(done.stdout)}


def test_a_pool_that_gates_nothing_passes_nothing_in_each_form(kvgate: Kvgate, tmp_path: Path) -> None:
    made = yard(tmp_path / "pools", FAST)
    pool, evidence, _ = exported(made, tmp_path / "export", target_given=False)
    pool.write_text(GOOD)
    words = ["evaluate", "--pool", str(pool), "--evidence", str(evidence[0])]
    scanned, reported = kvgate(*words, "-o", "sarif"), kvgate(*words, "-o", "junit")

    assert (scanned.returncode, reported.returncode) == (1, 1)
    assert [r["ruleId"] for r in results(scanned.stdout)] == ["NothingJudged"]
    assert failing(reported.stdout) == ["criteria"]


def test_what_xml_cannot_hold_is_a_question_mark() -> None:
    odd = Check("a\x00<b>", "na\x1bme", Level.ERROR, "Refused", "no\ud800 & \x07", "f.yaml", 3)
    (case,) = ET.fromstring(junit("lint", [odd])).iter("testcase")

    assert (case.get("name"), case.get("classname")) == ("na?me", "a?<b>")
    assert [told.get("message") for told in case] == ["no? & ?"]


def test_a_note_is_told_and_fails_nothing() -> None:
    accepted = Check("p", "model", Level.NOTE, "Declared", "accepted", "f.yaml", 1)

    assert failing(junit("evaluate", [accepted])) == []
    assert [r["level"] for r in results(sarif([accepted]))] == ["note"]


PLACES = {
    "a field": ("bad", "spec.targetRef.name", 5),
    "an item of a list": ("bad", "spec.workload.prompts[0].tokens", 9),
    "the nearest above one that is missing": ("bad", "spec.workload.skew.more", 7),
    "an object that is missing": ("none", "spec", 1 - GOOD.count("\n") - 1),
}


@pytest.mark.parametrize(("name", "field", "line"), PLACES.values(), ids=PLACES)
def test_the_line_is_that_of(files: Path, name: str, field: str, line: int) -> None:
    found = Places().line(Path("both.yaml"), Named("InferencePool", name, "serving"), field)

    assert found == GOOD.count("\n") + 1 + line


def test_a_line_is_found_in_a_list_and_in_no_file(files: Path) -> None:
    item = "\n".join(f"  {line}" for line in GOOD.splitlines())
    Path("list.yaml").write_text(f"kind: List\nitems:\n-{item[1:]}\n")
    named = Named("InferencePool", "good", "serving")

    assert Places().line(Path("list.yaml"), named, "spec.targetRef") == 7
    assert Places().line(Path("nowhere.yaml"), named, "spec.targetRef") == 1
