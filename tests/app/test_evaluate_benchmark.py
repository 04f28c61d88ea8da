"""`kvgate evaluate` on a BenchmarkReport: the A/B's findings and numbers, and none of them once it was touched."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.app.evaluate import evaluate_files
from kvgate.app.output import as_document
from kvgate.core.ab.evidence import BenchmarkEvidence, Subject
from kvgate.core.ab.experiment import Arm, Experiment
from kvgate.probe.benchmark_reports import to_benchmark_reports
from tests.core.ab.trials import but, experiment, slower

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
UID = "1a9a4f0a-0f3e-5b6e-8a54-3f0f6a1c2d77"
POOL = {
    "apiVersion": "kvgate.dev/v1alpha1",
    "kind": "InferencePool",
    "metadata": {"name": "qwen3", "namespace": "serving", "uid": UID},
    "spec": {
        "targetRef": {"name": "qwen3"},
        "model": {"name": "Qwen/Qwen3-0.6B", "kvCache": {"bytesPerToken": 114_688}},
        "workload": {"prompts": [{"tokens": 3000}]},
        "criteria": {"routing": {"kvEvents": "Ignored"}},
    },
}


def reports(found: Experiment, run: str = "ab1", age: timedelta = timedelta(hours=1)) -> list[dict[str, Any]]:
    """As `kubectl get benchmarkreports -o yaml` lists them."""
    evidence = BenchmarkEvidence(run, UID, NOW - age, Subject("target", "plan", "agg"), found)
    return [
        {
            "apiVersion": "kvgate.dev/v1alpha1",
            "kind": "BenchmarkReport",
            "metadata": {"name": report.name, "namespace": "serving"},
            "spec": report.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        for report in to_benchmark_reports(evidence, "qwen3")
    ]


def evaluated(folder: Path, items: list[dict[str, Any]]) -> dict[str, Any]:
    (folder / "pool.yaml").write_text(yaml.safe_dump(POOL))
    (folder / "evidence.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    [report] = evaluate_files(folder / "pool.yaml", [folder / "evidence.yaml"], None, NOW)
    document: dict[str, Any] = json.loads(json.dumps(as_document(report)))
    return document


def reasons(document: dict[str, Any]) -> set[str]:
    return {finding["reason"] for finding in document["findings"]}


def test_a_good_ab_shows_its_gain_and_every_finding(tmp_path: Path) -> None:
    document = evaluated(tmp_path, reports(experiment()))
    assert {"GainProven", "ErrorsBearable", "BaselineHealthy", "Exercised", "Attributable"} <= reasons(document)
    routing = document["status"]["routing"]
    assert (routing["improvementPercent"], routing["cachedTokenRatio"]) == ("54.0", "0.896")
    assert routing["benchmark"] == "qwen3-ab1"
    assert document["status"]["capabilities"][0]["outcome"] == "Pass"


def test_one_without_a_gain_fails(tmp_path: Path) -> None:
    document = evaluated(tmp_path, reports(but(Arm.KV, slower(1.8))))
    assert "GainTooSmall" in reasons(document)
    assert document["status"]["capabilities"][0]["outcome"] == "Fail"


@pytest.mark.parametrize("older", [True, False])
def test_a_newest_one_that_was_edited_is_an_error_whatever_stands_before_it(tmp_path: Path, *, older: bool) -> None:
    newest = reports(but(Arm.KV, slower(1.8)))
    newest[0]["spec"]["data"] = reports(experiment())[0]["spec"]["data"]
    before = reports(experiment(), "ab0", timedelta(hours=3)) if older else []
    document = evaluated(tmp_path, [*newest, *before])
    assert "BenchmarkUnreadable" in reasons(document)
    assert document["status"]["capabilities"][0]["outcome"] == "Error"
