"""The event probe's manifests and plan, which the probe itself reads, and its log: what of it counts, and what not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from kvgate.core.digests import digest
from kvgate.core.events_seen import EventsSeen, Heard, Hears
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.probe.events_job import (
    CONTAINER,
    PLAN_DIGEST,
    PLAN_KEY,
    listen_config_map,
    listen_job,
    listen_job_name,
    plan_listening,
)
from kvgate.probe.events_results import MOST_LOG_CHARACTERS, read_listening
from kvgate.probe.jobs import Owner
from kvgate_probe.kvevents_wire import Endpoint, Plan, decode_plan, encode_plan
from tests.core.event_looks import ANNOUNCED, BLOCK, seen, with_advert, worker

OWNER = Owner("qwen3", "serving", "7b1c7c3e-6d1c-4a7e-9b43-0f5a6f1f2a10")
PLAN = Plan("r1", 30.0, (Endpoint("w1", "tcp://10.0.0.1:5557"), Endpoint("w2", "tcp://[fd00::2]:5557")), 16)
WRITTEN = encode_plan(PLAN)
MASTER = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def job() -> dict[str, Any]:
    return dict(listen_job(OWNER, "r1", WRITTEN, "kvgate-probe:1", MASTER))


@pytest.mark.parametrize("manifest", [job(), dict(listen_config_map(OWNER, PLAN))], ids=["Job", "ConfigMap"])
def test_the_manifests_are_what_kubernetes_takes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_the_pod_is_restricted_without_a_token_and_ends_by_itself() -> None:
    spec = job()["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["automountServiceAccountToken"], pod["restartPolicy"], spec["backoffLimit"]) == (False, "Never", 0)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostNetwork" not in pod
    assert pod["tolerations"] == MASTER
    assert spec["activeDeadlineSeconds"] == 270
    assert container["name"] == CONTAINER


def test_the_job_is_owned_by_the_pool_and_names_the_plan_that_it_was_given() -> None:
    metadata = job()["metadata"]
    assert metadata["name"] == listen_job_name(OWNER, "r1")
    assert [(one["uid"], one["controller"]) for one in metadata["ownerReferences"]] == [(OWNER.uid, True)]
    assert metadata["annotations"] == {PLAN_DIGEST: digest(WRITTEN)}
    data: Any = listen_config_map(OWNER, PLAN)
    assert data["data"][PLAN_KEY] == WRITTEN


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, block_tokens=None)], ids=["a block size", "any block size"])
def test_the_probe_reads_the_plan_as_it_is_written(plan: Plan) -> None:
    assert decode_plan(encode_plan(plan)) == plan


def planned(*addresses: str, ip: str = "10.0.0.1", block: int | None = BLOCK) -> Plan:
    told = with_advert("w1", replace(ANNOUNCED, addresses=addresses, block_tokens=block))
    pods = (WorkerPod("w1", "u1", "VllmWorker", PodRole.WORKER, address=ip),)
    return plan_listening("r1", seen(told, frontends=()), pods)


@pytest.mark.parametrize(
    ("address", "ip", "asked"),
    [
        pytest.param("tcp://10.0.0.1:5557", "10.0.0.1", True, id="at the pod's own address"),
        pytest.param("tcp://[fd00::1]:5557", "fd00:0::1", True, id="at its own address, IPv6"),
        pytest.param("tcp://10.0.0.2:5557", "10.0.0.1", False, id="at somebody else's"),
        pytest.param("tcp://169.254.169.254:80", "10.0.0.1", False, id="at the cloud's metadata"),
        pytest.param("tcp://kubernetes.default:443", "10.0.0.1", False, id="at a name"),
        pytest.param("ipc:///tmp/events", "10.0.0.1", False, id="at a file"),
        pytest.param("tcp://10.0.0.1:70000", "10.0.0.1", False, id="at no port"),
        pytest.param("tcp://10.0.0.1:5557", "", False, id="of a pod without an address"),
    ],
)
def test_only_what_a_worker_announces_at_its_own_address_is_listened_to(address: str, ip: str, *, asked: bool) -> None:
    assert bool(planned(address, ip=ip).endpoints) is asked


def test_a_block_size_is_wanted_only_where_all_name_one() -> None:
    both = seen(worker("w1"), with_advert("w2", replace(ANNOUNCED, block_tokens=64)), frontends=())
    assert planned("tcp://10.0.0.1:1").block_tokens == BLOCK
    assert plan_listening("r1", both, ()).block_tokens is None
    routed: EventsSeen = seen(with_advert("w1", replace(ANNOUNCED, block_tokens=64)))
    assert plan_listening("r1", routed, ()).block_tokens is None, "the router names another"


def line(worker_: str = "w1", address: str = "tcp://10.0.0.1:5557", **changes: object) -> str:
    told = {"runID": "r1", "worker": worker_, "address": address, "state": "Flows", "blockTokens": [16], "message": "x"}
    return json.dumps(told | changes)


FIRST = Heard("w1", "tcp://10.0.0.1:5557", Hears.FLOWS, (16,))
SECOND = line("w2", "tcp://[fd00::2]:5557", state="PublishesGarbage", blockTokens=[])


def test_each_endpoint_of_the_plan_has_one_line() -> None:
    read = read_listening(f"warming up\n{line()}\n{SECOND}\n", "r1", PLAN.endpoints)
    assert read.entries == (FIRST, Heard("w2", "tcp://[fd00::2]:5557", Hears.GARBAGE))
    assert read.trouble == ""


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(SECOND, id="a line is missing"),
        pytest.param(f"{line()}\n{line(state='PublishesGarbage')}\n{SECOND}", id="there are two of one"),
        pytest.param(f"{line(runID='r0')}\n{SECOND}", id="a line of another run"),
        pytest.param(f"{line(address='tcp://10.0.0.9:1')}\n{SECOND}", id="a line of an endpoint nobody planned"),
        pytest.param(f"{line(state='Fine')}\n{SECOND}", id="a word that the probe does not know"),
        pytest.param(f"{line()[:-1]}\n{SECOND}", id="a line that broke off"),
        pytest.param(f"{line(worker_='w3')}\n{SECOND}", id="a line of another worker"),
        pytest.param(f"{line(blockTokens='16')}\n{SECOND}", id="sizes that are no list"),
    ],
)
def test_a_line_that_does_not_count_leaves_its_endpoint_untold(log: str) -> None:
    read = read_listening(log, "r1", PLAN.endpoints)
    assert [entry.pod for entry in read.entries] == ["w2"]
    assert read.trouble == "of 1 of 2 endpoints it says nothing"


def test_odd_sizes_are_passed_over_and_a_log_without_end_is_not_read() -> None:
    odd = read_listening(line(blockTokens=[16, True, -1, "64", None]), "r1", PLAN.endpoints[:1])
    assert odd.entries == (FIRST,)
    endless = read_listening("x" * (MOST_LOG_CHARACTERS + 1), "r1", PLAN.endpoints)
    assert (endless.entries, "at most" in endless.trouble) == ((), True)
