"""Compiles pydantic models into structural schemas, and refuses what Kubernetes cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

JSON = dict[str, Any]

KEPT = frozenset(
    (
        "type",
        "format",
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "required",
        "default",
        "description",
        "properties",
        "items",
        "additionalProperties",
        "x-kubernetes-validations",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-preserve-unknown-fields",
    )
)


class SchemaError(TypeError):
    """The model says something that a structural schema cannot."""


def schema_of(model: type[BaseModel]) -> JSON:
    """The structural schema of a model, references inlined. Raises SchemaError with the path of what cannot be said."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return structural(raw, raw.pop("$defs", {}), model.__name__)


def structural(node: Mapping[str, Any], defs: Mapping[str, Any], path: str) -> JSON:
    """One JSON Schema node in the dialect that CRDs accept."""
    if "$ref" in node:
        return _referenced(dict(node), defs, path)
    if "anyOf" in node:
        return _optional(dict(node), defs, path)
    out = _plain(node)
    _refuse(out, path)
    for key, child in _children(out):
        out[key] = structural(child, defs, f"{path}.{key}")
    if "properties" in out:
        out["properties"] = {
            name: _defaulted(child, structural(child, defs, f"{path}.{name}"), name in out.get("required", ()))
            for name, child in out["properties"].items()
        }
    return out


def _referenced(node: JSON, defs: Mapping[str, Any], path: str) -> JSON:
    name = node.pop("$ref").removeprefix("#/$defs/")
    if name not in defs:
        raise SchemaError(f"{path}: {name} contains itself")
    rest = {key: value for key, value in defs.items() if key != name}
    return structural(_merged(defs[name], node), rest, path)


def _optional(node: JSON, defs: Mapping[str, Any], path: str) -> JSON:
    real = [choice for choice in node.pop("anyOf") if choice != {"type": "null"}]
    if len(real) != 1:
        raise SchemaError(f"{path}: a union other than `T | None`")
    return structural(_merged(real[0], node), defs, path)


def _merged(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> JSON:
    rules = [*inner.get("x-kubernetes-validations", ()), *outer.get("x-kubernetes-validations", ())]
    return {**inner, **outer} | ({"x-kubernetes-validations": rules} if rules else {})


def _plain(node: Mapping[str, Any]) -> JSON:
    """Without what Kubernetes does not know: titles, constants, null defaults, exclusive bounds as numbers."""
    out = {key: value for key, value in node.items() if key not in {"title", "const"}}
    if "const" in node:
        out["enum"] = [node["const"]]
    if out.get("default", ...) in (None, [], {}):
        del out["default"]
    for bound, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in out:
            out[plain], out[bound] = out[bound], True
    if out.get("additionalProperties") is False:
        del out["additionalProperties"]
    if out.get("properties") == {}:
        del out["properties"]  # the API server drops it, and each `kubectl apply` would report a change
    return out


def _refuse(node: JSON, path: str) -> None:
    if isinstance(node.get("default"), Mapping):
        raise SchemaError(f"{path}: a model as default; use default_factory")
    if unknown := node.keys() - KEPT:
        raise SchemaError(f"{path}: cannot say {sorted(unknown)}")
    if "type" not in node:
        raise SchemaError(f"{path}: needs a type")


def _children(node: JSON) -> list[tuple[str, Mapping[str, Any]]]:
    found = [(key, node[key]) for key in ("items", "additionalProperties") if isinstance(node.get(key), Mapping)]
    return [(key, child) for key, child in found if child]


def _defaulted(raw: Mapping[str, Any], compiled: JSON, required: bool) -> JSON:  # noqa: FBT001
    """An object that is neither required nor optional has a default factory: the API server fills it from `{}`."""
    filled = not required and "$ref" in raw and compiled["type"] == "object"
    return compiled | {"default": {}} if filled else compiled
