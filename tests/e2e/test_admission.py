"""The gate under the policies that ship: a hand cannot switch the split on before it, and its own patch passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.waiting import eventually
from tests.e2e import documents
from tests.e2e.documents import MODE, NAMESPACE, Document
from tests.e2e.running import ROOT
from tests.e2e.stage import AS_BEFORE, POOL, SPLIT, Scene, Stage, is_split, waits_for_approval

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
POLICIES = ROOT / "manifests" / "admission"
JANE = "jane@example.com"


@pytest.fixture
def policed(stage: Stage) -> Iterator[Stage]:
    """The policies in force in the deployments' namespace, for this test alone."""
    access = stage.access
    access.kubectl("apply", "-k", POLICIES, check=True)
    access.kubectl("label", "namespace", NAMESPACE, "kvgate.dev/enforce=true", "--overwrite", check=True)
    bound = ("create", "rolebinding", "jane", "--clusterrole=kvgate-approver", f"--user={JANE}", "-n", NAMESPACE)
    access.kubectl(*bound, check=True)
    yield stage
    access.kubectl("delete", "-k", POLICIES, check=True)
    access.kubectl("label", "namespace", NAMESPACE, "kvgate.dev/enforce-", check=True)
    access.kubectl("delete", "rolebinding", "jane", "-n", NAMESPACE, check=True)


def switched(scene: Scene) -> Document:
    """The deployment as somebody who does not wait would write it."""
    found = scene.deployment()
    for part in found["spec"]["components"]:
        role = {"PrefillWorker": "prefill", "DecodeWorker": "decode"}.get(part["name"])
        (main,) = part["podTemplate"]["spec"]["containers"]
        others = [entry for entry in main.get("env", ()) if entry["name"] != MODE]
        main["env"] = others + ([{"name": MODE, "value": role}] if role else [])
    return found


def by_hand(scene: Scene) -> str:
    text = yaml.safe_dump(switched(scene))
    return scene.access.kubectl("replace", "--dry-run=server", "-f", "-", input=text).stderr


def test_who_does_not_wait_is_denied_and_the_gates_own_patches_pass_both_ways(policed: Stage, scene: Scene) -> None:
    if policed.cluster is not None:
        policed.shape("2500mbit")
    scene.gate("2s", rollback={"onDelete": {"disaggregation": "Revert"}})
    seen = scene.wait_for("a plan to approve", waits_for_approval)
    eventually(lambda: "does not permit Disaggregation" in by_hand(scene), 20)
    approval = yaml.safe_dump(documents.approval(scene.name, seen.uid, seen.status, ("ReducedCapacity",)))
    create = ("create", "-f", "-")
    eventually(
        lambda: "must be the user" in scene.access.kubectl(*create, "--dry-run=server", input=approval).stderr, 20
    )

    scene.access.kubectl(*create, f"--as={JANE}", input=approval, check=True)
    scene.wait_for("split", is_split)
    assert scene.modes() == SPLIT
    early = [call for call in policed.calls_since(policed.begun) if call.status_code == 403]
    assert {(call.verb, call.resource) for call in early} <= {("patch", "dynamographdeployments")}, "a moment too early"
    policed.begun = policed.mark()
    scene.access.kubectl("delete", POOL, scene.name, "-n", NAMESPACE, "--timeout=40s", check=True)
    assert scene.modes() == AS_BEFORE
