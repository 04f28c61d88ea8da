"""Saved files to report on: a pool, and the FabricReports of a sweep whose numbers are made up."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kvgate.api.words import Memory, Phase
from kvgate.core.evidence import Evidence, Failure, FailureKind, Layer, NodeIdentity, Sample
from kvgate.core.evidence import Path as Way
from kvgate.probe.reports import to_reports

UID = "1a9a4f0a-0f3e-5b6e-8a54-3f0f6a1c2d77"
RUN = "a1b2c3d4e5"
RACK = "topology.kubernetes.io/rack"
GONE = Failure(FailureKind.NO_ROUTE, "no route to host")
CUT = Failure(FailureKind.CONNECT_TIMEOUT, "timed out")


def sample(way: Way, told: float | Failure, ended: datetime, **more: object) -> Sample:
    rate, failure = (None, told) if isinstance(told, Failure) else (told, None)
    fields: dict[str, Any] = {
        "run_id": RUN, "path": way, "layer": Layer.LINK, "tool": "iperf3", "operation": "tcp-stream",
        "memory": Memory.HOST, "transport": "tcp", "phase": Phase.ISOLATED, "streams": 4, "measured_at": ended,
        "bytes_per_second": rate, "failure": failure,
    }  # fmt: skip
    return Sample(**fields | more)


def evidence(rates: Mapping[Way, float | Failure | None], racks: Mapping[str, str] | None = None) -> Evidence:
    """A sweep that planned these paths; None for one that it never came to."""
    ended = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    names = dict.fromkeys(end for way in rates for end in way)
    return Evidence(
        run_id=RUN,
        pool_uid=UID,
        planned=tuple(rates),
        samples=tuple(sample(way, told, ended) for way, told in rates.items() if told is not None),
        measured_at=ended,
        nodes=tuple(
            NodeIdentity(name, uid=f"u-{place}", labels=((RACK, racks[name]),) if racks else ())
            for place, name in enumerate(names)
        ),
        image="sha256:" + "ab" * 32,
        tools=("iperf3 3.12",),
    )


def grid(count: int, seed: int = 1) -> dict[Way, float | Failure | None]:
    """So many prefill and decode nodes, with a number for every path but a few."""
    chance = random.Random(seed)
    ways = [Way(f"p{a}", f"d{b}") for a in range(count) for b in range(count)]
    rates: dict[Way, float | Failure | None] = {way: chance.uniform(1e8, 3e8) for way in ways}
    rates[ways[0]], rates[ways[1]], rates[ways[2]] = GONE, CUT, None
    return rates


def pool(**criteria: object) -> dict[str, Any]:
    return {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "qwen3", "namespace": "serving", "uid": UID},
        "spec": {
            "targetRef": {"name": "qwen3"},
            "model": {"name": "Qwen/Qwen3-0.6B", "kvCache": {"bytesPerToken": 114688}},
            "workload": {"prompts": [{"tokens": 512}, {"tokens": 3216}], "peakRequestsPerSecond": "0.2"},
            "fabric": {"probe": {"endpoint": {"tool": "none"}, "phases": ["Isolated"]}},
            "criteria": {"disaggregation": {"ttftBudget": "2s", "minCoverage": "50%"} | criteria},
        },
    }


def reports(swept: Evidence, name: str = "qwen3", labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "kvgate.dev/v1alpha1",
            "kind": "FabricReport",
            "metadata": {"name": one.name, "namespace": "serving", "labels": dict(labels or {})},
            "spec": one.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        for one in to_reports(swept, name)
    ]


def save(folder: Path, documents: Iterable[Mapping[str, Any]], name: str = "saved.json") -> Path:
    """As `kubectl get -o json` prints them."""
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}), encoding="utf-8")
    return path
