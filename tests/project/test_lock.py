"""The locks pin and hash everything that the project asks for, and name no place to fetch it from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCKS = ("requirements.lock", ".ci/go.lock", "tests/dynamo_stage/requirements.txt")
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; [^\\]+)? \\$")


def _pins(text: str) -> dict[str, list[Version]]:
    """Version pins by canonical name; a universal lock may hold several under different markers."""
    pins: dict[str, list[Version]] = {}
    for line in text.splitlines():
        if match := PIN.match(line):
            pins.setdefault(canonicalize_name(match["name"]), []).append(Version(match["version"]))
    return pins


def _direct(root: Path) -> list[Requirement]:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    return [Requirement(line) for line in wanted if not line.startswith(project["name"])]


def test_every_direct_dependency_is_pinned_within_its_bounds(root: Path) -> None:
    pins = _pins((root / "requirements.lock").read_text("utf-8"))
    unmet = [
        str(wanted)
        for wanted in _direct(root)
        if not any(version in wanted.specifier for version in pins.get(canonicalize_name(wanted.name), []))
    ]
    assert unmet == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes(lock: str, root: Path) -> None:
    lines = (root / lock).read_text("utf-8").splitlines()
    pinned = [number for number, line in enumerate(lines) if "==" in line and not line.lstrip().startswith("#")]
    assert pinned
    assert [lines[number] for number in pinned if "--hash=sha256:" not in lines[number + 1]] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_address(lock: str, root: Path) -> None:
    text = (root / lock).read_text("utf-8")
    assert re.findall(r"(?m)^--?(?:index-url|extra-index-url|find-links|i|f)\b.*|\S*://\S*", text) == []


@pytest.mark.parametrize(
    ("wanted", "lock"),
    [
        pytest.param(".ci/go.in", ".ci/go.lock", id="Go"),
        pytest.param("tests/dynamo_stage/requirements.in", "tests/dynamo_stage/requirements.txt", id="Dynamo"),
    ],
)
def test_what_is_pinned_is_what_was_asked_for(wanted: str, lock: str, root: Path) -> None:
    asked = [line for line in (root / wanted).read_text("utf-8").splitlines() if "==" in line]
    pinned = (root / lock).read_text("utf-8").splitlines()
    assert asked
    assert [line for line in asked if f"{line} \\" not in pinned] == []
