"""A report's kvTransferPolicy on a real API server with Dynamo's own CRDs: taken word by word, and its rules bite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.core.evidence import Path as Way
from tests.app.report import saved
from tests.app.yard import kvgate
from tests.cluster.access import Access
from tests.dynamo_stage.standin.samples import deployment

pytestmark = pytest.mark.api

CRD = Path(__file__).parents[1] / "data" / "dynamo-crds" / "nvidia.com_dynamographdeployments.yaml"
RACKS = {"p1": "r1", "d1": "r1", "p2": "r2", "d2": "r2"}
RATES = {Way(a, b): 4e8 if RACKS[a] == RACKS[b] else 1e8 for a in ("p1", "p2") for b in ("d1", "d2")}


@pytest.fixture(scope="module")
def server(control_plane: Access) -> Access:
    control_plane.load_crds([CRD])
    return control_plane


def exported(folder: Path, criteria: Mapping[str, str]) -> dict[str, Any]:
    out = folder / "patch.yaml"
    file = saved.save(folder, [saved.pool(**criteria), *saved.reports(saved.evidence(RATES, RACKS))])
    assert kvgate("report", file, "--format", "kv-transfer-policy", "-o", out) == 0
    found: dict[str, Any] = yaml.safe_load(out.read_text(encoding="utf-8"))["spec"]
    return found


def answered(server: Access, spec: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The `spec` that a server would keep of a new deployment with this patch, and what it says against it."""
    document = deployment("policy")
    document["spec"] |= spec
    words = ("create", "--dry-run=server", "--validate=strict", "-o", "yaml", "-f", "-")
    done = server.kubectl(*words, input=yaml.safe_dump(document))
    return (yaml.safe_load(done.stdout) or {}).get("spec", {}), done.stderr


@pytest.mark.parametrize(
    ("criteria", "enforcement"),
    [
        pytest.param({"ttftBudget": "30s"}, "preferred", id="across is slower and enough"),
        pytest.param({"minThroughput": "200MB/s"}, "required", id="across is too slow"),
    ],
)
def test_a_new_deployment_with_the_exported_policy_is_taken(
    criteria: Mapping[str, str], enforcement: str, server: Access, tmp_path: Path
) -> None:
    spec = exported(tmp_path, criteria)
    kept, said = answered(server, spec)
    assert said == ""
    assert kept["experimental"] == spec["experimental"]
    assert kept["experimental"]["kvTransferPolicy"]["enforcement"] == enforcement


def test_the_server_refuses_the_policy_where_a_part_of_it_is_missing(server: Access, tmp_path: Path) -> None:
    spec = exported(tmp_path, {"ttftBudget": "30s"})
    del spec["experimental"]["kvTransferPolicy"]["preferredWeight"]
    assert "preferredWeight is required when enforcement is preferred" in answered(server, spec)[1]
