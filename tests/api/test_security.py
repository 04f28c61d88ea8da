"""A pool reaches nothing beyond its own namespace: no field of its spec says another."""

from __future__ import annotations

import pytest

from kvgate.api.validate import validate
from tests.api.documents import Document, full_pool, pool


def references() -> list[str]:
    """Every place of a full pool's spec that names an object, and the model's ConfigMaps, as dotted paths."""
    found: list[str] = []

    def walk(node: object, path: str) -> None:
        if isinstance(node, dict):
            if path.rpartition(".")[2].endswith("Ref"):
                found.append(path)
            for key, value in node.items():
                walk(value, f"{path}.{key}" if path else key)

    walk(full_pool()["spec"], "")
    return found


@pytest.mark.parametrize("place", references())
def test_no_reference_of_a_pool_can_name_another_namespace(place: str) -> None:
    refused = validate(full_pool(**{f"{place}.namespace": "theirs"}))
    assert any("unknown field" in one.message for one in refused), refused


@pytest.mark.parametrize("key", ["configMapKeyRef", "quantConfigMapKeyRef"])
def test_no_config_of_a_model_is_of_another_namespace(key: str) -> None:
    def kept(**more: str) -> Document:
        own = {"name": "theirs", "key": "config.json"}
        refs = {"configMapKeyRef": own, key: own | more}
        return pool(**{"model.kvCache": {"configFrom": refs}})

    assert validate(kept()) == ()
    assert validate(kept(namespace="theirs"))
    assert validate(kept(name="theirs/model"))
    assert validate(kept(name="../theirs"))
