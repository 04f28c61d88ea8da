"""The Gateway API Inference Extension has an InferencePool too: one of the same name beside ours, and neither minds."""

from __future__ import annotations

import time

import pytest

from tests.e2e.documents import NAMESPACE, Document
from tests.e2e.stage import GAIE_POOL, Scene, is_settled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

QUIET_SECONDS = 3.0
"""Within a tenth of it, an event of ours has a turn."""


def namesake(name: str, port: int) -> Document:
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
        },
    }


def test_an_inference_pool_of_the_gateway_extension_stands_beside_ours_untouched(scene: Scene) -> None:
    scene.access.apply(namesake(scene.name, 8000))
    theirs = scene.access.get(GAIE_POOL, scene.name, "-n", NAMESPACE, "--show-managed-fields")
    scene.gate("2s")
    ours = scene.wait_for("a verdict", is_settled)
    scene.stage.wait_until_idle()
    assert scene.access.get(GAIE_POOL, scene.name, "-n", NAMESPACE, "--show-managed-fields") == theirs

    quiet_since = scene.stage.mark()
    scene.access.apply(namesake(scene.name, 8001))
    scene.access.kubectl("delete", GAIE_POOL, scene.name, "-n", NAMESPACE, "--timeout=30s", check=True)
    time.sleep(QUIET_SECONDS)
    assert not scene.stage.turns_since(quiet_since)
    assert scene.stage.watch.latest(scene.key) == ours
