"""What Argo CD and Flux make of a pool, over every state that it can have, by their own languages: Lua and CEL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cel
import pytest
import yaml
from lupa.lua51 import LuaRuntime

from kvgate.api.status import PoolStatus
from kvgate.api.wire import Condition
from kvgate.dynamo.words import FIELD_MANAGER
from tests.core.test_kstatus import ROWS, Change
from tests.core.worlds import NOW, Scene, proposed
from tests.docs import pages, reasons

FOLDER = pages.ROOT / "manifests" / "argocd"
SCRIPT = (FOLDER / "health.lua").read_text()
HEALTH = "resource.customizations.health.kvgate.dev_InferencePool"
DIFFERENCES = "resource.customizations.ignoreDifferences.nvidia.com_DynamoGraphDeployment"
CLOSED_TO_SCRIPTS = ("io", "os", "debug", "string", "math", "require", "dofile", "loadfile")
"""Argo CD opens the libraries for the base, tables and packages, and of the system a clock."""
Document = Mapping[str, Any]
EXPECTED = {
    "Unknown": ("Progressing", "InProgress"),
    "True": ("Healthy", "Current"),
    "False": ("Degraded", "Failed"),
}
"""By Ready: what Argo CD shows, and what Flux does with the expressions of the page."""


def argo(document: Document) -> tuple[str, str]:
    """As Argo CD runs a script: the object is the global `obj`, and a table with status and message comes back."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    for name in CLOSED_TO_SCRIPTS:
        lua.globals()[name] = None
    lua.globals()["obj"] = lua.table_from(document, recursive=True)
    told = lua.execute(SCRIPT)
    assert told["status"] in {"Healthy", "Progressing", "Degraded", "Suspended"}
    assert isinstance(told["message"], str)
    return told["status"], told["message"]


def flux(document: Document) -> str:
    """As Flux evaluates healthCheckExprs: in this order, and InProgress where none is true."""
    (exprs,) = fluxs()["healthCheckExprs"]
    for word, name in (("inProgress", "InProgress"), ("failed", "Failed"), ("current", "Current")):
        if cel.evaluate(exprs[word], {"metadata": document["metadata"], "status": document.get("status", {})}):
            return name
    return "InProgress"


def kstatus(document: Document) -> str:
    """The rules of kstatus for a kind that it does not know, with which Flux waits where no expressions are given."""
    status = document.get("status", {})
    said = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    if status.get("observedGeneration") != document["metadata"]["generation"] or said.get("Reconciling") == "True":
        return "InProgress"
    if said.get("Stalled") == "True":
        return "Failed"
    return "Current" if said.get("Ready", "True") == "True" else "InProgress"


def block(kind: str) -> dict[str, Any]:
    """The one block of the page that shows an object of this kind and group."""
    found = [yaml.safe_load(b.text) for b in pages.blocks(pages.ROOT / "docs" / "gitops.md") if b.language == "yaml"]
    (one,) = [document for document in found if f"{document['apiVersion'].split('/')[0]} {document['kind']}" == kind]
    assert isinstance(one, dict)
    return one


def fluxs() -> dict[str, Any]:
    spec: dict[str, Any] = block("kustomize.toolkit.fluxcd.io Kustomization")["spec"]
    return spec


def wire(status: PoolStatus, generation: int) -> Document:
    """The pool as the API server gives it."""
    return {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "qwen3", "namespace": "serving", "generation": generation},
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


State = Callable[[], tuple[PoolStatus, int]]
"""A status, and the generation of its pool."""


def turned(change: Change) -> State:
    def made() -> tuple[PoolStatus, int]:
        scene = change(Scene())
        return scene.decide().status, scene.generation

    return made


