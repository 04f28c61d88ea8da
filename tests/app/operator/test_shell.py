"""The operator's real process and kopf's real watches against a real API server; the ground only counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.app.operator.election import LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS
from kvgate.app.operator.main import LEASE_NAMESPACE
from kvgate.probe.jobs import Owner, labels
from tests.app.operator.outage import door
from tests.cluster.access import Access, Document, write_kubeconfig
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.api
ROOT = Path(__file__).parents[3]
SOON_SECONDS = 2.0
ANOTHERS_FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


def open_crd(group: str, kind: str, version: str) -> Document:
    """A CRD of somebody else's kind that takes anything."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


GAIE = open_crd("inference.networking.k8s.io", "InferencePool", "v1")
DEPLOYMENTS = open_crd("nvidia.com", "DynamoGraphDeployment", "v1beta1")
WORKERS = open_crd("nvidia.com", "DynamoWorkerMetadata", "v1alpha1")


def thing(api_version: str, kind: str, name: str, namespace: str, **more: Any) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **more}


def sample_pool(namespace: str, name: str = "qwen3") -> Document:
    pool: Document = yaml.safe_load((resources.files("kvgate.app") / "samples" / "pool.yaml").read_text())
    pool["metadata"] = {"name": name, "namespace": namespace}
    return pool


