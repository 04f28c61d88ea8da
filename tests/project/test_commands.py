"""The commands that people type: Make's targets, the README's blocks, the set-up's refusals."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

CONSOLE = re.compile(r"```(?:console|sh|bash|shell)\n(.*?)```", re.DOTALL)


def _targets(root: Path) -> set[str]:
    return set(re.findall(r"(?m)^([a-z0-9-]+):", (root / "Makefile").read_text("utf-8")))


def _typed_in(text: str) -> set[str]:
    """The Make targets that the text's console blocks call."""
    blocks = "\n".join(CONSOLE.findall(text))
    return set(re.findall(r"(?m)\bmake ([a-z0-9-]+)", blocks))


def test_help_lists_every_target(root: Path) -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=root, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"(?m)^make ([a-z0-9-]+) +\S", done.stdout))
    assert listed == _targets(root)


def test_every_target_is_phony(root: Path) -> None:
    phony = re.search(r"(?m)^\.PHONY: (.*)$", (root / "Makefile").read_text("utf-8"))
    assert phony is not None
    assert set(phony[1].split()) == _targets(root)


def test_the_readme_names_the_two_commands(root: Path) -> None:
    assert {"demo", "test"} <= _typed_in((root / "README.md").read_text("utf-8"))


def test_every_make_command_in_the_prose_exists(root: Path, tracked: list[Path]) -> None:
    prose = [path for path in tracked if path.suffix == ".md"]
    unknown = {str(path): _typed_in((root / path).read_text("utf-8")) - _targets(root) for path in prose}
    assert {path: names for path, names in unknown.items() if names} == {}


@pytest.mark.parametrize("arguments", [[], ["all"]], ids=["no mode", "an unknown mode"])
def test_the_set_up_refuses(arguments: list[str], root: Path) -> None:
    done = subprocess.run([root / ".ci/bootstrap", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: .ci/bootstrap demo|test\n")


def test_the_set_up_without_python_says_how_to_get_one(root: Path, tmp_path: Path) -> None:
    checkout, commands = tmp_path / "checkout", tmp_path / "bin"
    (checkout / ".ci").mkdir(parents=True)
    commands.mkdir()
    (checkout / ".ci/bootstrap").write_bytes((root / ".ci/bootstrap").read_bytes())
    for name in ("dirname", "id", "sed", "tr", "uname"):
        found = next(folder for folder in ("/usr/bin", "/bin") if os.access(f"{folder}/{name}", os.X_OK))
        (commands / name).symlink_to(f"{found}/{name}")
    done = subprocess.run(
        ["/bin/bash", checkout / ".ci/bootstrap", "demo"],
        env={"PATH": str(commands), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert re.fullmatch(r"bootstrap: needs Python 3\.11 or newer.*install with: \S.*\n", done.stderr)


@pytest.mark.parametrize("script", [".ci/bootstrap", ".ci/run"])
def test_a_script_is_executable_and_parses(script: str, root: Path) -> None:
    assert os.access(root / script, os.X_OK)
    subprocess.run(["bash", "-n", root / script], check=True)
