"""Reads the fields of one JSON object and remembers which were read, so that the rest can be questioned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvgate.core.kvcache.keys import HARMLESS, may_change_the_cache
from kvgate.core.kvcache.words import JSON, Reason, Refusal, shown

MOST_LAYERS = 2048
LARGEST = 1 << 24


class Fields:
    """One object of a config. `strict`: every key that carries a value must have been read."""

    def __init__(self, values: Mapping[str, JSON], where: str, *, strict: bool = False) -> None:
        self._values = values
        self._where = where
        self._strict = strict
        self._read: set[str] = set()
        self._below: list[Fields] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> JSON:
        self._read.add(key)
        return self._values.get(key)

    def ignore(self, *keys: str) -> None:
        self._read.update(keys)

    def at(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    @property
    def where(self) -> str:
        return self._where

    def refuse(self, reason: Reason, key: str, why: str) -> Refusal:
        return Refusal(reason, f"{self.at(key)} {why}")

    def count(self, *names: str, zero_is_absent: bool = False, most: int = LARGEST) -> int | None:
        """The positive whole number under any of these names; None when all are absent or null."""
        found = [(n, v) for n in names if (v := self.get(n)) is not None and not (zero_is_absent and v == 0)]
        for name, value in found:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
                raise self.refuse(Reason.BAD_VALUE, name, f"is {shown(value)}, not a whole number in 1..{most}")
        if len({value for _, value in found}) > 1:
            both = " and ".join(self.at(name) for name, _ in found)
            raise Refusal(Reason.CONTRADICTION, f"{both} differ")
        return next((value for _, value in found if isinstance(value, int)), None)

    def need(self, *names: str, most: int = LARGEST) -> int:
        value = self.count(*names, most=most)
        if value is None:
            raise self.refuse(Reason.MISSING, names[0], "is missing")
        return value

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return value is True
        raise self.refuse(Reason.BAD_VALUE, name, f"is {shown(value)}, not true or false")

    def need_flag(self, name: str) -> bool:
        if self.get(name) is None:
            raise self.refuse(Reason.MISSING, name, "is missing")
        return self.flag(name)

    def word(self, name: str) -> str | None:
        value = self.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.refuse(Reason.BAD_VALUE, name, f"is {shown(value)}, not a word")

    def items(self, name: str) -> tuple[JSON, ...] | None:
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.refuse(Reason.BAD_VALUE, name, f"is {shown(value)}, not a list")
        if len(value) > MOST_LAYERS:
            raise self.refuse(Reason.BAD_VALUE, name, f"has {len(value)} entries, more than {MOST_LAYERS}")
        return tuple(value)

    def words(self, name: str) -> tuple[str, ...] | None:
        items = self.items(name)
        if items is None:
            return None
        texts = tuple(item for item in items if isinstance(item, str))
        if len(texts) != len(items):
            raise self.refuse(Reason.BAD_VALUE, name, "holds something that is not a word")
        return texts

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers ≥ 0."""
        items = self.items(name)
        if items is None:
            return None
        whole = tuple(i for i in items if isinstance(i, int) and not isinstance(i, bool) and 0 <= i <= LARGEST)
        if len(whole) != len(items):
            raise self.refuse(Reason.BAD_VALUE, name, "holds something that is not a whole number ≥ 0")
        return whole

    def per_layer(self, name: str, layers: int) -> tuple[int, ...] | None:
        numbers = self.numbers(name)
        if numbers is not None and len(numbers) != layers:
            raise self.refuse(Reason.CONTRADICTION, name, f"has {len(numbers)} entries for {layers} layers")
        return numbers

    def sub(self, name: str) -> Fields | None:
        value = self.get(name)
        return None if value is None else self.below(value, name)

    def below(self, value: JSON, name: str, *, strict: bool = True) -> Fields:
        if not isinstance(value, Mapping):
            raise self.refuse(Reason.BAD_VALUE, name, f"is {shown(value)}, not an object")
        inner = Fields(value, self.at(name), strict=strict)
        self._below.append(inner)
        return inner

    def refuse_leftovers(self, twin: Mapping[str, JSON] | None = None) -> None:
        """Stops at a key that carries a value, could change the cache and was read by nobody.

        A key that `twin` repeats with the same value is answered for there.
        """
        for key, value in self._values.items():
            if value and key not in self._read and self._matters(key) and not _repeated(key, value, twin):
                raise Refusal(
                    Reason.UNKNOWN_KEY,
                    f"{self._where or 'config.json'} has the key {shown(key)}, which may change the cache "
                    "and is not known for this model type",
                )
        for inner in self._below:
            inner.refuse_leftovers()

    def _matters(self, key: str) -> bool:
        return key not in HARMLESS if self._strict else may_change_the_cache(key)


def _repeated(key: str, value: JSON, twin: Mapping[str, JSON] | None) -> bool:
    return twin is not None and key in twin and twin[key] == value
