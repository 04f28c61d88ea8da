"""Texts that are held until all of them are there, and read one after the other: kept small in the meantime."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

_FAST = 1


def packed(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), _FAST)


def unpacked(held: bytes) -> str:
    return zlib.decompress(held).decode("utf-8", "surrogatepass")


class PackedTexts(Mapping[str, str]):
    """By name; each is unpacked when it is asked for. The logs of a thousand walkers take a tenth of their size."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def keep(self, name: str, text: str) -> None:
        self._held[name] = packed(text)

    def __getitem__(self, name: str) -> str:
        return unpacked(self._held[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
