"""Installed by Helm in a real cluster: the pod is Ready, and writes what its policies let nobody else write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cluster.access import Access
from tests.cluster.harness import Cluster
from tests.cluster.operator_image import REPOSITORY, TAG
from tests.cluster.waiting import eventually
from tests.install.gated import pool
from tests.install.plane import ROOT, SYSTEM, namespace
from tests.install.policed import DGD_CRD
from tests.install.release import RESTRICTED, Helm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
HERE, DEPLOYMENT = "installed", "deployment/kvgate-operator"


@pytest.fixture(scope="module")
def installed(
    cluster: Cluster, operator_archive: Path, helm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Access]:
    """Over whatever an earlier test of this cluster installed without Helm. No kube-proxy leads to the API server here,
    so the pod is told where it is."""
    cluster.load_image(operator_archive)
    access, made = cluster.access, Helm(helm, cluster.access, tmp_path_factory.mktemp("helm"))
    access.apply(namespace(SYSTEM, **RESTRICTED), namespace(HERE))
    if access.kubectl("get", "crd", "dynamographdeployments.nvidia.com").returncode != 0:
        access.load_crds([DGD_CRD])
    image = ("--set", f"image.repository={REPOSITORY},image.tag={TAG}")
    made.does("install", "kvgate", ROOT / "charts" / "kvgate", "-n", SYSTEM, "--take-ownership", *image)
    server = urlsplit(access.server)
    told = (f"KUBERNETES_SERVICE_HOST={server.hostname}", f"KUBERNETES_SERVICE_PORT={server.port}")
    access.kubectl("set", "env", DEPLOYMENT, *told, "-n", SYSTEM, check=True)
    yield access
    made.does("uninstall", "kvgate", "-n", SYSTEM)
    access.kubectl("delete", "namespace", HERE, "--wait=false", check=True)


def test_its_pod_is_ready_and_judges_a_pool_whose_status_nobody_else_may_write(installed: Access) -> None:
    rolled = ("rollout", "status", DEPLOYMENT, "-n", SYSTEM, "--timeout=90s")
    installed.kubectl(*rolled, check=True, timeout_seconds=100)
    installed.apply(pool("qwen3", HERE))
    generation = ("get", "kvpool", "qwen3", "-n", HERE, "-o", "jsonpath={.status.observedGeneration}")
    eventually(lambda: installed.kubectl(*generation).stdout == "1", 60)

    forged = ("patch", "kvpool", "qwen3", "-n", HERE, "--subresource=status", "--type=merge")
    denied = installed.kubectl(*forged, "-p", '{"status":{"permitted":["Disaggregation"]}}')
    assert "only the operator" in denied.stderr
