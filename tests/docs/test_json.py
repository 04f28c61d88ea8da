"""The field table of docs/cli.md against what `kvgate evaluate -o json` really prints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.api.status import PoolStatus
from kvgate.api.words import Memory, Phase
from kvgate.app.cli import main
from kvgate.core.evidence import Evidence, Failure, FailureKind, Layer, Sample
from kvgate.core.evidence import Path as Way
from kvgate.probe.reports import to_reports
from tests.docs import pages

POOL = {
    "apiVersion": "kvgate.dev/v1alpha1",
    "kind": "InferencePool",
    "metadata": {"name": "qwen3", "namespace": "serving", "uid": "1a9a4f0a-0f3e-5b6e-8a54-3f0f6a1c2d77"},
    "spec": {
        "targetRef": {"name": "qwen3"},
        "model": {"name": "Qwen/Qwen3-0.6B", "kvCache": {"bytesPerToken": 114688}},
        "workload": {"prompts": [{"tokens": 3000}], "peakRequestsPerSecond": "0.2"},
        "fabric": {"probe": {"endpoint": {"tool": "none"}, "phases": ["Isolated"]}},
        "criteria": {"disaggregation": {"ttftBudget": "2s", "minCoverage": "50%"}},
    },
}
WAYS = (Way("p1", "d1"), Way("p1", "d2"))
TARGET = pages.ROOT / "manifests" / "samples" / "dgd-qwen3.yaml"


def sample(way: Way, bytes_per_second: float | None) -> Sample:
    return Sample(
        run_id="r1",
        path=way,
        layer=Layer.LINK,
        tool="iperf3",
        operation="tcp-stream",
        memory=Memory.HOST,
        transport="tcp",
        phase=Phase.ISOLATED,
        streams=4,
        measured_at=datetime.now(UTC),
        bytes_per_second=bytes_per_second,
        failure=None if bytes_per_second else Failure(FailureKind.SERVER_BUSY, "busy at each of 6 tries"),
        notes=("retransmits unknown",),
    )


def reports(uid: str) -> list[dict[str, Any]]:
    """One path that gave a number, and one that gave none."""
    evidence = Evidence("r1", uid, WAYS, (sample(WAYS[0], 298e6), sample(WAYS[1], None)), datetime.now(UTC))
    return [
        {
            "apiVersion": "kvgate.dev/v1alpha1",
            "kind": "FabricReport",
            "metadata": {"name": report.name, "namespace": "serving"},
            "spec": report.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True),
        }
        for report in to_reports(evidence, "qwen3")
    ]


@dataclass(frozen=True)
class Printed:
    """What the command printed, and how it ended."""

    document: dict[str, Any]
    code: int


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Printed:
    pool, evidence = tmp_path / "pool.yaml", tmp_path / "reports.yaml"
    pool.write_text(yaml.safe_dump(POOL), encoding="utf-8")
    evidence.write_text(yaml.safe_dump_all(reports(str(POOL["metadata"]["uid"]))), encoding="utf-8")  # type: ignore[index]
    code = main(["evaluate", "--pool", str(pool), "--evidence", str(evidence), "--target", str(TARGET), "-o", "json"])
    return Printed(json.loads(capsys.readouterr().out), code)


def described() -> dict[str, str]:
    return {row.word: row.cells[1] for row in pages.rows(pages.page("cli.md"), "field")}


def flattened(value: object, path: str = "") -> dict[str, set[str]]:
    """Field → the types that its values have; the status is described elsewhere."""
    if path == "pools[].status":
        return {path: {"object"}}
    found: dict[str, set[str]] = {path: {_TYPES[type(value)]}} if path else {}
    entries = value.items() if isinstance(value, dict) else ()
    for name, entry in entries:
        where = f"{path}.{name}" if path else name
        _merge(found, flattened(entry, f"{where}[]" if isinstance(entry, list) else where))
    if isinstance(value, list):
        for entry in value:
            _merge(found, {key: kinds for key, kinds in flattened(entry, path).items() if key != path})
    return found


_TYPES = {str: "string", bool: "boolean", int: "integer", type(None): "null", list: "list", dict: "object"}


def _merge(into: dict[str, set[str]], more: dict[str, set[str]]) -> None:
    for key, kinds in more.items():
        into.setdefault(key, set()).update(kinds)


def test_the_table_names_every_field_that_is_printed_and_no_other(printed: Printed) -> None:
    assert set(flattened(printed.document)) == set(described())


def test_every_value_is_of_the_type_that_the_table_names(printed: Printed) -> None:
    allowed = {field: set(kinds.split(" or ")) for field, kinds in described().items()}
    seen = flattened(printed.document)
    assert {field: kinds - allowed[field] for field, kinds in seen.items() if kinds - allowed[field]} == {}


def test_the_status_is_the_one_of_the_reference(printed: Printed) -> None:
    status = printed.document["pools"][0]["status"]
    assert PoolStatus.model_validate(status).model_dump(mode="json", by_alias=True, exclude_none=True) == status


def test_the_exit_code_follows_passed(printed: Printed) -> None:
    passed = all(pool["passed"] for pool in printed.document["pools"])
    assert printed.code == (0 if passed else 1)


def test_a_path_has_a_number_or_a_failure(printed: Printed) -> None:
    paths = printed.document["pools"][0]["paths"]
    assert [(path["linkBytesPerSecond"], path["failure"]) for path in paths] == [
        (298_000_000, None),
        (None, "ServerBusy"),
    ]


def test_an_unreadable_file_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["evaluate", "--pool", str(tmp_path / "none.yaml"), "--evidence", str(TARGET)])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.startswith("kvgate: error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
