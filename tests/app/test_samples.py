"""The manifests that the demo uses are those that people are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from kvgate.app.demo import LINKS
from kvgate.core.kvcache import KVLayout, kv_layout, parse_config
from tests.app.yard import FILES, kvgate, sample

ROOT = Path(__file__).parents[2]
SHOWN = ROOT / "manifests" / "samples"


def test_the_demo_switches_the_deployment_that_people_are_shown() -> None:
    assert sample("deployment.yaml") == (SHOWN / "dgd-qwen3.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_a_sample_of_the_demo_passes_lint(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(sample(name), encoding="utf-8")
    assert (kvgate("lint", tmp_path / name), capsys.readouterr().out) == (0, "")


@pytest.mark.parametrize("path", sorted(SHOWN.glob("*.yaml")), ids=lambda path: path.name)
def test_a_manifest_that_people_are_shown_passes_lint(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (kvgate("lint", path), capsys.readouterr().out) == (0, "")


def test_the_demo_judges_the_pool_of_the_readme() -> None:
    spec = yaml.safe_load(sample("pool.yaml"))["spec"]
    assert spec["workload"] == {"prompts": [{"tokens": 3000}], "peakRequestsPerSecond": "0.2", "skew": "1.25"}
    assert spec["criteria"] == {"disaggregation": {"ttftBudget": "2s"}}
    assert (spec["fabric"]["probe"]["endpoint"], spec["fabric"]["probe"]["phases"]) == ({"tool": "none"}, ["Isolated"])
    assert [(link.bits_per_second, link.opens) for link in LINKS] == [(10**9, False), (25 * 10**8, True)]


def test_the_config_of_the_demo_gives_the_bytes_of_the_model() -> None:
    text = yaml.safe_load(sample("config.yaml"))["data"]["config.json"]
    layout = kv_layout(json.loads(text))
    assert parse_config(text) == json.loads(text)
    assert isinstance(layout, KVLayout)
    assert layout.bytes_per_token == 114_688
