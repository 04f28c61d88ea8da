"""Spoils real texts, from a seed: cut, torn, doubled, shuffled, spliced, made binary, or of other values."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

LONG = 4096
SPOILS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, 0.5, -0.0, 1e300, -1e300, float("inf"), float("nan")),
    *("", " ", "x", "0", "-1", "1e999", "NaN", "é\u202e", "\x1b[31mred\x1b[0m", "a\nb", "\ud800", "x" * LONG),
    *("[", "{", "}", "${X}", "$(X)", "--", "'", '"', "../..", "tcp://[::1", "http://a@b:c/", "0x10", "1_000"),
    *([], {}, [None], [[]], {"": None}, [[[[[[[[[[[[]]]]]]]]]]]], {"a": {"a": {"a": {"a": 1}}}}),
)
WORDS: tuple[bytes, ...] = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J", b"\r", b"\n", b"\n\n", b"\t", b"\xc2\x85", b"\xe2\x80\xa8"),
    *(b"nan", b"inf", b"-1", b"1e309", b"0", b"99999999999999999999", b"{", b"}", b"[" * LONG, b'{"a":' * LONG, b'"'),
    *(b"error", b"#", b",", b"0.00", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\xc7\xff\x00"),
)
Act = Callable[[random.Random, bytes], bytes]


def _place(chance: random.Random, text: bytes) -> int:
    return chance.randint(0, len(text))


def _span(chance: random.Random, text: bytes) -> tuple[int, int]:
    start = _place(chance, text)
    return start, min(len(text), start + int(2 ** chance.uniform(0, 10)))


def cut(chance: random.Random, text: bytes) -> bytes:
    return text[: _place(chance, text)]


def behead(chance: random.Random, text: bytes) -> bytes:
    return text[_place(chance, text) :]


def tear(chance: random.Random, text: bytes) -> bytes:
    start, end = _span(chance, text)
    return text[:start] + text[end:]


def double(chance: random.Random, text: bytes) -> bytes:
    start, end = _span(chance, text)
    return text[:end] + text[start:]


def insert(chance: random.Random, text: bytes) -> bytes:
    place = _place(chance, text)
    return text[:place] + chance.choice(WORDS) + text[place:]


def flip(chance: random.Random, text: bytes) -> bytes:
    spoilt = bytearray(text or b"\0")
    for _ in range(chance.choice((1, 1, 4, 32))):
        spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
    return bytes(spoilt)


def shuffle(chance: random.Random, text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def renumber(chance: random.Random, text: bytes) -> bytes:
    digits = [place for place, byte in enumerate(text) if 48 <= byte <= 57]
    if not digits:
        return flip(chance, text)
    spoilt = bytearray(text)
    for _ in range(chance.choice((1, 2, 8))):
        spoilt[chance.choice(digits)] = chance.choice(b"0123456789-.eE")
    return bytes(spoilt)


def noise(chance: random.Random, _: bytes) -> bytes:
    return chance.randbytes(int(2 ** chance.uniform(0, 11)))


ACTS: tuple[Act, ...] = (cut, behead, tear, double, insert, flip, shuffle, renumber, noise)


def spoilt(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One text of the corpus, with one to three acts done to it; one in ten begins as one text and ends as another."""
    text = chance.choice(corpus)
    if chance.random() < 0.1:
        text = cut(chance, text) + behead(chance, chance.choice(corpus))
    for _ in range(chance.choice((1, 1, 2, 3))):
        text = chance.choice(ACTS)(chance, text)
    return text


def spoilt_tree(chance: random.Random, document: Any) -> Any:
    """A copy of the document, in which one to three places hold another value, are gone, or have one more beside."""
    found = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = list(_places(found))
        if places:
            _spoil(chance, *chance.choice(places))
    return found


def spoilt_json(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Half of the time as any text, else as a tree: still JSON, of other values."""
    if chance.random() < 0.5:
        return spoilt(chance, corpus)
    return json.dumps(spoilt_tree(chance, json.loads(chance.choice(corpus)))).encode()


def _places(node: Any) -> list[tuple[Any, Any]]:
    keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [place for key in keys for place in _places(node[key])]


def _spoil(chance: random.Random, parent: Any, key: Any) -> None:
    act = chance.random()
    value = copy.deepcopy(chance.choice(SPOILS))
    if act < 0.2:
        del parent[key]
    elif act < 0.3 and isinstance(parent, list):
        parent.insert(key, value)
    elif act < 0.4 and isinstance(parent, dict):
        parent[chance.choice(("", "x", "name", "value", f"{key}x"))] = value
    else:
        parent[key] = value
