"""On which line of a YAML file a field of an object stands, for whoever must correct it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kvgate.edge.yamlnodes import YamlRefusedError, compose

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


@dataclass(frozen=True)
class Named:
    """Which object of a file is meant, also as an item of a List; what it does not say of itself is empty."""

    kind: str
    name: str
    namespace: str = ""


class Places:
    """Files are read once."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[Node, ...]] = {}

    def line(self, path: Path, named: Named, field: str) -> int:
        """The line, from 1, of a field such as `spec.workload.prompts[0].tokens`. One that is not there has the line of
        the nearest one above it, and an object that is not there line 1."""
        node = next((found for found in self._objects(path) if _is(found, named)), None)
        line = 0 if node is None else node.start_mark.line
        for inner, name in _STEP.findall(field):
            below = _below(node, inner or name)
            if below is None:
                break
            line, node = below
        return line + 1

    def _objects(self, path: Path) -> Iterator[Node]:
        if path not in self._files:
            self._files[path] = _read(path)
        for root in self._files[path]:
            yield root
            items = _below(root, "items")
            if items is not None and isinstance(items[1], SequenceNode):
                yield from items[1].value


def _read(path: Path) -> tuple[Node, ...]:
    try:
        return tuple(root for root in compose(path.read_text(encoding="utf-8")) if root is not None)
    except (OSError, UnicodeDecodeError, YamlRefusedError):
        return ()


def _is(node: Node, named: Named) -> bool:
    namespace = _text(node, "metadata", "namespace")
    found = (_text(node, "kind"), _text(node, "metadata", "name"))
    return found == (named.kind, named.name) and namespace in {"", named.namespace}


def _text(node: Node | None, *steps: str) -> str:
    for step in steps:
        below = _below(node, step)
        node = below[1] if below else None
    return str(node.value) if isinstance(node, ScalarNode) else ""


def _below(node: Node | None, step: str) -> tuple[int, Node] | None:
    """The line of a field's key, or of a list's item, and what stands there."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == step.strip("\"'"):
                return key.start_mark.line, value
    if isinstance(node, SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        item: Node = node.value[int(step)]
        return item.start_mark.line, item
    return None
