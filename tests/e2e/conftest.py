"""The stage of the e2e tests: the tests' own cluster, or the one that KVGATE_E2E_KUBECONFIG names."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import DEFAULT_RATES
from tests.cluster.images import PROBE_REFERENCE
from tests.e2e.documents import NAMESPACE
from tests.e2e.running import Operator
from tests.e2e.stage import Scene, Stage, foreign_stage, leave, own_stage, running

KUBECONFIG, PROBE_IMAGE = "KVGATE_E2E_KUBECONFIG", "KVGATE_E2E_PROBE_IMAGE"


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """kvgate installed, no operator running. Everything in the namespace `serving` is ours to delete."""
    named = os.environ.get(KUBECONFIG)
    if named:
        image = os.environ.get(PROBE_IMAGE)
        assert image, f"{PROBE_IMAGE} must name the probe's image, as the nodes of {named} can pull it"
        made = foreign_stage(Path(named).absolute(), image, tmp_path_factory.mktemp("foreign"))
        assert made.access.kubectl("get", "namespace", NAMESPACE).returncode != 0, (
            f"the namespace {NAMESPACE} exists in {named}: these tests make it and delete it"
        )
    else:
        made = own_stage(request.getfixturevalue("cluster"), PROBE_REFERENCE)
    made.install()
    made.watch.start()
    yield made
    made.watch.stop()
    if named:
        made.access.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s", check=True, timeout_seconds=70)


@pytest.fixture
def shaped(stage: Stage) -> Iterator[Stage]:
    """A stage whose links can be shaped; afterwards they are as the tests of the cluster itself expect them."""
    if stage.cluster is None:
        pytest.skip("the links of a cluster that is not the tests' own cannot be shaped")
    yield stage
    stage.shape(DEFAULT_RATES[0])


@pytest.fixture
def audited(stage: Stage) -> Stage:
    """A stage whose API server's audit log can be read."""
    if stage.cluster is None:
        pytest.skip("the audit log of a cluster that is not the tests' own cannot be read")
    return stage


@pytest.fixture(scope="module")
def operator(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One operator for all tests of a module."""
    with running(stage.operator(tmp_path_factory.mktemp("operator"))) as made:
        yield made


@pytest.fixture
def scene(stage: Stage, operator: Operator) -> Iterator[Scene]:
    """A deployment, and no pool yet."""
    made = Scene(stage, operator, f"qwen3-{secrets.token_hex(2)}")
    made.deploy()
    yield made
    leave(stage.access, made.name)
    stage.check()
