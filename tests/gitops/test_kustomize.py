"""What mode Recommend writes out, built by the real kustomize: the operator's change and no other."""

from __future__ import annotations

import copy
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from kvgate.api.words import Capability
from kvgate.core.steps import Recommend
from kvgate.core.target import ToggleStep
from kvgate.dynamo.patch import apply_to_document
from kvgate.edge.objects import Source
from kvgate.edge.targets import recommendation
from tests.cluster.binaries import binary
from tests.dynamo.support import Node, sample
from tests.dynamo.test_recommend import change_of

pytestmark = pytest.mark.api
BOTH = [Capability.ROUTING, Capability.DISAGGREGATION]


def build(folder: Path, document: Node, patch: str) -> subprocess.CompletedProcess[str]:
    """As the page on GitOps says: the patch behind the rest of kustomization.yaml."""
    (folder / "deployment.yaml").write_text(yaml.safe_dump(document))
    (folder / "kustomization.yaml").write_text(f"resources: [deployment.yaml]\n{patch}")
    command = [str(binary("kubectl")), "kustomize", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def recommended(document: Node, capability: Capability) -> str:
    steps = tuple(ToggleStep(step.component, step.env, step.to) for step in change_of(document, capability).writes)
    step = Recommend(capability, steps)
    return recommendation(Source(Path("deployment.yaml"), 0, document, datetime.now(UTC)), step)


@pytest.mark.parametrize("capability", BOTH)
def test_kustomize_builds_the_deployment_that_the_operator_would_make(capability: Capability, tmp_path: Path) -> None:
    document = sample()
    built = build(tmp_path, document, recommended(document, capability))

    assert built.returncode == 0, built.stderr
    assert yaml.safe_load(built.stdout) == apply_to_document(document, change_of(document, capability))


@pytest.mark.parametrize("capability", BOTH)
def test_kustomize_refuses_it_where_the_components_have_changed_places(capability: Capability, tmp_path: Path) -> None:
    document = sample()
    patch = recommended(document, capability)
    moved = copy.deepcopy(document)
    moved["spec"]["components"].reverse()  # type: ignore[index]
    built = build(tmp_path, moved, patch)

    assert built.returncode != 0
    assert "test" in built.stderr
