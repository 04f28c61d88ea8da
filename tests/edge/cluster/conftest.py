"""The namespace that each test of this folder gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.edge.cluster.yard import CRDS, DYNAMO_CRD, Yard, make_yard


def dynamo_crd() -> dict[str, Any]:
    """Dynamo's CRD without its conversion webhook."""
    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd: dict[str, Any] = yaml.load(DYNAMO_CRD.read_text(encoding="utf-8"), Loader=fast)
    crd["spec"].pop("conversion", None)
    return crd


def load_dynamo(access: Access, crd: dict[str, Any] | None = None) -> None:
    """The CRD is so large that it has no conditions yet when first asked."""
    crd = crd or dynamo_crd()
    access.apply(crd)
    waited = ("wait", "--for=condition=Established", "--timeout=30s", f"crd/{crd['metadata']['name']}")
    eventually(lambda: access.kubectl(*waited).returncode == 0, 60)


def load_kinds(access: Access) -> None:
    """Our kinds and Dynamo's, until all are served."""
    access.load_crds(CRDS)
    load_dynamo(access)
    served = ("get", "kvpool,gapp,fabrep,benchrep,dgd.v1beta1.nvidia.com", "-A")
    eventually(lambda: access.kubectl(*served).returncode == 0, 30)


@pytest.fixture(scope="session")
def kinds(control_plane: Access) -> Access:
    """The API server with our kinds and Dynamo's."""
    load_kinds(control_plane)
    return control_plane


@pytest.fixture
def yard(kinds: Access) -> Iterator[Yard]:
    made = make_yard(kinds)
    yield made
    kinds.kubectl("delete", "namespace", made.namespace, "--wait=false")
    kinds.kubectl("delete", "node", *made.nodes, "--wait=false")
