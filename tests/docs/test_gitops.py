"""What the pages say of GitOps tools: the managers that they name are those that kvgate writes as, and knows of."""

from __future__ import annotations

import re

import yaml

from kvgate.dynamo.owners import ARGO_MANAGERS, CLIENT_SIDE_MANAGER, FLUX_MANAGERS, HELM_MANAGERS
from kvgate.dynamo.words import FIELD_MANAGER
from tests.docs import pages

RUNBOOK, OPERATING = (
    (pages.ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("runbook.md", "operating.md")
)
OURS = set(FIELD_MANAGER.values())


def application() -> dict[str, object]:
    """The Argo CD Application of the runbook."""
    blocks = (
        yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", RUNBOOK, re.DOTALL) if "\n---" not in text
    )
    found = [block for block in blocks if isinstance(block, dict) and block.get("kind") == "Application"]
    assert len(found) == 1
    return dict(found[0]["spec"])


def test_argo_cd_is_told_to_ignore_what_our_managers_own_and_to_respect_it() -> None:
    spec = application()
    found = spec["ignoreDifferences"]
    assert isinstance(found, list)
    (ignored,) = found
    assert set(ignored["managedFieldsManagers"]) == OURS
    assert (ignored["group"], ignored["kind"]) == ("nvidia.com", "DynamoGraphDeployment")
    options = spec["syncPolicy"]["syncOptions"]  # type: ignore[index]
    assert {"ServerSideApply=true", "RespectIgnoreDifferences=true"} <= set(options)


def test_every_manager_in_the_table_of_drift_is_one_that_is_told_apart() -> None:
    table = RUNBOOK[RUNBOOK.index("## Drifted") :].split("For Argo CD")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for cell in rows for name in re.findall(r"`([^`]+)`", cell)}
    assert named
    assert named <= ARGO_MANAGERS | FLUX_MANAGERS | HELM_MANAGERS | {CLIENT_SIDE_MANAGER}
    assert {name.partition("-")[0] for name in named} == {"argocd", "kustomize", "helm", "kubectl"}


def test_our_managers_are_named_where_a_deployer_looks() -> None:
    assert [name for name in OURS if f"`{name}`" not in OPERATING or name not in RUNBOOK] == []