@dataclass
class Running:
    """One operator process, its notes and its log."""

    process: subprocess.Popen[bytes]
    notes: Path
    log: Path

    def looks(self, key: str) -> int:
        """How often this process looked at the pool."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return sum(n["call"] == "observe" and n["key"] == key and n["pid"] == self.process.pid for n in found)

    def said(self, message: str) -> int:
        return sum(line["message"] == message for line in self.lines())

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def look_follows(self, act: Callable[[], object], key: str, within_seconds: float = SOON_SECONDS) -> bool:
        before, began = self.looks(key), time.monotonic()
        act()
        while time.monotonic() - began < within_seconds:
            if self.looks(key) > before:
                return True
            time.sleep(0.05)
        return False


@dataclass
class Bench:
    """A namespace with the kinds in it, and operators that share one Lease there."""

    access: Access
    namespace: str
    directory: Path
    started: list[Running] = field(default_factory=list)
    stirred: int = 0

    def start(self, *namespaces: str, server: str = "", token: str = "", lease_in: str = "") -> Running:
        name = f"{self.namespace}-{len(self.started)}"
        kubeconfig = self.directory / f"{name}.kubeconfig"
        shown = token or self.access.token
        write_kubeconfig(kubeconfig, server or self.access.server, self.access.authority, shown)
        notes, log = self.directory / f"{self.namespace}.jsonl", self.directory / f"{name}.log"
        program = (sys.executable, "-m", "tests.app.operator.counting_operator")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*program, kubeconfig, notes, lease_in or self.namespace, *namespaces],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'probes'}:{ROOT}", "HEALTH_PORT": "0"},
                stderr=output,
            )
        self.started.append(Running(process, notes, log))
        return self.started[-1]

    def leading(self, *namespaces: str, **more: str) -> Running:
        """An operator that has begun to act."""
        running = self.start(*namespaces, **more)
        eventually(lambda: running.said("leading: this process acts"), 30)
        return running

    def apply(self, *documents: Document) -> None:
        self.access.apply(*documents)

    def stir(self, document: Document) -> None:
        """Apply it with something in it that it did not have before."""
        self.stirred += 1
        marked = {**document["metadata"], "annotations": {"test/stirred": str(self.stirred)}}
        self.access.apply({**document, "metadata": marked})

    @property
    def key(self) -> str:
        return f"{self.namespace}/qwen3"


@pytest.fixture(scope="module")
def kinds(control_plane: Access) -> Access:
    control_plane.load_crds(sorted((ROOT / "crds").glob("*.yaml")))
    control_plane.apply(GAIE)
    return control_plane


@pytest.fixture
def bench(kinds: Access, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    namespace = f"shell-{abs(hash(request.node.name)) % 10**8}"
    kinds.kubectl("create", "namespace", namespace, check=True)
    made = Bench(kinds, namespace, tmp_path)
    yield made
    for running in made.started:
        running.process.kill()
        running.process.wait(10)
    kinds.kubectl("delete", "namespace", namespace, "--wait=false")


def test_a_pool_that_is_made_or_changed_gets_a_turn_soon(bench: Bench) -> None:
    running = bench.leading(bench.namespace)
    eventually(lambda: running.look_follows(lambda: bench.apply(sample_pool(bench.namespace)), bench.key), 30)
    changed = sample_pool(bench.namespace)
    changed["spec"]["suspend"] = True

    assert running.look_follows(lambda: bench.apply(changed), bench.key)


def test_everything_that_a_pool_depends_on_brings_it_a_turn_soon(bench: Bench) -> None:
    running = bench.leading()
    ns = bench.namespace
    bench.apply(sample_pool(ns))
    eventually(lambda: running.looks(bench.key), 10)
    uid = bench.access.get("inferencepools.kvgate.dev", "qwen3", "-n", ns)["metadata"]["uid"]
    owner = {"apiVersion": "kvgate.dev/v1alpha1", "kind": "InferencePool", "name": "qwen3", "uid": uid}
    container = {"name": "c", "image": "local.test/none:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = thing("batch/v1", "Job", "probe", ns, spec={"template": template})
    job["metadata"] |= {"ownerReferences": [owner], "labels": labels(Owner("qwen3", ns, uid), "run-1")}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-of-{ns}"}}
    approval = thing(
        "kvgate.dev/v1alpha1", "GateApproval", "yes", ns,
        spec={
            "poolRef": {"name": "qwen3", "uid": uid}, "capability": "Disaggregation", "approver": "admin",
            "planHash": f"v1:sha256:{'0' * 64}", "expiresAt": "2099-01-01T00:00:00Z",
        },
    )  # fmt: skip

    found = {
        what: running.look_follows(act, bench.key)
        for what, act in {
            "an approval": lambda: bench.apply(approval),
            "a Job": lambda: bench.apply(job),
            "a node": lambda: bench.apply(node),
            "a cordoned node": lambda: bench.access.kubectl("cordon", f"node-of-{ns}", check=True),
            "a node that goes": lambda: bench.access.kubectl("delete", "node", f"node-of-{ns}", check=True),
        }.items()
    }
    assert found == dict.fromkeys(found, True)


def test_kinds_that_are_installed_later_are_watched_from_then_on_and_the_operator_outlives_their_end(
    bench: Bench,
) -> None:
    for crd in (DEPLOYMENTS, WORKERS):
        bench.access.kubectl("delete", "crd", crd["metadata"]["name"], "--ignore-not-found", check=True)
    running = bench.leading()
    bench.apply(sample_pool(bench.namespace))
    eventually(lambda: running.looks(bench.key), 10)
    bench.apply(DEPLOYMENTS, WORKERS)
    names = [crd["metadata"]["name"] for crd in (DEPLOYMENTS, WORKERS)]
    established = ("wait", "--for=condition=Established", "--timeout=30s")
    bench.access.kubectl(*established, *(f"crd/{name}" for name in names), check=True)
    for version, kind in (("v1beta1", "DynamoGraphDeployment"), ("v1alpha1", "DynamoWorkerMetadata")):
        stir = partial(bench.stir, thing(f"nvidia.com/{version}", kind, "qwen3", bench.namespace))
        eventually(partial(running.look_follows, stir, bench.key), 30)
    for name in names:
        bench.access.kubectl("delete", "crd", name, check=True)
    time.sleep(3)

    assert running.process.poll() is None
    stir = partial(bench.stir, sample_pool(bench.namespace))
    eventually(partial(running.look_follows, stir, bench.key), 60)


def test_the_gateway_apis_pool_of_the_same_name_brings_no_turn_and_is_left_alone(bench: Bench) -> None:
    running = bench.leading()
    ours = sample_pool(bench.namespace)
    bench.apply(ours)
    eventually(lambda: running.looks(bench.key), 10)
    theirs = thing("inference.networking.k8s.io/v1", "InferencePool", "qwen3", bench.namespace, spec={"selector": {}})
    theirs["metadata"]["finalizers"] = [ANOTHERS_FINALIZER]

    assert not running.look_follows(lambda: bench.apply(theirs), bench.key, 3.0)
    kept = bench.access.get("inferencepools.inference.networking.k8s.io", "qwen3", "-n", bench.namespace)["metadata"]
    assert kept["finalizers"] == [ANOTHERS_FINALIZER]
    assert "kopf" not in str(kept.get("annotations"))
    bench.access.kubectl(
        *("patch", "inferencepools.inference.networking.k8s.io", "qwen3", "-n", bench.namespace, "--type=merge"),
        *("-p", '{"metadata":{"finalizers":null}}'),
        check=True,
    )


def test_what_is_watched_is_not_written_by_the_watching(bench: Bench) -> None:
    """Another kopf operator's finalizer is what kopf would take off by itself."""
    running = bench.leading(bench.namespace)
    pool = sample_pool(bench.namespace)
    pool["metadata"]["finalizers"] = [ANOTHERS_FINALIZER]
    bench.apply(pool)
    eventually(lambda: running.looks(bench.key), 10)
    time.sleep(RETRY_SECONDS + 1)
    kept = bench.access.get("inferencepools.kvgate.dev", "qwen3", "-n", bench.namespace)["metadata"]

    assert kept["finalizers"] == [ANOTHERS_FINALIZER]
    assert "kopf" not in str(kept.get("annotations"))
    written = {
        (event.verb, event.resource)
        for event in bench.access.audit_events()
        if event.namespace == bench.namespace
        and event.verb not in {"get", "list", "watch"}
        and not event.user_agent.startswith(("kubectl", "kube-"))
    }
    assert written == {("create", "leases"), ("update", "leases")}
    patch = ("patch", "inferencepools.kvgate.dev", "qwen3", "-n", bench.namespace, "--type=merge")
    bench.access.kubectl(*patch, "-p", '{"metadata":{"finalizers":null}}', check=True)


