"""Deployments and pools of the admission policies' tests, and what hands change about them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from kvgate.api.wire import API_VERSION
from tests.cluster.access import Document
from tests.e2e import documents

MODE = documents.MODE
DISK = "DYN_KVBM_DISK_CACHE_GB"
GATED, FREE = "gated", "free"
OFF, ON = ("agg", "agg"), ("prefill", "decode")


def deployment(name: str, modes: tuple[str, str] = OFF, namespace: str = GATED) -> Document:
    """The sample deployment with the modes of its prefill and its decode worker."""
    return with_modes(named(documents.sample("deployment.yaml"), name, namespace), modes)


def pool(name: str, namespace: str = GATED, **spec: object) -> Document:
    """The sample pool, in mode Enforce, over the deployment of the same name."""
    found = named(documents.sample("pool.yaml"), name, namespace)
    found["spec"] |= {"mode": "Enforce", "targetRef": {"name": name}, **spec}
    return found


def named(document: Document, name: str, namespace: str) -> Document:
    return {**document, "metadata": {"name": name, "namespace": namespace}}


def workers(document: Document) -> tuple[Document, Document]:
    """The main containers of the prefill and the decode worker."""
    mains = {part.get("type"): main(part) for part in document["spec"]["components"]}
    return mains["prefill"], mains["decode"]


def main(part: Document) -> Document:
    found: Document = next(c for c in part["podTemplate"]["spec"]["containers"] if c["name"] == "main")
    return found


def with_modes(document: Document, modes: tuple[str, str]) -> Document:
    changed = copy.deepcopy(document)
    for container, mode in zip(workers(changed), modes, strict=True):
        others = [entry for entry in container.get("env", ()) if entry["name"] != MODE]
        container["env"] = [*others, {"name": MODE, "value": mode}]
    return changed


def with_flag(*words: str) -> Callable[[Document], Document]:
    return lambda document: _changed(document, lambda c: c.update(args=[*c["args"], *words]))


def with_env(**entry: object) -> Callable[[Document], Document]:
    """With this entry in place of the mode and of whatever has its name."""
    gone = {MODE, entry["name"]}
    return lambda document: _changed(
        document, lambda c: c.update(env=[*(e for e in c.get("env", ()) if e["name"] not in gone), entry])
    )


def _changed(document: Document, change: Callable[[Document], None]) -> Document:
    changed = copy.deepcopy(document)
    change(workers(changed)[0])
    return changed


def without_disk(document: Document) -> Document:
    """It names KVBM's disk, and gives it no room."""
    return with_env(name=DISK, value="0")(document)


def annotated(document: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], "annotations": {"note": "hello"}}}


def finalized(document: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], "finalizers": ["example.com/hold"]}}


def scaled(document: Document) -> Document:
    changed = copy.deepcopy(document)
    for part in changed["spec"]["components"]:
        part["replicas"] = 3
    return changed


def with_image(document: Document) -> Document:
    return _changed(document, lambda c: c.update(image="registry.example.com/runtime:1.6.2"))


def switched_off(document: Document) -> Document:
    return with_modes(document, OFF)


def switched_on(document: Document) -> Document:
    return with_modes(document, ON)


HANDS = {
    "metadata": annotated,
    "replicas": scaled,
    "an image": with_image,
    "a finalizer": finalized,
    "a rollback": switched_off,
    "enabling": switched_on,
}


@dataclass(frozen=True)
class Standing:
    """How a pool stands with its deployment."""

    claimed: bool = True
    permitted: tuple[str, ...] = ()
    behind: int = 0
    """How many generations the status lags."""

    def status(self, generation: int) -> Document:
        said = {"claimed": self.claimed, "permitted": list(self.permitted)}
        return {**said, "observedGeneration": generation - self.behind}


PERMITTED, HELD = Standing(permitted=("Disaggregation",)), Standing()


def approval(approver: str, namespace: str = GATED, name: str = "a") -> Document:
    spec = {
        "poolRef": {"name": "qwen3", "uid": "00000000-0000-0000-0000-000000000000"},
        "capability": "Disaggregation",
        "planHash": "v1:sha256:" + "0" * 64,
        "approver": approver,
        "expiresAt": "2036-12-31T00:00:00Z",
    }
    return {"apiVersion": API_VERSION, "kind": "GateApproval", "metadata": {"name": name, "namespace": namespace}} | {
        "spec": spec
    }
