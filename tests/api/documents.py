"""Documents that the tests of this room start from: the least that is accepted, and one that says every field."""

import copy
from typing import Any

Document = dict[str, Any]
ABSENT = object()

HASH = "v1:sha256:" + "0a" * 32
DIGEST = "0b" * 32
POOL_UID = "6d1f4a54-6c1c-4a09-9d15-6f6ea1c9b3aa"


def pool(**changes: Any) -> Document:
    """The least InferencePool, with parts of its spec replaced: `pool(**{"fabric.probe.port": 80})`."""
    spec = {
        "targetRef": {"name": "qwen3"},
        "model": {"name": "Qwen/Qwen3-0.6B"},
        "workload": {"prompts": [{"tokens": 3000}]},
    }
    return _object("InferencePool", spec, changes)


def full_pool(**changes: Any) -> Document:
    """An InferencePool that says every field of its spec but the other sources of KV bytes."""
    return _object("InferencePool", copy.deepcopy(FULL_POOL_SPEC), changes)


def shard(**changes: Any) -> Document:
    spec = {
        "runID": "r1",
        "poolRef": {"name": "qwen3", "uid": POOL_UID},
        "index": 0,
        "encoding": "gzip+base64",
        "data": "H4sI",
        "sha256": DIGEST,
    }
    return _object("FabricReport", spec, changes)


def index(**changes: Any) -> Document:
    spec = {
        "runID": "r1",
        "poolRef": {"name": "qwen3", "uid": POOL_UID},
        "shards": [{"name": "qwen3-r1-0", "sha256": DIGEST}],
        "measuredAt": "2026-11-30T08:00:00Z",
        "paths": 2,
        "measured": 2,
        "fabricClass": "25GbE",
        "notes": "two nodes",
    }
    return _object("FabricReport", spec, changes)


def benchmark(**changes: Any) -> Document:
    """The index of an A/B, with every field."""
    arm = {
        "requests": 832,
        "meanMilliseconds": 142,
        "p50Milliseconds": 140,
        "p90Milliseconds": 200,
        "p99Milliseconds": 260,
        "interTokenMilliseconds": "9.5",
        "cachedTokenRatio": "0.896",
        "errors": [{"fault": "Timeout", "requests": 1}],
        "workers": [{"worker": "12209161835820804734", "requests": 415}],
        "tokensPerJoule": "3.5",
    }
    spec = {
        "runID": "ab1",
        "poolRef": {"name": "qwen3", "uid": POOL_UID},
        "shards": [{"name": "qwen3-ab1-0", "sha256": DIGEST}],
        "measuredAt": "2026-11-30T08:00:00Z",
        "workload": "Trace",
        "blocks": 8,
        "improvementPercent": "-3.5",
        "aborted": "a worker left",
        "arms": [{"arm": "RoundRobin", **arm}, {"arm": "KV", **arm}],
        "families": [
            {"family": 3, "requests": 40, "cachedTokenRatio": "0.9", "cachedTokenRatioRoundRobin": "0.45"},
        ],
        "seed": 7,
        "ranOn": "qwen3-staging",
        "requestsPerSecond": "4",
        "liveRequestsPerSecond": "1.5",
        "versions": ["vllm-runtime:1.6.1"],
    }
    return _object("BenchmarkReport", spec, changes)


def benchmark_shard(**changes: Any) -> Document:
    return shard(**changes) | {"kind": "BenchmarkReport"}


def approval(**changes: Any) -> Document:
    spec = {
        "poolRef": {"name": "qwen3", "uid": POOL_UID},
        "capability": "Disaggregation",
        "planHash": HASH,
        "approver": "jane@example.com",
        "attestations": ["EncryptionInTransit"],
        "acceptInconclusive": ["LoadUnknown"],
        "evidence": {"report": "qwen3-r1", "judgedBytesPerSecond": 1_250_000_000},
        "reason": "measured twice",
        "expiresAt": "2026-12-31T00:00:00Z",
    }
    return _object("GateApproval", spec, changes)


