"""docs/security.md names a test for every attempt and rule, and each of them exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs import pages

PAGE = pages.page("security.md")
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py::test_\w+)`", PAGE)))
ROWS = [row for head in ("attempt", "rule") for row in pages.rows(PAGE, head)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cells[0])
def test_every_attempt_and_rule_has_a_test(row: pages.Row) -> None:
    assert re.findall(r"`tests/[\w/]+\.py::test_\w+`", row.cells[-1])


@pytest.mark.parametrize("name", TESTS)
def test_the_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((pages.ROOT / path).read_text(encoding="utf-8"))
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_page_holds_every_hand_that_reaches_kvgate() -> None:
    assert len(ROWS) >= 30
