"""The manifests of a sweep: what each pod may and may not, where it stands, and how long it lives."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest

from kvgate.api.words import Phase
from kvgate.core.digests import digest
from kvgate.core.shoes import Ask, Shoes
from kvgate.probe.jobs import (
    COPIED,
    ELSEWHERE,
    PEERS,
    SCHEDULE_KEY,
    Owner,
    PodStyle,
    Seat,
    deadline_seconds,
    job_name,
    schedule_config_map,
    schedule_name,
    walk_of,
    walker_job,
)
from kvgate.probe.plan import LinkTest
from kvgate_probe.wire import Schedule, decode_schedule
from tests.probe.matrix import plan_sweep

OWNER = Owner("qwen3", "serving", "7b1c7c3e-6d1c-4a7e-9b43-0f5a6f1f2a10")
STYLE = PodStyle("registry.example/kvgate-probe:1")
LONG = "gpu-node-" + "a" * 200 + ".europe-west4.example.com"
VERSION = "1.34"


def schedule(run_id: str = "0123456789") -> Schedule:
    test = LinkTest(duration_seconds=5, streams=4, port=5201)
    return plan_sweep(run_id, OWNER.uid, {"n1"}, {"n2", "n3"}, test, Phase.ISOLATED).schedule


def job(style: PodStyle = STYLE, seat: Seat | None = None, timeout: float = 3600) -> dict[str, Any]:
    return dict(walker_job(OWNER, walk_of(schedule(), timeout), seat or Seat("n2", "n2-host"), style))


def pod(style: PodStyle = STYLE) -> dict[str, Any]:
    found: dict[str, Any] = job(style)["spec"]["template"]["spec"]
    return found


def container(style: PodStyle = STYLE) -> dict[str, Any]:
    (only,) = pod(style)["containers"]
    return dict(only)


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(job(), id="a Job"),
        pytest.param(
            job(PodStyle("i:1", ({"key": "gpu", "operator": "Exists"},), True, ("IPC_LOCK",))), id="of all styles"
        ),
        pytest.param(dict(schedule_config_map(OWNER, schedule())), id="a schedule"),
    ],
)
def test_the_manifest_is_what_kubernetes_describes_of_its_kind(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_the_schedule_is_read_back_by_the_walker_as_it_was_planned_and_cannot_be_edited() -> None:
    manifest: dict[str, Any] = dict(schedule_config_map(OWNER, schedule()))

    assert decode_schedule(manifest["data"][SCHEDULE_KEY]) == schedule()
    assert manifest["immutable"] is True


@pytest.mark.parametrize(
    ("what", "found"),
    [
        pytest.param("no token", pod()["automountServiceAccountToken"] is False, id="no token is mounted"),
        pytest.param("not root", pod()["securityContext"]["runAsNonRoot"] is True, id="it never runs as root"),
        pytest.param("seccomp", pod()["securityContext"]["seccompProfile"], id="seccomp is the runtime's default"),
        pytest.param("links", pod()["enableServiceLinks"] is False, id="no service's address is in its environment"),
        pytest.param(
            "root", container()["securityContext"]["readOnlyRootFilesystem"] is True, id="its root is read-only"
        ),
        pytest.param(
            "priv", container()["securityContext"]["allowPrivilegeEscalation"] is False, id="no privilege grows"
        ),
        pytest.param("host", "hostNetwork" not in pod(), id="it has a network of its own"),
        pytest.param("never", pod()["restartPolicy"] == "Never", id="it is never restarted"),
        pytest.param("place", "nodeName" not in pod(), id="the scheduler places it"),
    ],
)
def test_of_a_walkers_pod(what: str, found: object) -> None:
    assert found, what


WORN = Shoes(
    annotations=(("k8s.v1.cni.cncf.io/networks", "serving/rdma-net"),),
    resources=(Ask("limits", "rdma/ib", "1"), Ask("requests", "rdma/ib", "1")),
    environment=(("UCX_TLS", "rc"),),
    user=1000,
    host_network=True,
)


def test_a_walker_stands_in_the_shoes_of_its_worker_and_its_job_tells_what_it_copied() -> None:
    style = PodStyle("i:1", shoes=WORN)
    made, spec, only = job(style), pod(style), container(style)
    assert made["spec"]["template"]["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "serving/rdma-net"
    assert only["env"] == [{"name": "UCX_TLS", "value": "rc"}]
    assert only["resources"]["limits"]["rdma/ib"] == only["resources"]["requests"]["rdma/ib"] == "1"
    assert (spec["hostNetwork"], spec["securityContext"]["runAsUser"]) == (True, 1000)
    assert json.loads(made["metadata"]["annotations"][COPIED]) == list(WORN.told)
    assert COPIED not in job()["metadata"]["annotations"]
    kubernetes_validate.validate(made, VERSION, strict=True)


def test_the_job_of_a_probe_that_may_not_be_where_its_worker_is_says_so() -> None:
    off = WORN.allowed((), host_network=False)
    assert job(PodStyle("i:1", shoes=off))["metadata"]["annotations"][ELSEWHERE] == "hostNetwork"
    assert ELSEWHERE not in job(PodStyle("i:1", shoes=WORN))["metadata"]["annotations"]
    assert ELSEWHERE not in job(PodStyle("i:1", shoes=off, host_network=True))["metadata"]["annotations"]


def test_all_capabilities_are_dropped_and_only_those_of_the_settings_added() -> None:
    plain, given = container(), container(PodStyle("i:1", capabilities=("IPC_LOCK",)))

    assert plain["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert given["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


def test_scratch_space_is_memory_with_a_limit() -> None:
    (scratch,) = [volume for volume in pod()["volumes"] if volume["name"] == "scratch"]

    assert scratch["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Mi"}


def test_addresses_arrive_by_an_annotation_that_a_volume_shows() -> None:
    (volume,) = [volume for volume in pod()["volumes"] if volume["name"] == "pod"]

    (item,) = volume["downwardAPI"]["items"]
    assert item == {"path": "peers", "fieldRef": {"fieldPath": f"metadata.annotations['{PEERS}']"}}


def test_a_pod_is_pinned_by_the_hostname_label_of_its_node_which_need_not_be_its_name() -> None:
    terms = pod()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert terms == [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2-host"]}]}]
    assert "n2" in container()["args"]


def test_every_container_says_what_it_requests_and_what_it_is_limited_to() -> None:
    resources = container()["resources"]

    assert {kind: set(held) for kind, held in resources.items()} == {
        "requests": {"cpu", "memory"},
        "limits": {"cpu", "memory"},
    }


def test_what_the_target_tolerates_its_probe_tolerates() -> None:
    tolerated = ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)

    assert pod(PodStyle("i:1", tolerated))["tolerations"] == list(tolerated)
    assert "tolerations" not in pod()


def test_a_job_runs_once_ends_and_goes() -> None:
    spec = job()["spec"]

    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (0, 1, 1)
    assert spec["ttlSecondsAfterFinished"] > 3600
    assert spec["activeDeadlineSeconds"] == deadline_seconds(schedule(), 3600)


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        pytest.param(10_000, 180 + 2 * (5 + 20) + 3 * 15, id="start-up, two rounds with overhead, three silences"),
        pytest.param(60, 60, id="the sweep's own timeout at most"),
        pytest.param(0.1, 1, id="a second at least, for Kubernetes takes no less"),
    ],
)
def test_a_walker_may_take(timeout: float, seconds: int) -> None:
    assert deadline_seconds(schedule(), timeout) == seconds


def test_everything_of_a_run_is_owned_by_its_pool_and_found_by_label() -> None:
    documents: list[dict[str, Any]] = [job(), dict(schedule_config_map(OWNER, schedule()))]
    for document in documents:
        (reference,) = document["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["uid"], reference["controller"]) == ("InferencePool", OWNER.uid, True)
        held = document["metadata"]["labels"]
        assert (held["kvgate.dev/pool-uid"], held["kvgate.dev/run"]) == (OWNER.uid, "0123456789")
    assert job()["spec"]["template"]["metadata"]["labels"] == job()["metadata"]["labels"]


def test_a_job_carries_the_digest_of_the_schedule_it_was_made_with() -> None:
    config: dict[str, Any] = dict(schedule_config_map(OWNER, schedule()))

    assert job()["metadata"]["annotations"]["kvgate.dev/schedule-digest"] == digest(config["data"][SCHEDULE_KEY])


@pytest.mark.parametrize(
    ("pool", "run", "node"),
    [
        pytest.param("qwen3", "0123456789", "n1", id="short names"),
        pytest.param("p" * 63, "r" * 10, LONG, id="long names"),
        pytest.param("a.b.c", "0123456789", "10.0.0.1", id="dots"),
        pytest.param("qwen3", "0123456789", "---", id="a node of hyphens alone"),
    ],
)
def test_a_name_is_a_label_that_kubernetes_takes(pool: str, run: str, node: str) -> None:
    name = job_name(Owner(pool, "serving", OWNER.uid), run, node)

    assert len(name) <= 63
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not name.startswith("-")
    assert not name.endswith("-")


def test_a_name_is_the_same_each_time_and_differs_between_nodes_runs_and_pools() -> None:
    other = Owner("qwen3", "serving", "another-uid")
    names = [
        job_name(OWNER, "0123456789", "n1"),
        job_name(OWNER, "0123456789", f"{LONG}1"),
        job_name(OWNER, "0123456789", f"{LONG}2"),
        job_name(OWNER, "9876543210", "n1"),
        job_name(other, "0123456789", "n1"),
        schedule_name(OWNER, "0123456789"),
    ]

    assert len(set(names)) == len(names)
    assert job_name(OWNER, "0123456789", "n1") == names[0]
