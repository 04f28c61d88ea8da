"""A scrape in Prometheus' text format, as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Scrape:
    text: str

    def samples(self, name: str, **labels: str) -> tuple[Sample, ...]:
        """The samples of that exact name that carry these labels."""
        found = (sample for sample in self._all() if sample.name == name)
        return tuple(sample for sample in found if labels.items() <= dict(sample.labels).items())

    def has(self, name: str, **labels: str) -> bool:
        return bool(self.samples(name, **labels))

    def total(self, name: str, **labels: str) -> float:
        """The sum over the samples that match; zero where there is none (ask `has` to tell these apart)."""
        return sum(sample.value for sample in self.samples(name, **labels))

    def names(self) -> frozenset[str]:
        return frozenset(sample.name for sample in self._all())

    def _all(self) -> Iterator[Sample]:
        for match in filter(None, map(_SAMPLE.match, self.text.splitlines())):
            yield Sample(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3]))
