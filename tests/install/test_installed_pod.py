"""Installed by Helm and upgraded where NetworkPolicies are enforced: the pod is Ready, measures, writes what nobody
else may write; who has no business with it, with probes or with workers reaches none; rolled back it judges on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from kvgate.app.operator.main import HEALTH_PORT
from tests.cluster.access import Access
from tests.cluster.harness import Cluster
from tests.cluster.images import PROBE_REFERENCE
from tests.cluster.operator_image import REPOSITORY, TAG
from tests.cluster.waiting import eventually
from tests.e2e import documents
from tests.e2e.podded import END_SECONDS, PodOperator
from tests.install.gated import named, pool
from tests.install.plane import ROOT, SYSTEM, namespace
from tests.install.policed import DGD_CRD
from tests.install.reaching import CONTROL, OTHER, SYSTEM_PORT, Bystander, bystander, operator_reaches
from tests.install.release import BEFORE, CHART, RESTRICTED, Helm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
HERE, WATCHING, DEPLOYMENT = "installed", "watching", "deployment/kvgate-operator"
PROBES = {"app.kubernetes.io/managed-by": "kvgate"}
BYSTANDERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "prober": (HERE, PROBES),
    "other-prober": (HERE, PROBES),
    "worker": (HERE, {"nvidia.com/dynamo-graph-deployment-name": "qwen3"}),
    "stranger": (HERE, {}),
    "scraper": (WATCHING, {}),
}
IMAGES: Mapping[str, object] = {
    "image": {"repository": REPOSITORY, "tag": TAG},
    "settings": {"probe": {"image": PROBE_REFERENCE}},
}
Person = Callable[[str], Bystander]


@pytest.fixture(scope="module")
def release(
    enforced: Cluster, operator_archive: Path, helm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Helm]:
    """The previous chart, upgraded; over whatever an earlier test of this cluster installed without Helm. No kube-proxy
    leads to the API server here, so the pod is told where it is."""
    enforced.load_image(operator_archive)
    access, made = enforced.access, Helm(helm, enforced.access, tmp_path_factory.mktemp("helm"))
    access.apply(namespace(SYSTEM, **RESTRICTED), namespace(HERE), namespace(WATCHING))
    if access.kubectl("get", "crd", "dynamographdeployments.nvidia.com").returncode != 0:
        access.load_crds([DGD_CRD])
    server, values = urlsplit(access.server), tmp_path_factory.mktemp("values")
    (values / "before.yaml").write_text(yaml.safe_dump(IMAGES))
    (values / "now.yaml").write_text(yaml.safe_dump(chosen(server.port)))
    made.does("install", "kvgate", BEFORE, "-n", SYSTEM, "--take-ownership", "-f", values / "before.yaml")
    told = (f"KUBERNETES_SERVICE_HOST={server.hostname}", f"KUBERNETES_SERVICE_PORT={server.port}")
    access.kubectl("set", "env", DEPLOYMENT, *told, "-n", SYSTEM, check=True)
    is_rolled_out(access)
    access.kubectl("apply", "--server-side", "--force-conflicts", "-f", ROOT / "crds", check=True)
    made.does("upgrade", "kvgate", CHART, "-n", SYSTEM, "--take-ownership", "-f", values / "now.yaml")
    is_rolled_out(access)
    yield made
    made.does("uninstall", "kvgate", "-n", SYSTEM)
    eventually(lambda: not PodOperator(access).documents(), END_SECONDS)
    access.kubectl("delete", "namespace", HERE, WATCHING, "--wait=false", check=True)


def is_rolled_out(access: Access) -> None:
    rolled = ("rollout", "status", DEPLOYMENT, "-n", SYSTEM, "--timeout=90s")
    access.kubectl(*rolled, check=True, timeout_seconds=100)
    PodOperator(access).leader()


@pytest.fixture(scope="module")
def installed(release: Helm) -> Access:
    return release.access


def chosen(api_server_port: int | None) -> Mapping[str, object]:
    """The chart's values as an administrator would choose them for this cluster."""
    watching = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": WATCHING}}}
    return {
        **IMAGES,
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [watching],
            "apiServer": {"ports": [api_server_port]},
            "servingNamespaces": [HERE],
        },
    }


