"""A change written out for a repository: a kustomize patch by position, guarded by tests of the names."""

from __future__ import annotations

import yaml

from kvgate.dynamo.alpha import list_operations
from kvgate.dynamo.document import Document, at, mapping, sequence, text
from kvgate.dynamo.patch import ApplyProblem, apply_to_document
from kvgate.dynamo.steps import Change, Step
from kvgate.dynamo.words import GROUP, KIND, MAIN, V1ALPHA1

_HEAD = """\
# Add this to the kustomization.yaml beside the manifest. Kustomize replaces the lists of a custom resource
# whole, so the patch goes by position; its test operations refuse a manifest in which the positions differ.
# Never apply it with kubectl apply --server-side: that removes all that the file does not name.
"""


def kustomize_patch(document: Document, change: Change) -> str | ApplyProblem:
    """The text of a `patches` entry for kustomization.yaml that makes `change` to this manifest."""
    alpha = document.get("apiVersion") == V1ALPHA1
    operations = list_operations(document, change) if alpha else _by_position(document, change)
    if isinstance(operations, ApplyProblem):
        return operations
    name = text(at(document, "metadata", "name"))
    version = text(document.get("apiVersion")).removeprefix(f"{GROUP}/")
    target = {"group": GROUP, "version": version, "kind": KIND, "name": name}
    entry = {"target": target, "patch": yaml.safe_dump(list(operations), sort_keys=False)}
    dumper = _LiteralDumper
    return _HEAD + yaml.dump({"patches": [entry]}, Dumper=dumper, sort_keys=False)


def _by_position(document: Document, change: Change) -> tuple[dict[str, object], ...] | ApplyProblem:
    result = apply_to_document(document, change)
    if isinstance(result, ApplyProblem):
        return result
    return tuple(operation for step in change.writes for operation in _operations(document, step))


def _operations(document: Document, step: Step) -> list[dict[str, object]]:
    components = sequence(at(document, "spec", "components"))
    place = _place(components, step.component)
    at_component = f"/spec/components/{place}"
    containers = sequence(at(components[place], "podTemplate", "spec", "containers"))
    container = _place(containers, MAIN)
    at_container = f"{at_component}/podTemplate/spec/containers/{container}"
    return [
        _test(f"{at_component}/name", step.component),
        _test(f"{at_container}/name", MAIN),
        *_entry_operations(sequence(mapping(containers[container]).get("env")), f"{at_container}/env", step),
    ]


def _entry_operations(env: object, path: str, step: Step) -> list[dict[str, object]]:
    entries = sequence(env)
    entry = {"name": step.env, "value": step.to}
    if not entries:
        return [{"op": "add", "path": path, "value": [entry]}]
    names = [mapping(held).get("name") for held in entries]
    if step.env not in names:
        return [{"op": "add", "path": f"{path}/-", "value": entry}]
    place = names.index(step.env)
    return [
        _test(f"{path}/{place}/name", step.env),
        {"op": "add", "path": f"{path}/{place}/value", "value": step.to},
    ]


def _place(items: object, name: str) -> int:
    return [mapping(item).get("name") for item in sequence(items)].index(name)


def _test(path: str, value: str) -> dict[str, object]:
    return {"op": "test", "path": path, "value": value}


class _LiteralDumper(yaml.SafeDumper):
    """Writes text of several lines as a block, so that the patch stays readable."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_LiteralDumper.add_representer(str, _LiteralDumper.represent_str)
