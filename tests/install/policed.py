"""A control plane with kvgate's policies in force, and in its gated namespace a deployment and a pool of each state."""

from __future__ import annotations

import yaml

from kvgate.api.crds import render
from tests.api.documents import shard
from tests.cluster.access import Document
from tests.cluster.waiting import eventually
from tests.install import gated
from tests.install.gated import FREE, GATED, HELD, OFF, ON, PERMITTED, Standing, deployment, pool
from tests.install.plane import OPERATOR, ROOT, Plane, namespace

DGD_CRD = ROOT / "tests" / "data" / "dynamo-crds" / "nvidia.com_dynamographdeployments.yaml"
STATES: dict[str, tuple[tuple[str, str], Standing, Document]] = {
    "off-held": (OFF, HELD, {}),
    "off-permitted": (OFF, PERMITTED, {}),
    "on-held": (ON, HELD, {}),
    "on-permitted": (ON, PERMITTED, {}),
    "half-held": (("prefill", "agg"), HELD, {}),
    "unclaimed": (OFF, Standing(claimed=False), {}),
    "behind": (OFF, Standing(permitted=("Disaggregation",), behind=1), {}),
    "suspended": (OFF, HELD, {"suspend": True}),
    "observing": (OFF, HELD, {"mode": "Observe"}),
    "ungated": (OFF, HELD, {"criteria": {"routing": {}}}),
    "storage": (OFF, HELD, {"criteria": {"kvStorage": {}}}),
    "storage-permitted": (OFF, Standing(permitted=("KVStorage",)), {"criteria": {"kvStorage": {}}}),
}
"""Deployments by the name that they share with their pool: modes, how the pool stands, and its spec."""


def police(plane: Plane) -> None:
    """All that ships, a gated namespace and a free one, and in the gated one every state."""
    access = plane.access
    access.load_crds([DGD_CRD])
    access.kubectl("apply", "-k", ROOT / "manifests" / "core", check=True)
    access.wait_established(*(yaml.safe_load(text)["metadata"]["name"] for text in render().values()))
    access.apply(namespace(GATED, **{"kvgate.dev/enforce": "true"}), namespace(FREE))
    for name, (modes, _, _) in STATES.items():
        access.apply(stored(name, modes))
    access.apply(deployment("free", namespace=FREE), pool("free", FREE))
    access.apply(*(pool(name, **spec) for name, (_, _, spec) in STATES.items()))
    stand(plane, GATED, {name: standing for name, (_, standing, _) in STATES.items()})
    stand(plane, FREE, {"free": HELD})
    access.kubectl("apply", "-k", ROOT / "manifests" / "admission", check=True)
    eventually(lambda: in_force(plane), 60)


def stored(name: str, modes: tuple[str, str]) -> Document:
    made = deployment(name, modes)
    return gated.without_disk(made) if name.startswith("storage") else made


def stand(plane: Plane, where: str, standings: dict[str, Standing]) -> None:
    found = {item["metadata"]["name"]: item for item in plane.access.get("kvpool", "-n", where)["items"]}
    for name, standing in standings.items():
        status = standing.status(found[name]["metadata"]["generation"])
        written = plane.replace(found[name] | {"status": status}, OPERATOR, subresource="status", keep=True)
        assert written.done, written.says


def in_force(plane: Plane) -> bool:
    """The policies and what they know of pools come to the API server by watches."""
    held, opened = (deployment(name, ON) for name in ("off-held", "off-permitted"))
    approved = plane.create(gated.approval("somebody-else"))
    evidence = plane.create(in_gated(shard()), "admin")
    return not plane.replace(held).done and plane.replace(opened).done and not approved.done and not evidence.done


def in_gated(document: Document) -> Document:
    return gated.named(document, "evidence", GATED)