@pytest.fixture(scope="module")
def person(installed: Access) -> Person:
    people = [bystander(name, place, PROBE_REFERENCE, labels) for name, (place, labels) in BYSTANDERS.items()]
    installed.apply(*people)
    for name, (place, _) in BYSTANDERS.items():
        installed.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", place, "--timeout=30s", check=True)
    return lambda name: Bystander(installed, name, BYSTANDERS[name][0])


def test_its_pod_is_ready_and_judges_a_pool_whose_status_nobody_else_may_write(installed: Access) -> None:
    installed.apply(pool("qwen3", HERE))
    generation = ("get", "kvpool", "qwen3", "-n", HERE, "-o", "jsonpath={.status.observedGeneration}")
    eventually(lambda: installed.kubectl(*generation).stdout == "1", 60)

    forged = ("patch", "kvpool", "qwen3", "-n", HERE, "--subresource=status", "--type=merge")
    denied = installed.kubectl(*forged, "-p", '{"status":{"permitted":["Disaggregation"]}}')
    assert "only the operator" in denied.stderr


def test_a_sweep_ends_with_a_number_under_the_policies(installed: Access) -> None:
    gated = documents.pool("measured", ("n1", "n2"), "2s")
    deployed = documents.deployment("measured")
    installed.apply(*(named(document, "measured", HERE) for document in (deployed, gated)))
    rate = ("get", "kvpool", "measured", "-n", HERE, "-o", "jsonpath={.status.fabric.link.judgedBytesPerSecond}")
    eventually(lambda: installed.kubectl(*rate).stdout, 90)

    assert int(installed.kubectl(*rate).stdout) > 10_000_000


def test_strangers_reach_neither_the_operator_nor_probes_nor_workers(installed: Access, person: Person) -> None:
    stranger, scraper, prober = person("stranger"), person("scraper"), person("prober")
    running = PodOperator(installed)
    eventually(lambda: len(running.documents()) == 1, END_SECONDS)
    operator, worker = running.leader().address, person("worker")
    eventually(lambda: not stranger.reaches(worker.address, SYSTEM_PORT), 30)

    asked = {
        "stranger to operator": stranger.reaches(operator, HEALTH_PORT),
        "scraper to operator": scraper.reaches(operator, HEALTH_PORT),
        "stranger to prober": stranger.reaches(prober.address, CONTROL),
        "prober to prober": person("other-prober").reaches(prober.address, CONTROL),
        "prober to worker": prober.reaches(worker.address, OTHER),
        "scraper to worker": scraper.reaches(worker.address, SYSTEM_PORT),
        "scraper to stranger": scraper.reaches(stranger.address, OTHER),
        "operator to worker": operator_reaches(worker.address, SYSTEM_PORT),
        "operator to stranger": operator_reaches(stranger.address, OTHER),
    }
    assert {who for who, reached in asked.items() if reached} == {
        "scraper to operator",
        "prober to prober",
        "prober to worker",
        "scraper to stranger",
        "operator to worker",
    }


def test_rolled_back_to_the_previous_chart_it_judges_on(release: Helm, installed: Access) -> None:
    release.does("rollback", "kvgate", "1", "-n", SYSTEM)
    is_rolled_out(installed)
    assert release.names("validatingadmissionpolicy") == []

    changed = ("patch", "kvpool", "qwen3", "-n", HERE, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    installed.kubectl(*changed, check=True)
    generation = ("get", "kvpool", "qwen3", "-n", HERE, "-o", "jsonpath={.status.observedGeneration}")
    eventually(lambda: installed.kubectl(*generation).stdout == "2", 60)
