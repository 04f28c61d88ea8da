"""Criteria on the evidence itself: is it there, fresh, whole, of the right kind, and about the right thing."""

from __future__ import annotations

from kvgate.api.words import EndpointTool, Outcome, SweepPhase
from kvgate.core import text
from kvgate.core.evidence import Layer, Memory, NodeIdentity, Phase
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case
from kvgate.core.rates import PathRates

TCP_LINK_TRUSTED_UP_TO = 4e9 / 8
"""Bytes per second. Real NIXL followed the TCP link to ±0.5 % up to 2.5 Gbit/s and fell 36-46 % short at 10 Gbit/s."""


def nodes_matched(case: Case) -> Finding:
    nodes = case.world.nodes
    if nodes.problem or not nodes.paths:
        problem = nodes.problem or "no node matches fabric.prefillNodes or fabric.decodeNodes"
        return _finding("nodes", Outcome.ERROR, "NoNodesMatched", f"{problem}; the pool's owner must correct it")
    count = f"{len(nodes.prefill)} prefill and {len(nodes.decode)} decode nodes"
    return _finding("nodes", Outcome.PASS, "NodesMatched", count)


def evidence_readable(case: Case) -> Finding:
    """Whether the reports could be read. What a sweep noted on its way blocks nothing: missing numbers do."""
    if case.world.evidence_problem:
        what = f"{case.world.evidence_problem}; measure again"
        return _finding("evidence", Outcome.ERROR, "EvidenceUnreadable", what)
    noted = case.evidence.problems if case.evidence else ()
    also = f"; the sweep noted: {text.listed(noted, most=1)}" if noted else ""
    return _finding("evidence", Outcome.PASS, "EvidenceReadable", f"the reports could be read{also}")


def evidence_of_this_pool(case: Case) -> Finding:
    evidence = case.evidence
    if evidence is not None and evidence.pool_uid != case.pool.uid:
        what = f"run {evidence.run_id} was measured for another pool; measure again"
        return _finding("origin", Outcome.ERROR, "EvidenceOfAnotherPool", what)
    if evidence is not None and any(sample.run_id != evidence.run_id for sample in evidence.samples):
        what = f"samples of another run stand among those of run {evidence.run_id}; measure again"
        return _finding("origin", Outcome.ERROR, "EvidenceOfAnotherRun", what)
    return _finding("origin", Outcome.PASS, "EvidenceOurs", "one run, of this pool")


def evidence_fresh(case: Case) -> Finding:
    if case.evidence is None:
        return _finding("freshness", Outcome.UNKNOWN, "NotMeasured", "no sweep has ended yet")
    if case.from_the_future:
        ended = text.moment(case.evidence.measured_at)
        what = f"run {case.evidence.run_id} says it ended at {ended}, ahead of this clock"
        return _finding("freshness", Outcome.ERROR, "ClockSkew", f"{what}; correct the clocks and measure again")
    ended = f"measured at {text.moment(case.evidence.measured_at)}"
    if not case.fresh:
        what = f"{ended}, older than evidenceTTL {case.pool.spec.fabric.evidence_ttl}; a new sweep is due"
        return _finding("freshness", Outcome.UNKNOWN, "EvidenceExpired", what)
    until = f"{ended}, holds until {text.moment(case.expires_at)}" if case.expires_at else ended
    return _finding("freshness", Outcome.PASS, "EvidenceFresh", until)


def nodes_unchanged(case: Case) -> Finding:
    """Whether each node is still the one that was measured: a new UID or boot ID voids what was measured on it."""
    then = {node.name: node for node in case.evidence.nodes} if case.evidence else {}
    now = {node.name: node for node in case.world.nodes.identities}
    changed = tuple(name for name in sorted(then.keys() & now.keys()) if _another(then[name], now[name]))
    if changed:
        what = f"{text.listed(changed)} was replaced or rebooted since the sweep; a new sweep is due"
        return _finding("identity", Outcome.UNKNOWN, "NodeNotCovered", what)
    return _finding("identity", Outcome.PASS, "NodesUnchanged", "the nodes are those that were measured")


def _another(then: NodeIdentity, now: NodeIdentity) -> bool:
    pairs = ((then.uid, now.uid), (then.boot_id, now.boot_id))
    return any(before and after and before != after for before, after in pairs)


def paths_covered(case: Case) -> Finding:
    if case.evidence is None:
        return _finding("coverage", Outcome.UNKNOWN, "NotMeasured", "no sweep has ended yet")
    planned, measured = len(case.fabric.paths), len(case.fabric.measured) + len(case.fabric.unreachable)
    limit = case.criteria.min_coverage
    share = measured / planned if planned else 0.0
    what = f"{measured} of {planned} paths in use gave an answer ({text.percent(share)}), minCoverage is {limit}"
    if planned and share >= limit.fraction - 1e-9 and measured:
        return _finding("coverage", Outcome.PASS, "PathsCovered", what)
    return _gap(case, what)


def _gap(case: Case, what: str) -> Finding:
    silent = [path for path in case.fabric.paths if path.bytes_per_second is None and path.unreachable is None]
    if silent and all(path.path.same_node for path in silent):
        where = text.listed(tuple(path.path.source for path in silent))
        why = f"{what}; same-node paths on {where} are not measured by this version: give prefill and decode own nodes"
        return _finding("coverage", Outcome.INCONCLUSIVE, "Unmeasured", why)
    covered = (
        {node for path in case.evidence.planned for node in (path.source, path.destination)} if case.evidence else set()
    )
    missing = sorted({node for p in silent for node in (p.path.source, p.path.destination)} - covered)
    if missing:
        why = f"{what}; no evidence covers node {text.listed(tuple(missing))}: a new sweep is due"
        return _finding("coverage", Outcome.UNKNOWN, "NodeNotCovered", why)
    why = f"{what}; without an answer: {text.listed(tuple(_explained(case, path) for path in silent))}"
    return _finding("coverage", Outcome.INCONCLUSIVE, "CoverageTooLow", why)


