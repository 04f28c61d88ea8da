"""Nothing that is secret leaves the deployment or the client: not into status, Events, evidence, messages or logs."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from kvgate.edge.cluster.client import POOLS, Client
from kvgate.edge.errors import EdgeError
from tests.edge.cluster.test_bad_input import Bench, approve, measured
from tests.edge.cluster.yard import Yard, configuration

pytestmark = pytest.mark.api

SECRET = "hunter2-is-nobodys-password"


def with_secrets(yard: Yard) -> dict[str, Any]:
    """The sample deployment, with a secret wherever a deployer has been seen to write one."""
    found = yard.manifest(without="DYN_VLLM_DISAGGREGATION_MODE")
    found["metadata"].setdefault("annotations", {})["example.com/token"] = SECRET
    for part in found["spec"]["components"]:
        container = part["podTemplate"]["spec"]["containers"][0]
        names = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_PASSWORD")
        container["env"] = [*container.get("env", []), *({"name": name, "value": SECRET} for name in names)]
        if "args" in container:
            container["args"] += ["--api-key", SECRET]
    return found


def test_a_deployments_secrets_reach_no_status_event_evidence_or_log(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    yard.kubectl("delete", "dgd.v1beta1.nvidia.com", "qwen3")
    yard.kubectl("create", "-f", "-", document=with_secrets(yard))
    bench = Bench(yard)
    measured(yard)
    approve(yard, bench.serve())
    bench.serve(turns=4)

    kinds = ("kvpool", "events", "fabrep", "jobs", "configmaps")
    told = {kind: json.dumps([_ours(item) for item in yard.get(kind)["items"]]) for kind in kinds}
    told["log"] = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "permitted" in told["kvpool"]
    assert len(told["log"]) > 200
    assert [kind for kind, text in told.items() if SECRET in text] == []


def _ours(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "managedFields"}


def test_a_bearer_token_stands_in_no_error(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    mine = configuration(yard.access)
    mine.cert_file = mine.key_file = None
    mine.api_key = {"authorization": SECRET}
    mine.api_key_prefix = {"authorization": "Bearer"}
    with pytest.raises(EdgeError) as refused:
        Client(mine).get(POOLS, yard.namespace, "qwen3")
    assert SECRET not in f"{refused.value!s}{refused.value!r}{caplog.text}"
