"""The policy for clusters whose Dynamo serves v1alpha1: services are a map there, and variables stand in two places."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.cluster.access import Document
from tests.cluster.controlplane import LOOPBACK, start_control_plane
from tests.cluster.fixtures import fresh_state
from tests.cluster.waiting import eventually
from tests.dynamo.alphas import as_alpha
from tests.install import gated
from tests.install.gated import GATED, HELD, MODE, OFF, ON, PERMITTED, pool
from tests.install.plane import ROOT, Plane, namespace
from tests.install.policed import DGD_CRD

pytestmark = pytest.mark.api
POLICY = ROOT / "manifests" / "admission" / "transitions-v1alpha1.yaml"
STATES = {"off": OFF, "on": ON, "open": OFF}


def deployment(name: str, modes: tuple[str, str] = OFF) -> Document:
    return as_alpha(gated.deployment(name, modes))


def service(document: Document, change: Callable[[Document], object]) -> Document:
    changed = copy.deepcopy(document)
    change(changed["spec"]["services"]["PrefillWorker"])
    return changed


def in_container(found: Document) -> None:
    """The same variable where it hides the service's own."""
    found["extraPodSpec"]["mainContainer"]["env"] = [{"name": MODE, "value": "prefill"}]


def in_args(found: Document) -> None:
    found["extraPodSpec"]["mainContainer"]["args"] += ["--disaggregation-mode", "prefill"]


def scaled(found: Document) -> None:
    found["replicas"] = 3


def with_disk(found: Document) -> None:
    found["envs"] = [*found.get("envs", ()), {"name": "DYN_KVBM_DISK_CACHE_GB", "value": "10"}]


@pytest.fixture(scope="module")
def older() -> Iterator[Plane]:
    """A control plane that knows the deployments' older version alone."""
    with fresh_state() as ledger:
        access = start_control_plane(ledger, LOOPBACK)
        crd = yaml.safe_load(DGD_CRD.read_text())
        versions = [v | {"storage": True, "served": True} for v in crd["spec"]["versions"] if v["name"] == "v1alpha1"]
        spec = {key: held for key, held in crd["spec"].items() if key != "conversion"} | {"versions": versions}
        access.load_crds(sorted((ROOT / "crds").glob("kvgate.dev_*.yaml")))
        access.apply(crd | {"spec": spec}, namespace(GATED, **{"kvgate.dev/enforce": "true"}))
        access.wait_established("dynamographdeployments.nvidia.com")
        plane = Plane(access, ledger)
        criteria: Document = {"disaggregation": {}, "kvStorage": {}}
        for name, modes in STATES.items():
            access.apply(deployment(name, modes), pool(name, criteria=criteria))
            kept = access.get("kvpool", name, "-n", GATED)
            status = (PERMITTED if name == "open" else HELD).status(kept["metadata"]["generation"])
            assert plane.replace(kept | {"status": status}, subresource="status", keep=True).done
        access.kubectl("apply", "-f", POLICY, check=True)
        eventually(lambda: not plane.replace(deployment("off", ON)).done, 60)
        eventually(lambda: plane.replace(deployment("open", ON)).done, 60)
        yield plane


@pytest.mark.parametrize(
    ("document", "passes"),
    [
        pytest.param(deployment("off", ON), False, id="both halves by the services' variables"),
        pytest.param(service(deployment("off"), in_container), False, id="one half by the container's variable"),
        pytest.param(service(deployment("off"), in_args), False, id="one half by a flag"),
        pytest.param(service(deployment("off"), with_disk), False, id="a disk for KV cache"),
        pytest.param(service(deployment("off"), scaled), True, id="replicas of what is off"),
        pytest.param(service(deployment("on", ON), scaled), True, id="replicas of what is on"),
        pytest.param(deployment("on", OFF), True, id="the way back"),
        pytest.param(deployment("open", ON), True, id="what is permitted"),
    ],
)
def test_the_older_version_is_held_back_in_the_same_way(older: Plane, document: Document, passes: bool) -> None:
    answer = older.replace(document)

    assert answer.done == passes, answer.says
    assert passes or "does not permit" in answer.says
