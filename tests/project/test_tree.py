"""What every file of the tree must keep: its place, its opening line, its length, and nothing of where it was made."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

TOP_LEVEL = {
    ".ci", ".gitignore", "Makefile", "README.md", "benchmarks", "charts", "crds", "docs", "manifests", "operator",
    "probes", "pyproject.toml", "requirements.lock", "tests",
}  # fmt: skip
PACKAGES = ("operator/kvgate", "probes/kvgate_bench", "probes/kvgate_probe")
LONGEST_FUNCTION_LINES = 60
LONGEST_FILE_LINES = 500
# In pieces, so that this file does not hold what it forbids.
FORBIDDEN = {
    "a path of the machine it was made on": r"(?<![\w.-])/(?:" + "wor" + "k|roo" + r"t)/|/tmp/(?:bash" + r"_|brief)",
    "an address of a package registry": r"py" + r"pi\.org|pythonhosted" + r"\.|proxy\.gol" + r"ang|registry\.npm"
    + r"js|deb\.deb" + r"ian|sum\.gol" + "ang",
}  # fmt: skip


def _python(tracked: list[Path], *folders: str) -> list[Path]:
    return [path for path in tracked if path.suffix == ".py" and path.as_posix().startswith(folders)]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_the_top_level_holds_only_what_is_agreed(tracked: list[Path]) -> None:
    extra = {path.parts[0] for path in tracked} - TOP_LEVEL
    assert {name for name in extra if not name.startswith("Dockerfile")} == set()


def test_each_module_opens_with_a_sentence(root: Path, tracked: list[Path]) -> None:
    def opening(path: Path) -> str:
        return (ast.get_docstring(_parsed(root / path)) or "").split("\n\n")[0]

    files = [path for path in _python(tracked, *PACKAGES, ".ci", "benchmarks") if (root / path).stat().st_size]
    assert [str(path) for path in files if not re.search(r"^\S.*\.$", opening(path), re.DOTALL)] == []


def test_no_function_is_longer_than_a_screen(root: Path, tracked: list[Path]) -> None:
    long = {
        f"{path}:{node.lineno} {node.name}": _lines_of(node)
        for path in _python(tracked, *PACKAGES, ".ci")
        for node in ast.walk(_parsed(root / path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines_of(node) > LONGEST_FUNCTION_LINES
    }
    assert long == {}


def test_no_file_of_code_is_too_long(root: Path, tracked: list[Path]) -> None:
    lengths = {str(path): (root / path).read_text("utf-8").count("\n") for path in _python(tracked, *PACKAGES, ".ci")}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE_LINES} == {}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_carries(what: str, root: Path, tracked: list[Path]) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path}:{number}"
        for path in tracked
        for number, line in enumerate((root / path).read_text("utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("see /" + "work/main/x", "a path of the machine it was made on"),
        ("cd /" + "root/", "a path of the machine it was made on"),
        ("https://py" + "pi.org/simple", "an address of a package registry"),
    ],
)
def test_the_patterns_find_what_they_forbid(line: str, what: str) -> None:
    assert re.search(FORBIDDEN[what], line)


def test_the_standard_librarys_operator_is_not_shadowed(root: Path) -> None:
    code = "import operator; assert operator.add(1, 2) == 3, operator.__file__"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_the_source_roots_are_no_packages(tracked: list[Path]) -> None:
    assert not {Path("operator/__init__.py"), Path("probes/__init__.py")} & set(tracked)
