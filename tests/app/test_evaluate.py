"""`kvgate evaluate` on files says what the ring says of the same pool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.api.status import PoolStatus
from kvgate.app.evaluate import evaluate_files
from kvgate.app.output import Report
from tests.app.test_bad_input import one_line
from tests.app.yard import FAST, SLOW, Yard, edit, kvgate, opened, sample, times, yard

_TIMES = {"lastTransitionTime", "proposedAt", "time"}


def exported(made: Yard, target: Path, *, target_given: bool) -> tuple[Path, list[Path], Path | None]:
    """What `kubectl get -o yaml` would print of the pool and what belongs to it, and of its reports."""
    turns, _ = made.settle()
    last = turns[-1]
    pool = yaml.safe_load((made.folder / "pool.yaml").read_text())
    pool["metadata"]["uid"] = last.pool.uid
    pool["status"] = last.decision.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    beside = [yaml.safe_load((made.folder / "config.yaml").read_text())]
    if (made.folder / "approval.yaml").exists():
        beside.append(yaml.safe_load((made.folder / "approval.yaml").read_text()))
    target.mkdir()
    _write_list(target / "pool.yaml", [pool, *beside])
    reports = [yaml.safe_load(path.read_text()) for path in (made.folder / ".kvgate" / "reports").iterdir()]
    _write_list(target / "evidence.yaml", reports)
    return target / "pool.yaml", [target / "evidence.yaml"], made.folder / "deployment.yaml" if target_given else None


def _write_list(path: Path, items: list[Any]) -> None:
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))


def _evaluated(made: Yard, target: Path, *, target_given: bool) -> Report:
    files = exported(made, target, target_given=target_given)
    [report] = evaluate_files(*files, now=datetime.now(UTC))
    return report


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(held) for key, held in value.items() if key not in _TIMES}
    return [_timeless(held) for held in value] if isinstance(value, list) else value


def shown(status: PoolStatus) -> Any:
    return _timeless(status.model_dump(mode="json", by_alias=True, exclude_none=True))


CASES: dict[str, Callable[[Path], Yard]] = {
    "too slow": lambda folder: yard(folder, SLOW),
    "fast, and not approved": lambda folder: yard(folder, FAST),
    "fast, approved and open": opened,
    "no answer": lambda folder: yard(folder, None),
}


@pytest.mark.parametrize("case", CASES)
def test_with_the_target_it_is_the_status_that_the_ring_wrote(case: str, tmp_path: Path) -> None:
    made = CASES[case](tmp_path / "pools")
    report = _evaluated(made, tmp_path / "export", target_given=True)
    assert shown(report.status) == shown(made.status())


@pytest.mark.parametrize("case", CASES)
def test_without_the_target_the_criteria_are_judged_the_same(case: str, tmp_path: Path) -> None:
    made = CASES[case](tmp_path / "pools")
    status, written = _evaluated(made, tmp_path / "export", target_given=False).status, made.status()
    assert (status.fabric, status.kv_cache, status.estimates) == (written.fabric, written.kv_cache, written.estimates)
    only_the_target_is_in_doubt = case.startswith("fast")
    expected = "Pass" if only_the_target_is_in_doubt else written.capabilities[0].outcome
    assert status.capabilities[0].outcome == expected


def test_it_touches_nothing(tmp_path: Path) -> None:
    made = yard(tmp_path / "pools", FAST)
    pool, evidence, target = exported(made, tmp_path / "export", target_given=True)
    before = times(tmp_path)
    assert kvgate("evaluate", "--pool", pool, "--evidence", *evidence, "--target", str(target)) == 1
    assert times(tmp_path) == before


def test_the_document_has_the_fields_that_scripts_may_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = yard(tmp_path / "pools", SLOW)
    pool, evidence, target = exported(made, tmp_path / "export", target_given=True)
    files: list[str | Path] = ["--pool", pool, "--evidence", *evidence, "--target", str(target)]
    printed = {}
    for form in ("json", "yaml"):
        assert kvgate("evaluate", *files, "-o", form) == 1
        printed[form] = yaml.safe_load(capsys.readouterr().out)
    assert _timeless(printed["json"]) == _timeless(printed["yaml"])
    document = printed["json"]
    assert (document["apiVersion"], document["kind"]) == ("kvgate.dev/v1alpha1", "Evaluation")
    [entry] = document["pools"]
    assert list(entry) == ["name", "namespace", "uid", "passed", "status", "findings", "paths", "done", "patch"]
    assert set(entry["findings"][0]) == {"capability", "criterion", "outcome", "reason", "message"}
    assert set(entry["paths"][0]) == {
        "from", "to", "linkBytesPerSecond", "endpointBytesPerSecond", "roundTripMicroseconds",
        "loadedRoundTripMicroseconds", "setUpMilliseconds", "failure", "message", "notes",
    }  # fmt: skip
    assert entry["paths"][0]["linkBytesPerSecond"] == round(SLOW)


def test_it_shows_the_patch_and_the_approval_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = yard(tmp_path / "pools", FAST)
    edit(made.folder / "pool.yaml", {"spec|criteria|disaggregation|attestations": ["TenantIsolation"]})
    pool, evidence, target = exported(made, tmp_path / "export", target_given=True)
    assert kvgate("evaluate", "--pool", pool, "--evidence", *evidence, "--target", str(target)) == 1
    said = capsys.readouterr().out
    assert "kind: GateApproval" in said
    assert "reason: <for the auditor>" in said
    assert "- TenantIsolation" in said
    assert f"planHash: {made.split().plan_hash}" in said
    assert "- ReducedCapacity" in said


@pytest.mark.parametrize(
    ("which", "content", "said"),
    [
        pytest.param("pool", sample("config.yaml"), "holds no InferencePool", id="a pool file without a pool"),
        pytest.param("target", "kind: Secret\n", "holds no DynamoGraphDeployment", id="a target that is none"),
        pytest.param("evidence", "- a list\n", "is a list", id="evidence that is a list"),
        pytest.param("evidence", "a: [\n", "no YAML", id="evidence that is no YAML"),
        pytest.param(
            "evidence",
            "apiVersion: kvgate.dev/v1alpha1\nkind: FabricReport\nmetadata: {name: r}\nspec: {runID: a}\n",
            "poolRef",
            id="a report that the API server would refuse",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(
    which: str, content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = yard(tmp_path / "pools", FAST)
    pool, evidence, target = exported(made, tmp_path / "export", target_given=True)
    assert target is not None
    files = {"pool": pool, "evidence": evidence[0], "target": target}
    files[which] = tmp_path / "bad.yaml"
    files[which].write_text(content)
    assert kvgate("evaluate", *(word for name, path in files.items() for word in (f"--{name}", path))) == 2
    line = one_line(capsys)
    assert said in line
    assert "bad.yaml" in line


def test_evidence_of_another_pool_does_not_count(tmp_path: Path) -> None:
    made = yard(tmp_path / "pools", FAST)
    pool, evidence, target = exported(made, tmp_path / "export", target_given=True)
    listed = yaml.safe_load(pool.read_text())
    listed["items"][0]["metadata"]["uid"] = "0b7ab8d6-0000-4000-8000-000000000000"
    listed["items"][0].pop("status")
    pool.write_text(yaml.safe_dump(listed))
    [report] = evaluate_files(pool, evidence, target, datetime.now(UTC))
    assert not report.passed
    assert report.status.capabilities[0].outcome in {"Unknown", "Error"}


@pytest.mark.parametrize(
    ("content", "held"),
    [
        pytest.param("", "it is empty", id="an empty file"),
        pytest.param("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "it holds ConfigMap", id="another kind"),
        pytest.param("apiVersion: v1\nkind: List\nitems: []\n", "it is empty", id="a list of nothing"),
    ],
)
def test_evidence_that_holds_none_is_refused_by_name(
    content: str, held: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, evidence, _ = exported(yard(tmp_path / "yard", FAST), tmp_path / "out", target_given=False)
    other = tmp_path / "other.yaml"
    other.write_text(content)
    arguments = ("--pool", str(pool), "--evidence", str(evidence[0]), "--evidence", str(other))
    assert kvgate("evaluate", *arguments) == 2
    said = one_line(capsys)
    assert f"{other}: holds no FabricReport and no BenchmarkReport" in said
    assert held in said
