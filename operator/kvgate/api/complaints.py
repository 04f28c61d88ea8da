"""What is wrong with a document: where, and in words that name the number and the limit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PLAIN = re.compile(r"[A-Za-z0-9_.$/-]{1,80}")


@dataclass(frozen=True, order=True)
class Complaint:
    """One fault, at a path written as the API server writes it: `spec.workload.prompts[0].tokens`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def place(path: str, steps: Iterable[int | str]) -> str:
    """The path of what stands below by these steps: field names, and numbers within lists."""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else child(path, step)
    return path


def child(path: str, name: object) -> str:
    """The path of a field. A name that is no plain word, or that is overlong, is not echoed."""
    text = str(name)
    shown = text if _PLAIN.fullmatch(text) else f"<a field name of {len(text)} characters>"
    return f"{path}.{shown}" if path else shown
