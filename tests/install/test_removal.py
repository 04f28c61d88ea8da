"""The API server's restart, and what is left where kvgate was removed in the wrong order."""

from __future__ import annotations

import pytest

from tests.cluster.waiting import eventually
from tests.install import gated
from tests.install.gated import FREE, ON, deployment
from tests.install.plane import ROOT, Plane
from tests.install.policed import in_force

pytestmark = pytest.mark.api
POLICIES = "validatingadmissionpolicies,validatingadmissionpolicybindings"


def test_after_a_restart_of_the_api_server_the_same_is_denied(policed: Plane) -> None:
    policed.restart_server()
    eventually(lambda: in_force(policed), 60)

    assert "does not permit" in policed.replace(deployment("off-held", ON)).says
    assert policed.replace(gated.scaled(deployment("off-held"))).done


def test_policies_that_outlive_the_kinds_block_the_gated_namespace_alone_until_they_are_removed(policed: Plane) -> None:
    """The wrong order of removal: why docs/operating.md says to delete the policies first."""
    access = policed.access
    access.kubectl("delete", "kvpool", "--all", "-A", check=True)
    access.kubectl("delete", "-k", ROOT / "crds", check=True)
    policed.restart_server()
    eventually(lambda: not policed.replace(gated.scaled(deployment("off-held"))).done, 30)
    assert policed.replace(deployment("free", ON, FREE)).done

    access.kubectl("delete", "-k", ROOT / "manifests" / "admission", check=True)
    eventually(lambda: policed.replace(deployment("off-held", ON)).done, 30)
    assert access.get(POLICIES)["items"] == []
