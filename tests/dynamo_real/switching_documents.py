"""The objects that people write for a pool of these tests, and the report of an A/B that nobody ran."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from kvgate.api.wire import API_VERSION
from kvgate.core.ab.evidence import BenchmarkEvidence, Subject
from kvgate.core.ab.experiment import Experiment
from kvgate.core.digests import digest
from kvgate.core.target import TargetView
from kvgate.core.world import World
from kvgate.edge.cluster.reading import ReadPool
from kvgate.probe.benchmark_reports import to_benchmark_reports
from kvgate.probe.jobs import labels
from tests.cluster.access import Document
from tests.core import cases
from tests.core.worlds import ROUTING
from tests.dynamo_real.switching_rig import TOKENS
from tests.dynamo_stage import model


def benchmark_documents(pool: ReadPool, world: World, found: Experiment, now: datetime) -> Iterator[Document]:
    """Shards and index of an A/B of the deployment as it stands."""
    target = world.target
    assert isinstance(target, TargetView)
    subject = Subject(target.uid, digest(target.toggles[ROUTING].projection), target.split)
    evidence = BenchmarkEvidence(secrets.token_hex(5), pool.uid, now, subject, found)
    for report in to_benchmark_reports(evidence, pool.name):
        spec = report.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        marks = labels(pool.owner, evidence.run_id)
        metadata = {"name": report.name, "namespace": pool.namespace, "labels": marks}
        yield {"apiVersion": API_VERSION, "kind": "BenchmarkReport", "metadata": metadata, "spec": spec}


def pool_document(name: str, **changes: object) -> Document:
    """A pool that gates the split; `changes` set fields of its spec, dots as double underscores."""
    plain: dict[str, object] = {
        "mode": "Enforce",
        "enforcement": {"onConflict": "TakeOver"},
        "targetRef": {"name": name},
        "model": {"name": model.NAME, "kvCache": {"bytesPerToken": cases.BYTES_PER_TOKEN}},
        "workload": {"prompts": [{"tokens": TOKENS}], "peakRequestsPerSecond": "0.2"},
        "fabric": {
            "prefillNodes": {"matchLabels": {"kubernetes.io/hostname": "s1"}},
            "decodeNodes": {"matchLabels": {"kubernetes.io/hostname": "s2"}},
            "probe": {"endpoint": {"tool": "none"}, "phases": ["Isolated"]},
        },
        "criteria": {"disaggregation": {"ttftBudget": "2s"}},
        "rollback": {"onDelete": {"disaggregation": "Leave"}},
    }
    spec = cases.merged(plain, {dotted.replace("__", "."): value for dotted, value in changes.items()})
    head = {"apiVersion": API_VERSION, "kind": "InferencePool", "metadata": {"name": name, "namespace": "default"}}
    return {**head, "spec": spec}


def approval_document(name: str, uid: str, plan_hash: str) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "GateApproval",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "poolRef": {"name": name, "uid": uid},
            "capability": "Disaggregation",
            "planHash": plan_hash,
            "approver": "jane@example.com",
            "acceptInconclusive": ["ReducedCapacity"],
            "reason": "a test",
            "expiresAt": (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    }
