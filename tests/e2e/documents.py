"""The objects of the e2e tests: the sample deployment and pool, with what a test changes about them."""

from __future__ import annotations

import copy
import secrets
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import yaml

from kvgate.api.status import PoolStatus
from kvgate.api.wire import API_VERSION
from kvgate.api.words import Capability

Document = dict[str, Any]
NAMESPACE = "serving"
MODE = "DYN_VLLM_DISAGGREGATION_MODE"
TEST_SECONDS = 2


def sample(name: str) -> Document:
    """A file of the samples that ship."""
    text = (resources.files("kvgate.app") / "samples" / name).read_text(encoding="utf-8")
    document: Document = yaml.safe_load(text)
    return document


def deployment(name: str, *, names_mode: bool = False) -> Document:
    """The sample deployment, whose pods no node selector binds: a test's pool says which nodes it means.

    Unless `names_mode`, its manifest leaves the workers' mode to kvgate, as the message on a conflict advises.
    """
    document = sample("deployment.yaml")
    document["metadata"] |= {"name": name, "namespace": NAMESPACE}
    for part in document["spec"]["components"]:
        pod = part["podTemplate"]["spec"]
        pod.pop("nodeSelector", None)
        for container in pod["containers"]:
            container["env"] = [e for e in container.get("env", ()) if names_mode or e["name"] != MODE]
    return document


def values(document: Document) -> dict[tuple[str, str], str]:
    """The values of a deployment's variables, by component and name."""
    return {
        (part["name"], entry["name"]): entry.get("value", "")
        for part in document["spec"]["components"]
        for entry in part["podTemplate"]["spec"]["containers"][0].get("env", ())
    }


def without_modes(document: Document) -> Document:
    """The deployment's spec without the workers' modes."""
    spec: Document = copy.deepcopy(document["spec"])
    for part in spec["components"]:
        for container in part["podTemplate"]["spec"]["containers"]:
            container["env"] = [entry for entry in container.get("env", ()) if entry["name"] != MODE]
    return spec


def pool(
    name: str, sides: tuple[str, str], budget: str, requests_per_second: str = "0.2", **fabric: object
) -> Document:
    """The sample pool over the path from one node to another, by their hostnames; measured for TEST_SECONDS.

    What others hold it leaves to them, as is the default: the deployment here leaves the mode to kvgate.
    """
    document = sample("pool.yaml")
    document["metadata"] |= {"name": name, "namespace": NAMESPACE}
    spec = document["spec"]
    spec.pop("enforcement")
    spec["targetRef"]["name"] = name
    prefill, decode = ({"matchLabels": {"kubernetes.io/hostname": node}} for node in sides)
    spec["workload"]["peakRequestsPerSecond"] = requests_per_second
    spec["fabric"] |= {"prefillNodes": prefill, "decodeNodes": decode, **fabric}
    spec["fabric"]["probe"]["link"]["duration"] = f"{TEST_SECONDS}s"
    spec["criteria"]["disaggregation"]["ttftBudget"] = budget
    return document


def approval(name: str, uid: str, status: PoolStatus, accepted: tuple[str, ...]) -> Document:
    """What the approver writes of the plan that the status shows."""
    split = next(entry for entry in status.capabilities if entry.name is Capability.DISAGGREGATION)
    assert status.fabric is not None
    return {
        "apiVersion": API_VERSION,
        "kind": "GateApproval",
        "metadata": {"name": f"{name}-{secrets.token_hex(2)}", "namespace": NAMESPACE},
        "spec": {
            "poolRef": {"name": name, "uid": uid},
            "capability": "Disaggregation",
            "planHash": split.plan_hash,
            "approver": "jane@example.com",
            "acceptInconclusive": list(accepted),
            "evidence": {"report": status.fabric.report},
            "reason": "the tests' approver looked at the numbers",
            "expiresAt": (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    }