FULL_POOL_SPEC: Document = {
    "mode": "Enforce",
    "suspend": False,
    "targetRef": {"name": "qwen3"},
    "gatewayPoolRef": {"name": "qwen3"},
    "enforcement": {"onConflict": "TakeOver", "adopt": True},
    "model": {
        "name": "Qwen/Qwen3-0.6B",
        "kvCache": {
            "configFrom": {
                "configMapKeyRef": {"name": "qwen3-config", "key": "config.json"},
                "quantConfigMapKeyRef": {"name": "qwen3-config", "key": "hf_quant_config.json"},
            },
            "dtype": "bfloat16",
            "blockTokens": 16,
            "tensorParallel": {"prefill": 2, "decode": 1},
            "speculativeLayers": 1,
            "windowCap": False,
        },
    },
    "workload": {
        "fixedOverhead": "5ms",
        "prompts": [
            {"tokens": 1500, "share": "50%"},
            {"tokens": 3000, "share": "40%"},
            {"tokens": 8000, "share": "10%"},
        ],
        "peakRequestsPerSecond": "4",
        "skew": "1.25",
    },
    "fabric": {
        "prefillNodes": {"matchLabels": {"pool": "prefill"}},
        "decodeNodes": {
            "matchLabels": {"pool": "decode"},
            "matchExpressions": [
                {"key": "gpu", "operator": "In", "values": ["h100"]},
                {"key": "spot", "operator": "DoesNotExist"},
            ],
        },
        "probe": {
            "link": {"tool": "ib_read_bw", "streams": 4, "duration": "10s"},
            "endpoint": {"tool": "nixl", "descriptorBytes": 32768, "memory": "gpu"},
            "phases": ["Isolated"],
            "hostNetwork": True,
            "port": 5201,
            "loadDerating": "0.8",
        },
        "schedule": {
            "interval": "24h",
            "jitter": "10m",
            "maxPaths": 4096,
            "topologyKeys": ["example.com/rack", "topology.kubernetes.io/zone"],
            "maxConcurrentPaths": 64,
            "perPlace": [{"key": "example.com/rack", "maxPaths": 4}],
            "whileBusy": {"above": "60%", "maxConcurrentPaths": 2},
            "onlyInChangeWindows": True,
            "sweepTimeout": "3h",
        },
        "evidenceTTL": "48h",
        "reports": {"keep": 2, "retainOnDelete": True},
    },
    "criteria": {
        "routing": {
            "minTTFTImprovement": "20%",
            "maxErrorRateIncrease": "0.5%",
            "kvEvents": "Ignored",
            "benchmark": {
                "targetRef": {"name": "qwen3-staging"},
                "allowLive": True,
                "requestsPerSecond": 4,
                "blocks": 8,
                "maxLiveUtilization": "50%",
                "trace": {"configMapKeyRef": {"name": "qwen3-trace", "key": "trace.jsonl.gz"}},
            },
            "approval": "NotRequired",
            "attestations": ["Reviewed"],
        },
        "disaggregation": {
            "minThroughput": "10GB/s",
            "ttftBudget": "200ms",
            "slowestPercentOfPaths": 10,
            "maxUtilization": "70%",
            "minCoverage": "100%",
            "approval": "Required",
            "attestations": ["EncryptionInTransit", "TenantIsolation", "BlastRadiusReviewed"],
        },
        "kvStorage": {
            "approval": "Required",
            "attestations": ["DataResidency", "RetentionAndEviction"],
            "reloadVersusRecompute": {"storageThroughput": "2GB/s", "prefillTokensPerSecond": 20000},
        },
    },
    "monitor": {
        "interval": "15s",
        "prometheusRef": {"name": "default"},
        "maxErrorRateIncrease": "1%",
        "minCacheHitRatio": "20%",
        "modelNotReadyFor": "60s",
        "onMetricsLost": {"after": "10m", "action": "Revert"},
    },
    "changeWindows": [{"schedule": "0 2 * * 6", "duration": "4h", "timeZone": "Europe/Berlin"}],
    "rollback": {
        "onKVEventsLost": "Hold",
        "onEvidenceLost": "Revert",
        "onApprovalLost": "Revert",
        "onDelete": {"routing": "Leave", "disaggregation": "Revert"},
        "cooldown": "1h",
    },
}


def _object(kind: str, spec: Document, changes: dict[str, Any]) -> Document:
    for path, value in changes.items():
        _replace(spec, path.split("."), value)
    return {"apiVersion": "kvgate.dev/v1alpha1", "kind": kind, "metadata": {"name": "qwen3"}, "spec": spec}


def _replace(node: Document, path: list[str], value: Any) -> None:
    for step in path[:-1]:
        node = node.setdefault(step, {})
    if value is ABSENT:
        del node[path[-1]]
    else:
        node[path[-1]] = copy.deepcopy(value)
