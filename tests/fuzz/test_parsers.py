"""No text whatever makes a reader fail, or is taken for more than its law allows."""

from __future__ import annotations

import pytest

from tests.fuzz.parsers import PARSERS, Parser, fuzz

INPUTS = 300
by_name = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)


@by_name
def test_real_texts_are_taken_as_what_they_are(parser: Parser) -> None:
    assert all(map(parser.read, parser.corpus)), parser.name


@by_name
def test_spoilt_texts_are_refused_or_keep_the_law(parser: Parser) -> None:
    told = fuzz(parser, 7, INPUTS)
    assert not told.crashes, told.crashes[:3]
    assert told.taken < INPUTS, "nothing was spoilt"


@pytest.mark.parametrize("parser", PARSERS[:4], ids=lambda parser: parser.name)
@pytest.mark.parametrize("foreign", PARSERS, ids=lambda parser: parser.name)
def test_no_tool_takes_the_text_of_another_for_a_measurement(parser: Parser, foreign: Parser) -> None:
    if parser is not foreign:
        assert not any(map(parser.read, foreign.corpus))