def told(reason: str, status: str, extra: str = "") -> State:
    """A state that no single turn of a scene shows: as its row of kstatus says it."""

    def made() -> tuple[PoolStatus, int]:
        plain = proposed().status
        words = {"reason": reason, "message": "as it is", "lastTransitionTime": NOW, "observedGeneration": 1}
        kinds = {"Ready": status, **({extra: "True"} if extra else {})}
        said = [Condition.model_validate({"type": kind, "status": value, **words}) for kind, value in kinds.items()]
        others = [condition for condition in plain.conditions if condition.type != "Ready"]
        return plain.model_copy(update={"conditions": (*others, *said)}), plain.observed_generation

    return made


def decided(state: State) -> tuple[Document, str, str]:
    """The object, the status of Ready and its reason."""
    status, generation = state()
    (ready,) = [said for said in status.conditions if said.type == "Ready"]
    return wire(status, generation), ready.status.value, ready.reason


LONGER_STORIES = {
    "verified": told("Enabled", "True"),
    "verified as far as can be": told("VerificationInconclusive", "False"),
    "a status that cannot be read": told("StatusUnreadable", "False"),
    "a patch that is refused for long": told("PatchRefused", "False", "Reconciling"),
    "the first sweep waits for other pools": told("WaitingForTurn", "Unknown", "Reconciling"),
    "the first sweep waits for its interval": told("WaitingForInterval", "Unknown", "Reconciling"),
    "the first sweep waits for a window": told("WaitingForWindow", "Unknown", "Reconciling"),
    "the first sweep cannot go on": told("SweepTroubled", "Unknown", "Reconciling"),
}
STATES = {name: turned(row[0]) for name, row in ROWS.items()} | LONGER_STORIES


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_argo_cd_shows_each_state_as_the_page_says(state: State) -> None:
    document, ready, reason = decided(state)
    expected = "Suspended" if reason == "Suspended" else EXPECTED[ready][0]
    status, message = argo(document)

    assert status == expected
    assert message.startswith(f"{reason}: ")


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_flux_waits_fails_or_goes_on_as_the_page_says(state: State) -> None:
    document, ready, _ = decided(state)

    assert flux(document) == EXPECTED[ready][1]


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_by_kstatus_alone_a_pool_is_current_exactly_while_it_is_ready(state: State) -> None:
    document, ready, _ = decided(state)
    found = kstatus(document)

    assert (found == "Current") == (ready == "True")
    assert found != "Failed" or flux(document) == "Failed"


def test_the_states_have_every_reason_that_ready_can_have() -> None:
    known = set().union(*reasons.told("kstatus").values())

    assert known <= {decided(state)[2] for state in STATES.values()}


EARLY: dict[str, Callable[[dict[str, Any]], object]] = {
    "without a status": lambda document: document.pop("status"),
    "with the status of the CRD's default": lambda document: document.update(status={"observedGeneration": -1}),
    "of an older generation": lambda document: document["metadata"].update(generation=7),
    "without conditions": lambda document: document["status"].pop("conditions"),
}


@pytest.mark.parametrize("spoil", EARLY.values(), ids=EARLY)
def test_a_pool_that_nobody_looked_at_yet_is_waited_for(spoil: Callable[[dict[str, Any]], object]) -> None:
    document = dict(decided(STATES["suspended"])[0])
    spoil(document)

    assert argo(document)[0] == "Progressing"
    assert flux(document) == "InProgress"


def test_the_config_map_holds_the_script_and_what_our_managers_own() -> None:
    data = yaml.safe_load((FOLDER / "argocd-cm.yaml").read_text())["data"]

    assert set(data) == {HEALTH, DIFFERENCES}
    assert data[HEALTH] == SCRIPT
    assert set(yaml.safe_load(data[DIFFERENCES])["managedFieldsManagers"]) == set(FIELD_MANAGER.values())


def test_the_application_of_the_page_ignores_and_respects_what_our_managers_own() -> None:
    spec = block("argoproj.io Application")["spec"]
    (ignored,) = spec["ignoreDifferences"]

    assert set(ignored["managedFieldsManagers"]) == set(FIELD_MANAGER.values())
    assert {"ServerSideApply=true", "RespectIgnoreDifferences=true"} <= set(spec["syncPolicy"]["syncOptions"])