@pytest.mark.parametrize("scope", ["all namespaces", "one namespace"])
def test_with_the_rights_that_ship_watching_and_leading_are_never_forbidden(bench: Bench, scope: str) -> None:
    access = bench.access
    access.kubectl("apply", "-k", ROOT / "manifests" / "core", check=True)
    token = access.mint_token("kvgate-system", "kvgate-operator")
    user = "system:serviceaccount:kvgate-system:kvgate-operator"
    served = [bench.namespace] if scope == "one namespace" else []
    if served:
        role = ("--clusterrole=kvgate-operator", "--serviceaccount=kvgate-system:kvgate-operator")
        access.kubectl("create", "rolebinding", "kvgate-operator", *role, "-n", bench.namespace, check=True)
        access.kubectl("delete", "clusterrolebinding", "kvgate-operator", check=True)
    eventually(lambda: access.kubectl("auth", "can-i", "watch", "nodes", f"--as={user}").returncode == 0)
    running = bench.leading(*served, token=token, lease_in=LEASE_NAMESPACE)
    eventually(lambda: running.look_follows(lambda: bench.stir(sample_pool(bench.namespace)), bench.key), 30)
    time.sleep(RETRY_SECONDS)

    asked = [event for event in access.audit_events() if event.user == user]
    watched = {"jobs", "nodes", "inferencepools", "gateapprovals", "leases"}
    wider = set() if served else {"customresourcedefinitions"}
    assert watched | wider <= {event.resource for event in asked}
    assert [event for event in asked if event.status_code == 403] == []
    running.process.terminate()
    assert running.process.wait(30) == 0


