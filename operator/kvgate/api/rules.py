"""The CEL rules of a schema, evaluated offline as the API server evaluates them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache

import cel

from kvgate.api.complaints import Complaint, child
from kvgate.api.schema import JSON


def broken_rules(
    value: object, schema: JSON, path: str, *, bad: Collection[str] = (), old: object = None
) -> Iterator[Complaint]:
    """Each rule that does not hold. `bad` names paths of the wrong shape, above which nothing is evaluated; `old` is
    the stored value: rules about a change are evaluated only where there is one."""
    below = [
        complaint
        for place, item, declared, stored in _inside(value, schema, path, old)
        for complaint in broken_rules(item, declared, place, bad=bad, old=stored)
    ]
    yield from below
    if any(_holds(path, place) for place in bad):
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        yield from _broken(rule, value, old, path, excused=bool(below))


def _inside(value: object, schema: JSON, path: str, old: object) -> Iterator[tuple[str, object, JSON, object]]:
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item, schema["items"], None
    elif isinstance(value, Mapping):
        stored = old if isinstance(old, Mapping) else {}
        for name, item in value.items():
            declared = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if declared:
                yield child(path, name), item, declared, stored.get(name)


def _holds(path: str, place: str) -> bool:
    return place == path or place.startswith((f"{path}.", f"{path}["))


def _broken(rule: Mapping[str, str], value: object, old: object, path: str, *, excused: bool) -> Iterator[Complaint]:
    program = _compiled(rule["rule"])
    if "oldSelf" in program.variables() and old is None:
        return
    try:
        held = program.execute(_context(value, old))
    except (ValueError, TypeError, RuntimeError):
        held = excused
    if held is not True:
        yield Complaint(path, rule["message"])


@cache
def _compiled(rule: str) -> cel.Program:
    return cel.compile(rule)


def _context(value: object, old: object) -> cel.Context:
    """The API server's lists have `sum` and its strings `replace`; plain CEL has neither."""
    context = cel.Context(variables={"self": value} | ({} if old is None else {"oldSelf": old}))
    context.add_function("sum", sum)
    context.add_function("replace", lambda text, found, instead: text.replace(found, instead))
    return context
