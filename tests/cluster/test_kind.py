"""How far the real kind takes tests/kind.yaml where no container engine is: no cluster is made here.

kind reads and decodes the file, then asks its engine what it can do and which clusters there are, and only then
validates roles and counts; all before it makes a node.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cluster.binaries import binary

pytestmark = pytest.mark.api

KIND_YAML = Path(__file__).parents[1] / "kind.yaml"
ENGINE_WITHOUT_CLUSTERS = """\
#!/bin/sh
# Plays what Docker documents of `info`, `ps` and `inspect` for an engine that runs nothing but has every image.
case $1 in
    info) echo '{"OSType":"linux","MemoryLimit":true,"CPUShares":true,"PidsLimit":true,"CgroupDriver":"cgroupfs"}' ;;
    ps | inspect) ;;
    *) echo "no engine here" >&2; exit 1 ;;
esac
"""

Kind = Callable[[Path], str]


def create_cluster(path: Path, programs: Path) -> str:
    argv = [str(binary("kind")), "create", "cluster", f"--config={path}", f"--kubeconfig={programs / 'kubeconfig'}"]
    env = {**os.environ, "PATH": str(programs), "KIND_EXPERIMENTAL_PROVIDER": "docker"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0, "nothing can be created without an engine"
    return done.stderr


@pytest.fixture
def without_engine(tmp_path: Path) -> Kind:
    programs = tmp_path / "bin"
    programs.mkdir()
    return lambda path: create_cluster(path, programs)


@pytest.fixture
def with_empty_engine(tmp_path: Path) -> Kind:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text(ENGINE_WITHOUT_CLUSTERS)
    (programs / "docker").chmod(0o755)
    return lambda path: create_cluster(path, programs)


def broken(tmp_path: Path, old: str, new: str) -> Path:
    text = KIND_YAML.read_text()
    assert old in text
    path = tmp_path / "broken.yaml"
    path.write_text(text.replace(old, new))
    return path


def test_kind_decodes_our_file_and_then_misses_only_the_engine(without_engine: Kind) -> None:
    said = without_engine(KIND_YAML)

    assert "decode" not in said
    assert "docker info" in said


def test_kind_refuses_a_field_that_it_does_not_know_before_it_looks_for_an_engine(
    without_engine: Kind, tmp_path: Path
) -> None:
    said = without_engine(broken(tmp_path, "- role: worker", "- rle: worker"))

    assert "field rle not found" in said
    assert "docker info" not in said


def test_kind_finds_our_file_valid_and_starts_to_create_nodes_on_an_engine_that_then_refuses(
    with_empty_engine: Kind,
) -> None:
    said = with_empty_engine(KIND_YAML)

    assert 'Creating cluster "kvgate"' in said


def test_kind_refuses_a_role_that_it_does_not_know_before_it_creates_nodes(
    with_empty_engine: Kind, tmp_path: Path
) -> None:
    said = with_empty_engine(broken(tmp_path, "- role: worker", "- role: wrker"))

    assert "Creating cluster" not in said
    assert '"wrker" is not a valid node role' in said


def test_the_labels_are_those_of_the_tests_own_cluster() -> None:
    nodes = yaml.safe_load(KIND_YAML.read_text())["nodes"]

    assert [node["labels"]["pool"] for node in nodes] == ["prefill", "decode", "decode"]
