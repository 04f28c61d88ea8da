"""Sets or removes one env entry in YAML text by the positions of its nodes; all other characters stay as they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_ONE_LINE = 1_000_000
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


class NotEditableError(Exception):
    """Why the text can't be edited in place; the message fits behind the file's name."""


@dataclass(frozen=True, order=True)
class Edit:
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class EnvPlace:
    """Where one variable of one component's container stands in a document."""

    text: str
    container: MappingNode
    env: str

    @property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"


def carried_out(text: str, edits: list[Edit]) -> str:
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


def place_of(text: str, root: Node | None, component: str, container: str, env: str) -> EnvPlace:
    components = _value(_value(root, "spec"), "components")
    held = _named(components, component)
    containers = _value(_value(_value(held, "podTemplate"), "spec"), "containers")
    main = _named(containers, container)
    if main is None:
        raise NotEditableError(f"holds no container {container} in component {component}")
    return EnvPlace(text, main, env)


def set_value(place: EnvPlace, value: str) -> Edit:
    env = _value(place.container, "env")
    if env is None:
        return _add_to_mapping(place, place.container, f"env: [{_flow_entry(place.env, value)}]")
    if _is_null(env):
        return _fill(place.text, env, f"[{_flow_entry(place.env, value)}]")
    entry = _named(env, place.env)
    if entry is None:
        return _append(place, env, value)
    held = _value(entry, "value")
    if held is None:
        return _add_to_mapping(place, entry, f"value: {_scalar(value)}")
    return _replace(place, held, value)


def remove_entry(place: EnvPlace) -> Edit | None:
    env = _value(place.container, "env")
    entry = _named(env, place.env)
    if not isinstance(env, SequenceNode) or entry is None:
        return None
    if len(env.value) == 1:
        return _remove_key(place, "env")
    return _remove_item(place.text, env, entry)


def _replace(place: EnvPlace, held: Node, value: str) -> Edit:
    if not isinstance(held, ScalarNode):
        raise NotEditableError(f"holds a {place.env} that is no text (line {held.start_mark.line + 1})")
    if held.start_mark.index == held.end_mark.index:
        return _fill(place.text, held, _scalar(value))
    new = _scalar(value, held.style)
    if held.style in ("|", ">"):
        new += place.newline
    return Edit(held.start_mark.index, held.end_mark.index, new)


def _fill(text: str, held: Node, new: str) -> Edit:
    """A value where only the key stood: the mark of nothing is right behind the colon."""
    start, end = held.start_mark.index, held.end_mark.index
    return Edit(start, end, new if start and text[start - 1] == " " else f" {new}")


def _append(place: EnvPlace, env: Node, value: str) -> Edit:
    if not isinstance(env, SequenceNode):
        raise NotEditableError(f"holds an env that is no list (line {env.start_mark.line + 1})")
    if env.flow_style:
        end = env.end_mark.index - 1
        before = place.text[env.start_mark.index + 1 : end].rstrip()
        comma = ", " if before and not before.endswith(",") else ""
        return Edit(end, end, f"{comma}{_flow_entry(place.env, value)}")
    indent = " " * env.start_mark.column
    lines = [f"{indent}- name: {place.env}", f"{indent}  value: {_scalar(value)}"]
    return _insert_lines(place, _end(env), lines)


def _add_to_mapping(place: EnvPlace, mapping: MappingNode, entry: str) -> Edit:
    end = _end(mapping.value[-1][1])
    if mapping.flow_style:
        return Edit(end, end, f", {entry}")
    return _insert_lines(place, end, [" " * mapping.value[0][0].start_mark.column + entry])


def _insert_lines(place: EnvPlace, after: int, lines: list[str]) -> Edit:
    """Whole lines below the one that `after` stands in, so that its trailing comment stays with it."""
    text, newline = place.text, place.newline
    if after and text[after - 1] == "\n":
        return Edit(after, after, "".join(line + newline for line in lines))
    at = _line_end(text, after)
    return Edit(at, at, "".join(newline + line for line in lines))


def _remove_key(place: EnvPlace, name: str) -> Edit:
    pairs = place.container.value
    at = next(index for index, (key, _) in enumerate(pairs) if key.value == name)
    key, value = pairs[at]
    if at == 0:
        return Edit(key.start_mark.index, pairs[1][0].start_mark.index, "")
    if place.container.flow_style:
        return Edit(_end(pairs[at - 1][1]), _end(value), "")
    return _remove_lines(place.text, key.start_mark.index, _end(value))


def _remove_item(text: str, env: SequenceNode, entry: Node) -> Edit:
    if not env.flow_style:
        return _remove_lines(text, entry.start_mark.index, _end(entry))
    at = env.value.index(entry)
    if at == 0:
        return Edit(entry.start_mark.index, env.value[1].start_mark.index, "")
    return Edit(_end(env.value[at - 1]), _end(entry), "")


def _remove_lines(text: str, start: int, end: int) -> Edit:
    first = text.rfind("\n", 0, start) + 1
    if end and text[end - 1] == "\n":
        return Edit(first, end, "")
    last = _line_end(text, end)
    if last < len(text):
        return Edit(first, text.index("\n", last) + 1, "")
    return Edit(max(first - 1, 0), last, "")


def _end(node: Node) -> int:
    """Where the node's own text ends; the marks of block collections reach to the next token instead."""
    if isinstance(node, MappingNode) and not node.flow_style and node.value:
        return _end(node.value[-1][1])
    if isinstance(node, SequenceNode) and not node.flow_style and node.value:
        return _end(node.value[-1])
    return int(node.end_mark.index)


def _line_end(text: str, start: int) -> int:
    found = text.find("\n", start)
    end = len(text) if found < 0 else found
    return end - 1 if end > start and text[end - 1] == "\r" else end


def _value(node: Node | None, key: str) -> Node | None:
    if not isinstance(node, MappingNode):
        return None
    return next((value for held, value in node.value if held.value == key), None)


def _named(node: Node | None, name: str) -> MappingNode | None:
    if not isinstance(node, SequenceNode):
        return None
    for item in node.value:
        held = _value(item, "name")
        if isinstance(item, MappingNode) and isinstance(held, ScalarNode) and held.value == name:
            return item
    return None


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and str(node.tag).endswith(":null")


def _flow_entry(name: str, value: str) -> str:
    return f"{{name: {name}, value: {_scalar(value)}}}"


def _scalar(value: str, style: str | None = None) -> str:
    """The value in YAML, in the quotes that stood there, plain where plain reads back as the same text."""
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style == '"' or not _PLAIN.fullmatch(value) or yaml.safe_load(value) != value:
        return str(yaml.dump(value, default_style='"', width=_ONE_LINE)).rstrip()
    return value
