"""The same table before a real API server, and what only a server can show: defaults, columns, names, limits."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings

from kvgate.api.objects import InferencePool, read_approval, read_benchmark, read_pool, read_report
from kvgate.api.validate import faults, validate
from tests.api.cases import ACCEPTED, REFUSED, Accepted, Refused
from tests.api.documents import Document, approval, benchmark, full_pool, index, pool, shard
from tests.api.near_misses import near_misses
from tests.api.server import Server
from tests.cluster.access import Access

pytestmark = pytest.mark.api

ROOT = Path(__file__).parents[2]
CRDS = sorted((ROOT / "crds").glob("*.yaml"))
GAIE = ROOT / "tests" / "data" / "gaie-crd.yaml"


@pytest.fixture(scope="module")
def server(control_plane: Access) -> Server:
    """With GAIE's CRD first, so that ours come second to every short name and plural."""
    control_plane.load_crds([GAIE])
    control_plane.load_crds(CRDS)
    control_plane.kubectl("api-resources", check=True)  # renews kubectl's cache, which may be older than GAIE's CRD
    return Server(control_plane.api_client())


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.sentence)
def test_the_server_refuses_a_bad_document_with_the_same_words(server: Server, case: Refused) -> None:
    complaints = server.judge(case.document, case.old)
    assert any(c.path == case.path and case.says in c.message for c in complaints), complaints


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.sentence)
def test_whatever_is_said_offline_the_server_says_of_the_same_field(server: Server, case: Refused) -> None:
    online = server.judge(case.document, case.old)
    for complaint in validate(case.document, case.old):
        said, _, _ours = complaint.message.partition("; ")
        assert any(c.path == complaint.path and said in c.message for c in online), (complaint, online)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.sentence)
def test_the_server_accepts_a_good_document(server: Server, case: Accepted) -> None:
    assert server.judge(case.document, case.old) == ()


@given(near_misses())
@settings(max_examples=300, deadline=None)
def test_the_server_and_lint_agree_on_documents_that_are_nearly_right(server: Server, document: Document) -> None:
    offline, online = validate(document), server.judge(document)
    assert bool(offline) == bool(online), (offline, online)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pool(), id="the least pool"),
        pytest.param(pool(criteria={"routing": {}, "disaggregation": {}, "kvStorage": {}}), id="empty criteria"),
        pytest.param(pool(mode=None, fabric={"probe": None}, rollback={"onDelete": {}}), id="nulls and empty parts"),
        pytest.param(full_pool(), id="a pool that says every field"),
        pytest.param(shard(), id="a shard"),
        pytest.param(index(), id="an index"),
        pytest.param(benchmark(), id="an A/B"),
        pytest.param(approval(), id="an approval"),
    ],
)
def test_defaults_of_the_server_are_those_of_the_models(server: Server, document: Document) -> None:
    with server.stored(document) as kept:
        offline, complaints = faults(document)
        assert complaints == ()
        assert isinstance(offline, dict)
        assert kept["spec"] == offline["spec"]
        assert kept.get("status") == offline.get("status")
        read = {
            "InferencePool": read_pool,
            "FabricReport": read_report,
            "BenchmarkReport": read_benchmark,
            "GateApproval": read_approval,
        }[document["kind"]]
        online = read(kept)
        assert not isinstance(online, tuple)
        written = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
        alone = read(written | {"metadata": kept["metadata"], "spec": document["spec"]})
        assert online == alone


def test_a_new_pool_is_not_read_as_current(server: Server) -> None:
    with server.stored(pool()) as kept:
        assert kept["status"]["observedGeneration"] == -1
        assert kept["metadata"]["generation"] == 1


def test_a_status_that_the_models_write_is_kept_whole(server: Server) -> None:
    with server.stored(pool()) as kept:
        found = read_pool(kept | {"status": FULL_STATUS})
        assert isinstance(found, InferencePool)
        status = found.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        written = server.write_status(kept | {"status": status})
        assert written["status"] == status
        again = read_pool(written)
        assert isinstance(again, InferencePool)
        assert again.status == found.status


def test_the_worst_path_and_the_conditions_stand_in_the_columns(server: Server, control_plane: Access) -> None:
    with server.stored(full_pool()) as kept:
        server.write_status(kept | {"status": FULL_STATUS})
        name = kept["metadata"]["name"]
        header, row = control_plane.kubectl("get", "kvpool", name, check=True).stdout.splitlines()
    assert header.split() == ["NAME", "MODE", "ROUTING", "SPLIT", "WORST", "PATH", "READY", "REASON", "AGE"]
    assert row.split()[:-1] == [name, "Enforce", "True", "False", "109051904", "True", "HoldingForApproval"]


@pytest.mark.parametrize(
    ("word", "plural"),
    [
        ("kvpool", "inferencepools.kvgate.dev"),
        ("inferencepools.kvgate.dev", "inferencepools.kvgate.dev"),
        ("infpool", "inferencepools.inference.networking.k8s.io"),
        ("inferencepools.inference.networking.k8s.io", "inferencepools.inference.networking.k8s.io"),
        ("fabrep", "fabricreports.kvgate.dev"),
        ("benchrep", "benchmarkreports.kvgate.dev"),
        ("gapp", "gateapprovals.kvgate.dev"),
    ],
)
@pytest.mark.usefixtures("server")
def test_each_word_names_one_kind_beside_the_other_inference_pool(
    control_plane: Access, word: str, plural: str
) -> None:
    found = control_plane.kubectl("get", "--raw", f"/apis/{plural.partition('.')[2]}", check=True)
    assert json.loads(found.stdout)["name"] == plural.partition(".")[2]
    explained = control_plane.kubectl("explain", word, check=True).stdout
    assert explained.splitlines()[0].split()[-1] == plural.partition(".")[2]


