"""What `kvgate demo routing` says where Dynamo is not, and the manifests that it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from kvgate.app.demo_routing import DEPLOYMENTS
from kvgate.edge.nodes import NodeView, read_node, unpaired
from tests.app.test_bad_input import one_line
from tests.app.yard import kvgate, sample

MANIFESTS = ("mock-deployment.yaml", "mock-pool.yaml", "mock-nodes.yaml")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No dynamo-python beside our Python, nor in PATH."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare")
def test_without_dynamo_it_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvgate("demo", "routing", "--keep", tmp_path / "kept") == 2
    said = one_line(capsys)
    assert ".ci/bootstrap test" in said
    assert "--dynamo-python PATH" in said
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", ["file", "missing"])
def test_a_python_that_cannot_be_run_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert kvgate("demo", "routing", "--dynamo-python", tmp_path / name) == 2
    assert str(tmp_path / name) in one_line(capsys)


def test_a_demo_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert kvgate("demo", "roulette") == 2
    assert "roulette" in one_line(capsys)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_of_it_passes_lint(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(sample(name), encoding="utf-8")
    assert (kvgate("lint", tmp_path / name), capsys.readouterr().out) == (0, "")


def test_nothing_is_measured_on_its_one_node_of_both_roles() -> None:
    node = read_node(yaml.safe_load(sample(MANIFESTS[2])))
    assert isinstance(node, NodeView)
    assert "two pods would have one address" in unpaired(node)


def test_the_two_deployments_differ_in_one_flag_that_the_sample_has() -> None:
    worker = yaml.safe_load(sample(MANIFESTS[0]))["spec"]["components"][1]
    args = worker["podTemplate"]["spec"]["containers"][0]["args"]
    assert [one.caching in args for one in DEPLOYMENTS] == [True, False]
    assert sample(MANIFESTS[0]).count(DEPLOYMENTS[0].caching) == 1
