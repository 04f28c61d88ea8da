"""docs/failures.md names for every failure what is said of it, and tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs import pages

PAGE = pages.page("failures.md")
ROWS = pages.rows(PAGE, "failure")
TESTS = sorted({name for row in ROWS for name in re.findall(r"`(tests/[\w/]+\.py::\w+)`", row.cells[2])})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cells[0])
def test_every_failure_has_words_and_a_test(row: pages.Row) -> None:
    assert row.cells[1]
    assert re.findall(r"`tests/[\w/]+\.py::test_\w+`", row.cells[2])


@pytest.mark.parametrize("name", TESTS)
def test_the_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((pages.ROOT / path).read_text(encoding="utf-8"))
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_page_holds_all_that_is_to_be_borne() -> None:
    assert len(ROWS) >= 35
