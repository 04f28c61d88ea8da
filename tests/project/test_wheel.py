"""The wheel stands alone: right version, both packages, and commands that run where there is no checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kvgate
import wheel_check


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_check.install(wheel, tmp_path_factory.mktemp("environment"))


def test_its_version_is_the_packages(wheel: Path) -> None:
    assert wheel.name.startswith(f"kvgate-{kvgate.__version__}-")


def test_it_holds_both_packages_and_their_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"kvgate/__init__.py", "kvgate/py.typed", "kvgate_probe/__init__.py", "kvgate_probe/py.typed"} <= names


def test_it_holds_every_module_of_the_checkout(wheel: Path, root: Path, tracked: list[Path]) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = [path for path in tracked if path.parts[:2] in {("operator", "kvgate"), ("probes", "kvgate_probe")}]
    assert {path.relative_to(path.parts[0]).as_posix() for path in packages} - names == set()


def test_it_says_its_version_outside_the_checkout(commands: Path) -> None:
    assert kvgate.__version__ in wheel_check.kvgate(commands, ["version"])


def test_it_writes_the_crds_outside_the_checkout(commands: Path) -> None:
    assert "CustomResourceDefinition" in wheel_check.kvgate(commands, ["crds"])


def test_it_runs_its_own_code(commands: Path) -> None:
    code = "import kvgate, kvgate_probe; print(kvgate.__file__, kvgate_probe.__file__)"
    command = [str(commands / "python"), "-c", code]
    done = subprocess.run(command, cwd=commands.parent, capture_output=True, text=True, check=True, env={})
    assert all(path.startswith(str(commands.parent)) for path in done.stdout.split())
