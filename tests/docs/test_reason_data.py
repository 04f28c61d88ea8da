"""What `kubectl kvgate explain` says of a reason is what the pages say."""

from __future__ import annotations

from tests.docs.reason_data import WRITTEN, rendered


def test_the_reasons_that_are_packaged_are_those_of_the_pages() -> None:
    assert WRITTEN.read_text(encoding="utf-8") == rendered(), "a page changed since: run make reasons"
