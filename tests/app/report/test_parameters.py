"""What other tools are handed: in their own units and words, and no policy where none pays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from kvgate.core.evidence import Failure
from kvgate.core.evidence import Path as Way
from tests.app.report import saved
from tests.app.test_bad_input import one_line
from tests.app.yard import kvgate

CRD = Path(__file__).parents[2] / "data" / "dynamo-crds" / "nvidia.com_dynamographdeployments.yaml"
FAST, SLOW = 4e8, 1e8
Rates = Mapping[Way, float | Failure | None]


def told(tmp_path: Path, form: str, rates: Rates, racks: Mapping[str, str] | None = None, **criteria: object) -> str:
    documents = [saved.pool(**criteria), *saved.reports(saved.evidence(rates, racks))]
    out = tmp_path / "out.yaml"
    assert kvgate("report", saved.save(tmp_path, documents), "--format", form, "-o", out) == 0
    return out.read_text(encoding="utf-8")


EVEN = {Way(a, b): 2e8 for a in ("p1", "p2") for b in ("d1", "d2")}
RACKS = {"p1": "r1", "d1": "r1", "p2": "r2", "d2": "r2"}
BY_RACK = {way: FAST if RACKS[way.source] == RACKS[way.destination] else SLOW for way in EVEN}


def test_the_mocker_gets_decimal_gigabytes_and_bytes_per_token(tmp_path: Path) -> None:
    found = yaml.safe_load(told(tmp_path, "mocker", EVEN))
    assert found == {"args": ["--kv-transfer-bandwidth", "0.2", "--kv-bytes-per-token", "114688"]}


def test_load_derating_counts_as_it_does_in_the_estimate(tmp_path: Path) -> None:
    pool = saved.pool()
    pool["spec"]["fabric"]["probe"]["loadDerating"] = "0.7"
    path, out = saved.save(tmp_path, [pool, *saved.reports(saved.evidence(EVEN))]), tmp_path / "out.yaml"
    assert kvgate("report", path, "--format", "aiconfigurator", "-o", out) == 0
    assert yaml.safe_load(out.read_text()) == {"node": {"inter_node_bw": 140e6}}
    assert "times loadDerating 0.7" in out.read_text()


def test_aiconfigurator_gets_bytes_per_second(tmp_path: Path) -> None:
    assert yaml.safe_load(told(tmp_path, "aiconfigurator", EVEN)) == {"node": {"inter_node_bw": 200e6}}


def policy(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["spec"]["experimental"]["kvTransferPolicy"]
    return found


@cache
def schema() -> dict[str, Any]:
    crd = yaml.load(CRD.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    [version] = [v for v in crd["spec"]["versions"] if v["name"] == "v1beta1"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found: dict[str, Any] = spec["properties"]["experimental"]["properties"]["kvTransferPolicy"]
    return found


@pytest.mark.parametrize(
    ("rates", "criteria", "expected"),
    [
        pytest.param(
            BY_RACK, {"ttftBudget": "30s"}, {"enforcement": "preferred", "preferredWeight": 0.75},
            id="both are enough: preferred, by how much faster a rack is within",
        ),
        pytest.param(
            BY_RACK, {"minThroughput": "200MB/s"}, {"enforcement": "required"},
            id="across is too slow: required",
        ),
        pytest.param(
            BY_RACK | {Way("p1", "d2"): saved.GONE, Way("p2", "d1"): saved.GONE}, {"ttftBudget": "30s"},
            {"enforcement": "required"}, id="across is dead: required",
        ),
        pytest.param(
            BY_RACK | {Way("p3", "d1"): SLOW, Way("p3", "d2"): SLOW}, {"minThroughput": "200MB/s"},
            {"enforcement": "preferred", "preferredWeight": 0.75},
            id="a rack sends and none of it receives: required would fail its requests",
        ),
    ],
)  # fmt: skip
def test_the_policy_names_the_label_that_tells_fast_from_slow(
    rates: Rates, criteria: dict[str, object], expected: dict[str, object], tmp_path: Path
) -> None:
    racks = RACKS | {"p3": "r3"}
    found = policy(told(tmp_path, "kv-transfer-policy", rates, racks, **criteria))
    assert found == {"labelKey": saved.RACK, "domain": "rack"} | expected
    jsonschema.validate(json.loads(json.dumps(found)), schema())


@pytest.mark.parametrize(
    ("racks", "said"),
    [
        pytest.param(None, "No label of the nodes", id="no labels"),
        pytest.param(RACKS, "a policy would cost balance and gain nothing", id="racks that make no difference"),
    ],
)
def test_no_policy_is_given_that_gains_nothing(racks: Mapping[str, str] | None, said: str, tmp_path: Path) -> None:
    text = told(tmp_path, "kv-transfer-policy", EVEN, racks)
    assert yaml.safe_load(text) is None
    assert said in text


@pytest.mark.parametrize("form", ["mocker", "aiconfigurator"])
def test_without_a_number_nothing_is_handed_over(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = saved.reports(saved.evidence({Way("p1", "d1"): saved.GONE}))
    assert kvgate("report", saved.save(tmp_path, documents), "--format", form) == 2
    assert "no path has a number" in one_line(capsys)
