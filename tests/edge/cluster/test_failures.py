"""What fails in the cluster amid a sweep: it ends, a condition names the node and what failed, and nothing stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import yaml
from kubernetes import client as kubernetes

from kvgate.api.status import PoolStatus
from kvgate.edge.cluster.refusals import Unavailable
from tests.cluster.waiting import eventually
from tests.edge.cluster.sweeping import RUN, print_results, schedule_of, wait_for_pods, walked
from tests.edge.cluster.test_bad_input import Bench, condition
from tests.edge.cluster.yard import Document, KubeletLogs, Yard, configuration, set_ready

pytestmark = pytest.mark.api
TIME_IS_UP = timedelta(hours=3, minutes=1)
"""The default of fabric.schedule.sweepTimeout, and a little more."""


@pytest.fixture
def bench(yard: Yard) -> Bench:
    return Bench(yard)


def begin(bench: Bench) -> None:
    """Until the sweep is meant, and its Jobs are made where they can be."""
    bench.serve(turns=2)


def told(bench: Bench, *words: str) -> str:
    """What FabricMeasured says once it speaks of all these."""
    found: list[tuple[str, str, str]] = []

    def says() -> bool:
        found[:] = [condition(bench.serve(), "FabricMeasured")]
        return all(word in found[0][2] for word in words)

    eventually(says, 20)
    state, reason, message = found[0]
    assert (state, reason) == ("Unknown", "SweepTroubled"), message
    return message


def ended(bench: Bench) -> tuple[PoolStatus, str]:
    """The sweep is over and of it nothing is left; what FabricMeasured says then."""
    status = bench.serve(turns=2)
    state, _, message = condition(status, "FabricMeasured")
    assert (state, status.sweep, bench.yard.names("jobs")) == ("False", None, []), message
    assert [name for name in bench.yard.names("configmaps") if "schedule" in name] == []
    eventually(lambda: bench.yard.pods_of_jobs() == [], 30)
    return status, message


# --- what the API server refuses ------------------------------------------------------------------------------------


def quota(namespace: str) -> list[Document]:
    spec = {"hard": {"pods": "0"}}
    return [{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _named("small", namespace), "spec": spec}]


def limit_range(namespace: str) -> list[Document]:
    limits = [{"type": "Container", "max": {"cpu": "1", "memory": "8Gi"}}]
    return [
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": _named("small", namespace), "spec": {"limits": limits}}
    ]


def policy(namespace: str, group: str, resource: str) -> list[Document]:
    """Denies what carries our label, in this namespace alone."""
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    own = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    name, kind = f"{namespace}-{resource}", "admissionregistration.k8s.io/v1"
    ours = "'app.kubernetes.io/managed-by' in object.metadata.labels"
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": own},
        "validations": [{"expression": f"!has(object.metadata.labels) || !({ours})", "message": "not here"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": kind, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": kind, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding},
    ]


def _named(name: str, namespace: str) -> Document:
    return {"name": name, "namespace": namespace}


def is_refused(yard: Yard, resource: str) -> bool:
    """Whether the API server refuses what is like ours: it learns of a quota, a range and a policy by watches."""
    labels = {"app.kubernetes.io/managed-by": "kvgate"}
    container = {"name": "walker", "image": "x", "resources": {"limits": {"cpu": "4", "memory": "256Mi"}}}
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    context = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"restartPolicy": "Never", "securityContext": context, "containers": [container | {"securityContext": safe}]}
    kinds = {"pods": ("v1", "Pod", pod), "jobs": ("batch/v1", "Job", {"template": {"spec": pod}})}
    version, kind, spec = kinds[resource]
    metadata = _named("trial", yard.namespace) | {"labels": labels}
    trial = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    asked = ("create", "--dry-run=server", "-f", "-")
    return yard.access.kubectl(*asked, input=yaml.safe_dump(trial)).returncode != 0


def enforce(yard: Yard, documents: list[Document], resource: str) -> None:
    yard.access.apply(*documents)
    eventually(lambda: is_refused(yard, resource), 20)


@pytest.mark.parametrize(
    ("made", "word"),
    [
        pytest.param(quota, "QuotaExceeded", id="a quota without room"),
        pytest.param(limit_range, "LimitRange", id="a LimitRange that allows less"),
        pytest.param(lambda ns: policy(ns, "", "pods"), "AdmissionDenied", id="an admission policy"),
    ],
)
def test_pods_that_are_refused_leave_an_ended_sweep_that_names_their_nodes_and_by(
    bench: Bench, made: Callable[[str], list[Document]], word: str
) -> None:
    enforce(bench.yard, made(bench.yard.namespace), "pods")
    begin(bench)
    told(bench, *(f"node {node}: {word}: " for node in bench.yard.nodes))
    bench.yard.ahead += TIME_IS_UP
    _, message = ended(bench)
    assert [f"walker of {node}: {word}: " in message for node in bench.yard.nodes] == [True] * 3


def test_jobs_that_an_admission_policy_denies_are_no_sweep_and_the_condition_names_the_node(bench: Bench) -> None:
    """None could be made, so that the turn to sweep is given back; it is tried again, and goes on once it may."""
    yard = bench.yard
    denying = policy(yard.namespace, "batch", "jobs")
    enforce(yard, denying, "jobs")
    begin(bench)
    message = told(bench, "admission policy")
    assert f"node {yard.nodes[0]}: Job {yard.namespace}/qwen3-" in message
    assert yard.names("jobs") == []
    eventually(lambda: bench.serve().sweep is None, 10)
    for document in denying:
        yard.access.kubectl("delete", document["kind"], document["metadata"]["name"], check=True)
    eventually(lambda: not is_refused(yard, "jobs"), 20)
    yard.ahead += timedelta(minutes=2)
    eventually(lambda: bench.serve().sweep is not None and len(yard.names("jobs")) == 3, 30)


# --- nodes ----------------------------------------------------------------------------------------------------------


def walkers_at_work(bench: Bench) -> dict[str, str]:
    """The sweep's pods run and know each other: node → pod."""
    begin(bench)
    wait_for_pods(bench.yard)
    bench.serve()
    pods = bench.yard.run_pods()
    bench.serve()
    return pods