def _explained(case: Case, path: PathRates) -> str:
    samples = case.evidence.samples if case.evidence else ()
    failures = [s.failure.kind for s in samples if s.path == path.path and s.failure is not None]
    return f"{path.path} ({failures[0]})" if failures else str(path.path)


def paths_reachable(case: Case) -> Finding:
    dead = case.fabric.unreachable
    if dead:
        named = text.listed(tuple(f"{p.path} ({p.unreachable.kind})" for p in dead if p.unreachable is not None))
        what = f"{len(dead)} of {len(case.fabric.paths)} paths carry nothing: {named}; the network team must look"
        return _finding("reachability", Outcome.FAIL, "Unreachable", what)
    return _needs_evidence(case, "reachability") or _finding(
        "reachability", Outcome.PASS, "PathsReachable", "no path in use is dead"
    )


def no_outlier(case: Case) -> Finding:
    judged, worst = case.judged_bytes_per_second, case.worst_bytes_per_second
    if judged is None or worst is None:
        return _unmeasured(case, "outlier")
    what = f"the worst path carries {text.rate(worst)}, the judged one {text.rate(judged)}"
    if worst < judged / 2:
        return _finding("outlier", Outcome.INCONCLUSIVE, "PathOutlier", f"{what}: less than half; look at that path")
    return _finding("outlier", Outcome.PASS, "PathsAlike", what)


def layers_measured(case: Case) -> Finding:
    """Whether the KV transport itself was measured where a link number alone does not tell."""
    rate = case.judged_bytes_per_second
    if rate is None:
        return _unmeasured(case, "endpoint")
    tool = case.pool.spec.fabric.probe.endpoint.tool
    if case.has_layer(Layer.ENDPOINT):
        return _finding("endpoint", Outcome.PASS, "EndpointMeasured", "link and endpoint were both measured")
    if tool is not EndpointTool.NONE:
        what = f"the spec asks for {tool}, and no sample of it came; set fabric.probe.endpoint.tool to none, or wait"
        return _finding("endpoint", Outcome.INCONCLUSIVE, "EndpointUnmeasured", what)
    if any(sample.transport != "tcp" for sample in case.numbers):
        what = "a link that is not TCP tells nothing about the transport on it: measure the endpoint"
        return _finding("endpoint", Outcome.INCONCLUSIVE, "EndpointUnmeasured", what)
    limit = text.rate(TCP_LINK_TRUSTED_UP_TO)
    if rate > TCP_LINK_TRUSTED_UP_TO:
        what = f"{text.rate(rate)} over TCP is above {limit}, where KV transports fall short: measure the endpoint"
        return _finding("endpoint", Outcome.INCONCLUSIVE, "EndpointUnmeasured", what)
    return _finding(
        "endpoint", Outcome.PASS, "LinkBound", f"{text.rate(rate)} over TCP is below {limit}: the link binds"
    )


def phases_measured(case: Case) -> Finding:
    if not case.numbers:
        return _unmeasured(case, "phases")
    seen = {sample.phase for sample in case.numbers}
    missing = [phase for phase in case.pool.spec.fabric.probe.phases if Phase(phase) not in seen]
    if missing:
        what = f"the spec asks for phase {text.listed(tuple(missing))}, which no sample covers"
        return _finding("phases", Outcome.INCONCLUSIVE, "PhaseUnmeasured", f"{what}; set fabric.probe.phases")
    asked = text.listed(tuple(SweepPhase(phase) for phase in case.pool.spec.fabric.probe.phases))
    return _finding("phases", Outcome.PASS, "PhasesMeasured", f"measured: {asked}")


def same_thing_measured(case: Case) -> Finding:
    """Whether the evidence is about the transport and memory that the workers will use."""
    worker = getattr(case.world.target, "fabric_class", None)
    if not case.numbers or worker is None:
        return _unmeasured(case, "kind")
    if worker.rdma and all(sample.transport == "tcp" for sample in case.numbers):
        what = f"the workers ask for {worker} devices, and only TCP was measured: TCP says nothing about RDMA"
        return _finding("kind", Outcome.INCONCLUSIVE, "Unmeasured", what)
    if worker.rdma and all(sample.memory is Memory.HOST for sample in case.numbers):
        what = "the workers move GPU memory over RDMA, and only host memory was measured"
        return _finding("kind", Outcome.INCONCLUSIVE, "MemoryKindUnmeasured", what)
    return _finding("kind", Outcome.PASS, "SameThingMeasured", f"the workers use {worker}, which was measured")


def _needs_evidence(case: Case, criterion: str) -> Finding | None:
    return None if case.numbers else _unmeasured(case, criterion)


def _unmeasured(case: Case, criterion: str) -> Finding:
    what = "no path in use has a number yet" if case.evidence else "no sweep has ended yet"
    return _finding(criterion, Outcome.UNKNOWN, "NotMeasured", what)


def _finding(criterion: str, outcome: Outcome, reason: str, message: str) -> Finding:
    return Finding(criterion, outcome, reason, message, Concern.FABRIC)
