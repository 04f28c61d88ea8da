"""The admission policies on a real API server: who may write what, and what no hand may switch on."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.api.documents import benchmark, index
from tests.cluster.access import Document
from tests.cluster.waiting import eventually
from tests.install import gated
from tests.install.gated import FREE, GATED, HANDS, OFF, ON, PERMITTED, deployment, pool
from tests.install.plane import OPERATOR, Plane
from tests.install.policed import STATES, in_gated

pytestmark = pytest.mark.api
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
NAMESPACES = "system:serviceaccount:kube-system:namespace-controller"


@pytest.mark.parametrize("state", ["off-held", "off-permitted", "on-held", "on-permitted"])
@pytest.mark.parametrize("hand", HANDS)
def test_only_switching_on_what_is_not_permitted_is_denied(policed: Plane, hand: str, state: str) -> None:
    modes, _, _ = STATES[state]
    answer = policed.replace(HANDS[hand](deployment(state, modes)))

    assert answer.done == ((hand, state) != ("enabling", "off-held")), answer.says


def test_the_denial_says_what_which_pool_and_where_to_look(policed: Plane) -> None:
    answer = policed.replace(deployment("off-held", ON))

    assert "DecodeWorker, PrefillWorker a half of a split" in answer.says
    assert "kvpool off-held does not permit Disaggregation" in answer.says
    assert "kubectl get kvpool off-held" in answer.says


@pytest.mark.parametrize(
    ("state", "passes"),
    [
        pytest.param("half-held", False, id="half of it is on, and the other half is added"),
        pytest.param("unclaimed", True, id="the pool does not claim the deployment"),
        pytest.param("behind", False, id="what was permitted was permitted to an older spec of the pool"),
        pytest.param("suspended", True, id="the pool is suspended"),
        pytest.param("observing", True, id="the pool only observes"),
        pytest.param("ungated", True, id="the pool gates no split"),
    ],
)
def test_it_takes_a_pool_that_gates_the_split_now(policed: Plane, state: str, passes: bool) -> None:
    assert policed.replace(deployment(state, ON)).done == passes


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        pytest.param(gated.with_flag("--disaggregation-mode", "prefill"), False, id="a flag in two words"),
        pytest.param(gated.with_flag("--disaggregation-mode=decode"), False, id="a flag in one word"),
        pytest.param(gated.with_flag("--is-prefill-worker"), False, id="the older flag"),
        pytest.param(gated.with_flag("--disaggregation-mode", "agg"), True, id="a flag that says aggregated"),
        pytest.param(
            gated.with_env(name=gated.MODE, valueFrom={"configMapKeyRef": {"name": "c", "key": "k"}}),
            False,
            id="a value from elsewhere",
        ),
        pytest.param(gated.with_env(name="DYN_TRTLLM_DISAGGREGATION_MODE", value="prefill"), False, id="TensorRT-LLM"),
        pytest.param(gated.with_env(name="OTHER", value="prefill"), True, id="another variable"),
    ],
)
def test_a_way_round_the_variable_is_seen(policed: Plane, change: Callable[[Document], Document], passes: bool) -> None:
    assert policed.replace(change(deployment("off-held"))).done == passes


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(gated.with_env(name=gated.DISK, value="100"), id="KVBM's disk, which had no room"),
        pytest.param(gated.with_env(name="LMCACHE_REMOTE_URL", value="redis://r:6379"), id="LMCache's remote"),
        pytest.param(
            gated.with_flag("--kv-transfer-config", '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'),
            id="LMCache's connector",
        ),
        pytest.param(
            gated.with_flag("--kv-transfer-config", '{"kv_connector":"MooncakeStoreConnector"}'), id="Mooncake's store"
        ),
        pytest.param(
            gated.with_flag("--kv-transfer-config", '{"kv_connector":"FlexKVConnectorV1"}'), id="FlexKV's connector"
        ),
        pytest.param(gated.with_flag("--enable-lmcache"), id="SGLang's LMCache"),
        pytest.param(gated.with_env(name="DYN_KVBM_USE_OBJECT_OFFLOAD", value="1"), id="KVBM's object store"),
        pytest.param(gated.with_env(name="DYN_KVBM_REMOTE_STORAGE_TYPE", value="disk"), id="KVBM's remote storage"),
    ],
)
def test_external_storage_is_a_capability_of_its_own(policed: Plane, change: Callable[[Document], Document]) -> None:
    answer = policed.replace(change(deployment("storage")))

    assert "kvpool storage does not permit KVStorage" in answer.says
    assert policed.replace(change(deployment("storage-permitted"))).done
    assert policed.replace(change(deployment("off-held"))).done, "no criteria, no gate"


@pytest.mark.parametrize(
    ("name", "value"), [("DYN_KVBM_CPU_CACHE_GB", "100"), ("LMCACHE_LOCAL_DISK", "None"), ("LMCACHE_REMOTE_URL", "")]
)
def test_host_memory_and_what_is_switched_off_are_no_external_storage(policed: Plane, name: str, value: str) -> None:
    assert policed.replace(gated.with_env(name=name, value=value)(deployment("storage"))).done


def test_a_deployment_that_is_being_deleted_may_be_written(policed: Plane) -> None:
    name = "off-held"
    kept = policed.access.get("dgd", name, "-n", GATED)
    policed.replace(gated.finalized(kept), keep=True)
    policed.access.kubectl("delete", "dgd", name, "-n", GATED, "--wait=false", check=True)
    going = policed.access.get("dgd", name, "-n", GATED)
    try:
        assert "deletionTimestamp" in going["metadata"]
        assert policed.replace(gated.with_modes(going, ON)).done
    finally:
        policed.access.kubectl(
            *("patch", "dgd", name, "-n", GATED, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'), check=True
        )
        policed.access.apply(deployment(name))


def test_without_the_label_of_the_namespace_nothing_is_denied(policed: Plane) -> None:
    assert policed.replace(deployment("free", ON, FREE)).done


def test_a_new_deployment_that_is_split_is_let_in_with_a_warning(policed: Plane) -> None:
    policed.access.apply(pool("newcomer"))
    eventually(lambda: "Warning" in policed.create(deployment("newcomer", ON)).says, 20)
    answer = policed.create(deployment("newcomer", ON))

    assert answer.done
    assert "kvpool newcomer does not permit Disaggregation" in answer.says
    assert "Warning" not in policed.create(deployment("newcomer", OFF)).says


@pytest.mark.parametrize(
    ("approver", "user", "passes"),
    [
        pytest.param("jane@example.com", "jane@example.com", True, id="in one's own name"),
        pytest.param("jane@example.com", "joe@example.com", False, id="in another's name"),
        pytest.param("JANE@example.com", "jane@example.com", False, id="in a name that only looks like one's own"),
    ],
)
def test_an_approval_is_written_in_ones_own_name(policed: Plane, approver: str, user: str, passes: bool) -> None:
    may = ("create", "rolebinding", user.partition("@")[0], "--clusterrole=kvgate-approver", f"--user={user}")
    policed.access.kubectl(*may, "-n", GATED)
    eventually(lambda: policed.allowed(user, "create", "gateapprovals.kvgate.dev", GATED), 20)
    answer = policed.create(gated.approval(approver), user)

    assert answer.done == passes, answer.says
    assert passes or f"write {user}" in answer.says


@pytest.mark.parametrize("document", [pytest.param(d, id=d["kind"]) for d in (index(), benchmark())])
@pytest.mark.parametrize(
    ("user", "passes"),
    [
        pytest.param(OPERATOR, True, id="the operator"),
        pytest.param("", False, id="the cluster's administrator"),
        pytest.param(f"system:serviceaccount:{GATED}:kvgate-operator", False, id="a namesake in another namespace"),
    ],
)
def test_evidence_is_written_by_the_operator_alone(policed: Plane, document: Document, user: str, passes: bool) -> None:
    if user and user != OPERATOR:
        argv = ("create", "clusterrolebinding", "namesake", "--clusterrole=cluster-admin", f"--user={user}")
        policed.access.kubectl(*argv)
        eventually(lambda: policed.allowed(user, "create", "fabricreports.kvgate.dev", GATED), 20)
    answer = policed.create(in_gated(document), user)

    assert answer.done == passes, answer.says
    assert passes or f"only the operator ({OPERATOR})" in answer.says


def test_a_status_is_written_by_the_operator_alone_and_a_spec_by_its_author(policed: Plane) -> None:
    kept = policed.access.get("kvpool", "observing", "-n", GATED)
    forged = kept | {"status": PERMITTED.status(1)}

    assert "only the operator" in policed.replace(forged, subresource="status").says
    assert policed.replace(forged, OPERATOR, subresource="status").done
    edited = copy.deepcopy(kept)
    edited["spec"]["suspend"] = True
    assert policed.replace(edited).done


@pytest.mark.parametrize("user", [COLLECTOR, NAMESPACES])
def test_those_who_clean_the_cluster_up_may_touch_evidence(policed: Plane, user: str) -> None:
    report = in_gated(index())
    if not policed.access.get("fabrep", "-n", GATED)["items"]:
        assert policed.create(report, OPERATOR, keep=True).done
    kept = policed.access.get("fabrep", "evidence", "-n", GATED)
    argv = ("create", "clusterrolebinding", user.rpartition(":")[2], "--clusterrole=cluster-admin", f"--user={user}")
    policed.access.kubectl(*argv)
    eventually(lambda: policed.allowed(user, "update", "fabricreports.kvgate.dev", GATED), 20)

    assert policed.replace(gated.finalized(kept), user).done
    assert not policed.replace(gated.finalized(kept)).done


def test_no_policy_has_a_complaint_about_its_own_types(policed: Plane) -> None:
    def checked() -> list[Document]:
        return [p for p in policed.access.get("validatingadmissionpolicy")["items"] if "typeChecking" in p["status"]]

    eventually(lambda: len(checked()) == 5, 30)
    warnings = {p["metadata"]["name"]: p["status"]["typeChecking"].get("expressionWarnings", []) for p in checked()}
    assert {name: said for name, said in warnings.items() if said} == {}