def test_both_inference_pools_live_side_by_side(server: Server, control_plane: Access) -> None:
    theirs = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": 8000}]},
    }
    control_plane.apply(theirs)
    with server.stored(pool()) as ours:
        for word, name in (("kvpool", ours["metadata"]["name"]), ("infpool", "theirs")):
            listed = control_plane.get(word, "-n", "default")["items"]
            assert name in [item["metadata"]["name"] for item in listed]
            assert len({item["apiVersion"] for item in listed}) == 1


@pytest.mark.parametrize(
    ("category", "kinds"),
    [
        ("kvgate", {"InferencePool", "FabricReport", "BenchmarkReport", "GateApproval"}),
        ("inference", {"InferencePool"}),
    ],
)
def test_a_category_lists_its_kinds(server: Server, control_plane: Access, category: str, kinds: set[str]) -> None:
    with server.stored(pool()), server.stored(shard()), server.stored(benchmark()), server.stored(approval()):
        listed = control_plane.get(category, "-n", "default")["items"]
    assert {item["kind"] for item in listed if item["apiVersion"] == "kvgate.dev/v1alpha1"} == kinds


def test_a_pool_of_1_mib_is_refused(server: Server) -> None:
    complaints = server.judge(pool(**{"model.name": "x" * (1 << 20)}))
    assert [c.path for c in complaints if "may not be more than 253" in c.message] == ["spec.model.name"]


def test_annotations_of_256_kib_are_refused_as_offline(server: Server) -> None:
    document = pool() | {"metadata": {"name": "big", "annotations": {"note": "x" * 262_144}}}
    for complaint in (server.judge(document)[0], *validate(document)):
        assert complaint.path == "metadata.annotations"
        assert "may not be more than 262144 bytes" in complaint.message


@pytest.mark.usefixtures("server")
def test_kubectl_itself_refuses_the_unknown_field_and_the_missing_unit(control_plane: Access) -> None:
    text = yaml.safe_dump(pool(**{"criteria.disaggregation.minThroughput": "10"}))
    done = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=text)
    assert "must be a positive number with its unit" in done.stderr
    done = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pool(foo=1)))
    assert 'unknown field "spec.foo"' in done.stderr


FULL_STATUS: Document = {
    "observedGeneration": 3,
    "claimed": True,
    "permitted": ["Routing"],
    "capabilities": [
        {
            "name": "Disaggregation",
            "outcome": "Pass",
            "planHash": "v1:sha256:" + "0a" * 32,
            "proposedAt": "2026-11-30T08:00:00Z",
            "epoch": 1,
            "enabled": False,
            "heldBy": "Approval",
            "approval": {"state": "Missing", "name": "", "approver": ""},
        }
    ],
    "fabric": {
        "link": {
            "tool": "iperf3",
            "paths": 2,
            "measured": 2,
            "worst": {"from": "n1", "to": "n2", "bytesPerSecond": 109_051_904},
            "judgedBytesPerSecond": 109_051_904,
            "medianBytesPerSecond": 120_000_000,
        },
        "endpoint": {"tool": "ucx_get", "paths": 2, "measured": 0},
        "boundBy": "link",
        "measuredAt": "2026-11-30T08:00:00Z",
        "expiresAt": "2026-12-02T08:00:00Z",
        "report": "qwen3-r1",
    },
    "kvCache": {"bytesPerToken": 114_688, "blockTokens": 16, "source": "fromWorkers", "derivation": "28 layers"},
    "estimates": [
        {
            "promptTokens": 3216,
            "kvBytes": 368_836_608,
            "addedTTFTMilliseconds": 3382,
            "queueMilliseconds": 10,
            "budgetMilliseconds": 200,
            "boundBy": "link",
            "outcome": "Fail",
        }
    ],
    "longestPromptWithinBudget": 176,
    "routing": {
        "observed": "kv",
        "improvementPercent": "27.5",
        "lowPercent": "21.0",
        "highPercent": "33.1",
        "cachedTokenRatio": "0.41",
        "benchmark": "qwen3-b1",
        "events": {"expectedWorkers": 2, "publishingWorkers": 2, "applied": True, "source": "worker metadata"},
        "observedRequestsPerSecond": "3.2",
    },
    "target": {
        "uid": "u1",
        "routerMode": "kv",
        "split": "off",
        "baseline": [
            {"component": "Frontend", "env": "DYN_ROUTER_MODE", "present": True, "value": "rr", "owner": "argo"}
        ],
    },
    "lastHandledMeasureAt": "2026-11-30T07:00:00Z",
    "operation": {
        "id": "o1",
        "capability": "Routing",
        "planHash": "v1:sha256:" + "0a" * 32,
        "step": "DYN_ROUTER_MODE",
        "startedAt": "2026-11-30T08:00:00Z",
    },
    "history": [
        {
            "time": "2026-11-30T08:00:00Z",
            "action": "Enabled",
            "capability": "Routing",
            "reason": "Pass",
            "planHash": "v1:sha256:" + "0a" * 32,
        }
    ],
    "conditions": [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "m",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-11-30T08:00:00Z",
        }
        for kind, status, reason in (
            ("Ready", "True", "HoldingForApproval"),
            ("RoutingEnabled", "True", "Observed"),
            ("DisaggregationEnabled", "False", "Observed"),
        )
    ],
}