def end_walkers(bench: Bench, pods: dict[str, str], *nodes: str) -> None:
    """These walkers print what they measured, and end."""
    run_id = bench.yard.observe()[0].status.sweep
    assert run_id is not None
    print_results(bench.yard, pods, run_id.run_id)
    for node in nodes:
        bench.yard.set_pod_status(pods[node], "Succeeded", bench.yard.get("pods", pods[node])["status"]["podIP"])


def test_a_node_whose_kubelet_reports_no_more_is_named_and_waited_for_no_longer_than_the_timeout(bench: Bench) -> None:
    pods, (first, second, lost) = walkers_at_work(bench), bench.yard.nodes
    set_ready(bench.yard.access, lost, "Unknown")
    assert f"node {lost}: NodeNotReady: the kubelet of node {lost} no longer reports" in told(bench, "NodeNotReady")
    end_walkers(bench, pods, first, second)
    assert bench.serve().sweep is not None
    bench.yard.ahead += TIME_IS_UP
    eventually(lambda: bench.serve().sweep is None, 20)
    (evidence,) = bench.yard.observe()[1].evidence
    assert f"walker of {lost}: NodeNotReady" in evidence.problems[0]
    assert bench.yard.names("jobs") == []


def test_a_node_that_reboots_under_its_name_amid_the_sweep_is_named_and_its_numbers_count_no_more(bench: Bench) -> None:
    pods, (first, second, again) = walkers_at_work(bench), bench.yard.nodes
    booted = {"status": {"nodeInfo": {"bootID": "boot-anew"}}}
    kubernetes.CoreV1Api(bench.yard.access.api_client()).patch_node_status(again, booted)
    end_walkers(bench, pods, first, second, again)
    eventually(lambda: bool(bench.serve().fabric), 30)
    (evidence,) = bench.yard.observe()[1].evidence
    assert f"NodeRebooted: node {again} booted anew during the sweep: it is measured again" in evidence.problems
    boots = {identity.name: identity.boot_id for identity in evidence.nodes}
    assert boots == {node: f"boot-{node}" for node in bench.yard.nodes}
    state, reason, message = condition(bench.serve(), "FabricMeasured")
    assert (state, reason) == ("False", "NodeNotCovered")
    assert again in message
    assert second not in message


# --- logs -----------------------------------------------------------------------------------------------------------


class Deaf(KubeletLogs):
    """Plays a kubelet of which the API server gets no log for one pod: it answers with status 500."""

    deaf_to = ""

    def log(self, namespace: str, pod: str, container: str, most_bytes: int) -> str:
        if pod == self.deaf_to:
            raise Unavailable(f"log of pod {namespace}/{pod}: the API server answers with status 500")
        return super().log(namespace, pod, container, most_bytes)


@pytest.fixture
def deaf(yard: Yard) -> Bench:
    yard.client = Deaf(configuration(yard.access))
    yard.__post_init__()
    return Bench(yard)


def test_a_log_that_its_kubelet_does_not_give_is_told_and_asked_for_until_the_timeout(deaf: Bench) -> None:
    yard = deaf.yard
    pods, (first, second, mute) = walked(yard), yard.nodes
    assert isinstance(yard.client, Deaf)
    yard.client.deaf_to = pods[first]
    message = told(deaf, "log")
    assert f"node {first}: the API server does not get the walker's log from the kubelet" in message
    assert "asked for again until fabric.schedule.sweepTimeout is over" in message
    assert yard.names("fabrep") == []
    yard.ahead += TIME_IS_UP
    _, message = ended(deaf)
    assert f"log of {first}: cannot be read (Unavailable)" in message
    assert [f"{first}→{other}" in message for other in (second, mute)] == [True, True]


CUT: dict[str, Callable[[str], str]] = {
    "in the middle of its last line": lambda text: text[: text.rindex("\n") - 40],
    "before its last line began": lambda text: text[: text.rstrip("\n").rindex("\n") + 1],
    "at its beginning, as a kubelet that rotates does": lambda text: text[text.index("\n") + 1 :],
}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
def test_a_log_that_was_cut_leaves_the_path_without_a_number_and_names_it(
    bench: Bench, cut: Callable[[str], str]
) -> None:
    yard = bench.yard
    pods, first = walked(yard), yard.nodes[0]
    whole = [f"{test.pair.source}→{test.pair.destination}" for test in schedule_of(yard, RUN).tests()]
    yard.client.prints[pods[first]] = cut(yard.client.prints[pods[first]])
    _, message = ended(bench)
    lost = [path for path in whole if path in message]
    assert len(lost) == 1
    (evidence,) = yard.observe()[1].evidence
    assert [str(s.path) for s in evidence.samples if s.bytes_per_second is not None] == [
        p for p in whole if p not in lost
    ]