def test_other_namespaces_are_not_watched_when_one_was_named(bench: Bench) -> None:
    running = bench.leading(bench.namespace)
    other = f"{bench.namespace}-other"
    bench.access.kubectl("create", "namespace", other, check=True)
    bench.apply(sample_pool(other), sample_pool(bench.namespace))
    eventually(lambda: running.looks(bench.key), 10)

    assert running.looks(f"{other}/qwen3") == 0
    bench.access.kubectl("delete", "namespace", other, "--wait=false")


def test_of_two_operators_one_acts_and_the_other_follows_when_it_is_killed(bench: Bench) -> None:
    first = bench.leading(bench.namespace)
    bench.apply(sample_pool(bench.namespace))
    eventually(lambda: first.looks(bench.key), 10)
    second = bench.start(bench.namespace)
    eventually(lambda: second.said("kvgate operator started"), 20)
    time.sleep(2 * RETRY_SECONDS)
    assert second.looks(bench.key) == 0
    first.process.kill()
    died = time.monotonic()

    eventually(lambda: second.looks(bench.key), LEASE_SECONDS + 3 * RETRY_SECONDS)
    assert time.monotonic() - died > RENEW_SECONDS


def test_one_that_is_asked_to_end_lets_the_other_follow_at_once(bench: Bench) -> None:
    first = bench.leading(bench.namespace)
    bench.apply(sample_pool(bench.namespace))
    second = bench.start(bench.namespace)
    eventually(lambda: second.said("kvgate operator started"), 20)
    time.sleep(RETRY_SECONDS)
    first.process.terminate()

    assert first.process.wait(25) == 0
    eventually(lambda: second.looks(bench.key), 3 * RETRY_SECONDS)


@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_an_api_server_that_is_away_for_longer_than_a_lease_is_waited_for(bench: Bench, how: str) -> None:
    with door(bench.access.server) as way:
        running = bench.leading(bench.namespace, server=way.address)
        bench.apply(sample_pool(bench.namespace))
        eventually(lambda: running.looks(bench.key), 10)
        (way.shut if how == "refuses" else way.fall_silent)()
        eventually(lambda: running.said("not leading"), RENEW_SECONDS + 10)
        time.sleep(LEASE_SECONDS - RENEW_SECONDS + 1)
        changed = sample_pool(bench.namespace)
        changed["spec"]["suspend"] = True
        before = running.looks(bench.key)
        bench.apply(changed)
        time.sleep(1)
        assert running.looks(bench.key) == before
        way.open()
        eventually(lambda: running.said("leading: this process acts") == 2, 30)
        eventually(lambda: running.looks(bench.key) > before, 45)
        assert running.process.poll() is None


def test_an_api_server_that_answers_slowly_costs_neither_the_lease_nor_a_turn(bench: Bench) -> None:
    """Each answer takes two seconds more: the handshake, the renewal, the watch; a request may take five."""
    with door(bench.access.server) as way:
        running = bench.leading(bench.namespace, server=way.address)
        bench.apply(sample_pool(bench.namespace))
        eventually(lambda: running.looks(bench.key), 10)
        way.slow_seconds = 2.0
        until = time.monotonic() + RENEW_SECONDS + RETRY_SECONDS
        eventually(lambda: running.look_follows(lambda: bench.stir(sample_pool(bench.namespace)), bench.key, 5), 10)
        while time.monotonic() < until:
            assert running.said("not leading") == 0
            time.sleep(0.2)
        assert running.process.poll() is None


def test_while_the_api_server_refuses_it_is_not_hammered(bench: Bench) -> None:
    with door(bench.access.server) as way:
        running = bench.leading(bench.namespace, server=way.address)
        way.shut()
        before = way.knocks
        time.sleep(10)

        assert way.knocks - before < 10 * 12
        assert running.process.poll() is None


def test_health_is_told_where_the_log_says(bench: Bench) -> None:
    running = bench.leading(bench.namespace)
    port = next(line["health_port"] for line in running.lines() if "health_port" in line)
    eventually(lambda: answer(port, "/readyz") == 200, 10)

    assert answer(port, "/healthz") == 200


def answer(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as said:
            return int(said.status)
    except urllib.error.HTTPError as error:
        return error.code
