"""YAML text to nodes and to plain values, within limits on size, depth and what aliases unfold to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_DEPTH = 64
MAX_NODES = 200_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_PREFIX = "tag:yaml.org,2002:"
_STR, _MERGE, _TIMESTAMP = f"{_PREFIX}str", f"{_PREFIX}merge", f"{_PREFIX}timestamp"
_KNOWN_TAGS = frozenset(f"{_PREFIX}{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null", "merge"))


class YamlRefusedError(Exception):
    """Why a text is not taken as YAML documents; the message fits behind the file's name."""


def compose(text: str) -> tuple[Node | None, ...]:
    """The root of each document, None for an empty one. Errors: YamlRefusedError."""
    try:
        _check_depth(text)
        roots = tuple(yaml.compose_all(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise YamlRefusedError(f"is no YAML{_where(error)}") from None
    weights: dict[int, int] = {}
    for root in roots:
        if root is not None:
            _check(root, weights)
    return tuple(None if _is_null(root) else root for root in roots)


def read_own(text: str) -> Any:
    """What `written` wrote; for kvgate's own files, which are held to no limits. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - both loaders are safe ones


def written(document: object) -> str:
    """The document as YAML."""
    return str(yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=110))


def construct(root: Node) -> object:
    """The plain value of a document: what JSON can hold. Errors: YamlRefusedError."""
    try:
        value: object = SafeConstructor().construct_document(root)
        return _unshared(value)
    except (yaml.YAMLError, ValueError, OverflowError):
        raise YamlRefusedError("holds a value that can't be read") from None
    except RecursionError:
        raise YamlRefusedError(f"holds aliases within aliases, far deeper than {MAX_DEPTH} levels") from None


def _unshared(value: object) -> object:
    """A copy in which nothing is held twice, for what an alias repeats must not change in two places."""
    if isinstance(value, dict):
        return {key: _unshared(held) for key, held in value.items()}
    return [_unshared(held) for held in value] if isinstance(value, list) else value


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise YamlRefusedError(f"is nested deeper than {MAX_DEPTH} levels{_at(event.start_mark)}")


def _check(node: Node, weights: dict[int, int]) -> int:
    """The number of nodes that this one unfolds to; each is looked at once, however often it is aliased."""
    known = weights.get(id(node))
    if known is not None:
        if known == 0:
            raise YamlRefusedError(f"holds an alias to itself (line {_line(node)})")
        return known
    weights[id(node)] = 0
    _check_node(node)
    weight = 1 + sum(_check(child, weights) for child in _children(node))
    if weight > MAX_NODES:
        raise YamlRefusedError(f"unfolds to more than {MAX_NODES:,} values (line {_line(node)})")
    weights[id(node)] = weight
    return weight


def _check_node(node: Node) -> None:
    if node.tag == _TIMESTAMP:
        node.tag = _STR
    if node.tag not in _KNOWN_TAGS:
        raise YamlRefusedError(f"uses a tag that is not plain YAML (line {_line(node)})")
    if not isinstance(node, MappingNode):
        return
    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag not in (_STR, _MERGE, _TIMESTAMP):
            raise YamlRefusedError(f"has a key that is no text (line {_line(key)}); put it in quotes")
        if key.value in seen:
            raise YamlRefusedError(f"names a key twice in one mapping (line {_line(key)})")
        seen.add(key.value)


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, SequenceNode):
        yield from node.value


def _is_null(node: Node | None) -> bool:
    return node is None or (isinstance(node, ScalarNode) and node.tag == f"{_PREFIX}null")


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _where(error: yaml.YAMLError) -> str:
    return _at(getattr(error, "problem_mark", None))


def _at(mark: object) -> str:
    line = getattr(mark, "line", None)
    return f" (line {line + 1})" if isinstance(line, int) else ""
