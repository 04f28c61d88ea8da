"""Texts that are kept small until they are read: each comes back as it was."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.packed import PackedTexts

RECORD = '{"intervals":[{"sum":{"bytes":125000000,"seconds":1.0}}],"end":{}}\n'


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=()))))
def test_every_text_comes_back_as_it_was(texts: dict[str, str]) -> None:
    held = PackedTexts()
    for name, text in texts.items():
        held.keep(name, text)
    assert dict(held) == texts
    assert len(held) == len(texts)


def test_a_walkers_log_takes_a_tenth_of_its_size() -> None:
    held = PackedTexts()
    held.keep("n1", RECORD * 1000)
    (packed,) = held._held.values()
    assert sys.getsizeof(packed) < len(RECORD) * 1000 / 10
