"""The hash of a plan: everything that an approver agrees to, and nothing that a fresh sweep changes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from kvgate.api.pool import Probe
from kvgate.api.words import Capability
from kvgate.core.benchmark_criteria import workload
from kvgate.core.descriptors import USUAL_BYTES
from kvgate.core.judging import Case
from kvgate.core.target import TargetView
from kvgate.core.world import KVKnown


def plan_hash(case: Case, capability: Capability, epoch: int) -> str:
    """`v1:sha256:` and the digest of the canonical JSON of the plan; empty while target, KV size or an A/B's trace is
    not known."""
    target, kv = case.world.target, case.world.kv
    if not isinstance(target, TargetView) or not target.uid or not isinstance(kv, KVKnown):
        return ""
    if capability is Capability.ROUTING and case.world.trace is not None and case.world.trace.problem:
        return ""
    toggle = target.toggles.get(capability)
    plan = {
        "capability": capability,
        "pool": case.pool.uid,
        "target": target.uid,
        "steps": [asdict(step) for step in sorted(toggle.steps)] if toggle else [],
        "targetProjection": toggle.projection if toggle else "",
        "criteria": _criteria(case, capability),
        "model": {**case.pool.spec.model.model_dump(mode="json", by_alias=True), "digest": kv.digest},
        "probe": _probe(case.pool.spec.fabric.probe),
        "nodes": case.pool.spec.fabric.model_dump(
            mode="json", by_alias=True, include={"prefill_nodes", "decode_nodes"}
        ),
        "evidenceClass": evidence_class(case) if capability is Capability.DISAGGREGATION else [],
        "epoch": epoch,
    }
    if capability is Capability.ROUTING and (sent := workload(case)):
        plan["workload"] = sent
    canonical = json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"v1:sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


_LATER = frozenset({"minShareOfLineRate", "minShareOfMedian"})
"""Criteria that plans of an earlier version lack: one that is not set changes no hash."""


def _criteria(case: Case, capability: Capability) -> dict[str, object]:
    block = case.block(capability)
    said = block.model_dump(mode="json", by_alias=True) if block else {}
    return {name: value for name, value in said.items() if value is not None or name not in _LATER}


_LATER_PROBE = frozenset({("link", "singleStream"), ("endpoint", "operation"), ("endpoint", "duration")})
"""Fields of the probe that plans of an earlier version lack: one that is left as it is changes no hash."""


def _probe(probe: Probe) -> dict[str, object]:
    said, plain = (one.model_dump(mode="json", by_alias=True) for one in (probe, Probe()))
    for part, name in _LATER_PROBE:
        if said[part][name] == plain[part][name]:
            del said[part][name]
    if said["endpoint"]["descriptorBytes"] is None:
        said["endpoint"]["descriptorBytes"] = USUAL_BYTES
    return dict(said)


def evidence_class(case: Case) -> list[list[str | bool]]:
    """What kind of evidence there is: tool, operation, memory, transport; never numbers, run IDs or node UIDs."""
    host_network = case.pool.spec.fabric.probe.host_network
    kinds = {(s.layer, s.tool, s.operation, s.memory, s.transport, host_network) for s in case.numbers}
    return [list(kind) for kind in sorted(kinds)]
