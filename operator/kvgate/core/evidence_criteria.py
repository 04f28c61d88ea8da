"""Criteria on the evidence itself: is it there, fresh, whole, of the right kind, and about the right thing."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.api.words import EndpointTool, Memory, Outcome, Phase
from kvgate.core import text
from kvgate.core.evidence import FailureKind
from kvgate.core.extent import in_use, sample_of
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case
from kvgate.core.rates import PathRates, judged, slowest
from kvgate.core.target import TargetView

POD_NODES = "podNodes"
"""The criterion on nodes that pods use and sweeps do not: it calls for a person, not for a sweep."""
TCP = "tcp"
ENDPOINT_KEEPS_UP = 0.8
"""Share of the link. Below it the transport is what holds a path back."""
TCP_LINK_TRUSTED_UP_TO = 4e9 / 8
"""Bytes per second. Real NIXL followed the TCP link to ±0.5 % up to 2.5 Gbit/s and fell 36-46 % short at 10 Gbit/s."""
LEAST_OF_A_LINK = 0.5
"""What a KV transport over TCP reaches at worst, as was seen."""


def nodes_matched(case: Case) -> Finding:
    nodes = case.world.nodes
    if nodes.problem or not nodes.paths:
        unmatched = "no node matches fabric.prefillNodes or fabric.decodeNodes; the pool's owner must correct it"
        return _finding("nodes", Outcome.ERROR, "NoNodesMatched", nodes.problem or unmatched)
    count = f"{len(nodes.prefill)} prefill and {len(nodes.decode)} decode nodes"
    return _finding("nodes", Outcome.PASS, "NodesMatched", count)


def evidence_readable(case: Case) -> Finding:
    """Whether the reports could be read. What a sweep noted on its way blocks nothing: missing numbers do."""
    if case.world.evidence_problem:
        what = f"{case.world.evidence_problem}; measure again"
        return _finding("evidence", Outcome.ERROR, "EvidenceUnreadable", what)
    if case.outdated:
        gone = case.outdated.report or "a newer report"
        what = f"{gone}, on which the last verdict rested, is gone, and what is left is older; measure again"
        return _finding("evidence", Outcome.ERROR, "EvidenceUnreadable", what)
    odd = tuple(uplink.name for uplink in case.evidence.uplinks if not uplink.readable) if case.evidence else ()
    if odd:
        what = f"uplink {text.listed(odd)} has no positive aggregate or no share from 0 to 1; measure again"
        return _finding("evidence", Outcome.ERROR, "EvidenceUnreadable", what)
    noted = case.evidence.problems if case.evidence else ()
    also = f"; the sweep noted: {text.listed(noted, most=4)}" if noted else ""
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
        return _finding("freshness", Outcome.UNKNOWN, "NotMeasured", nothing_yet(case))
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
    """Whether each node is still the one that was measured. Only the paths of one that is not lose their numbers."""
    changed = case.standing.changed if case.standing else {}
    if changed:
        told = text.listed(tuple(f"node {name} {what}" for name, what in changed.items()))
        what = f"since the sweep, {told}: what was measured of its paths does not count; a new sweep is due"
        return _finding("identity", Outcome.UNKNOWN, "NodeNotCovered", what)
    return _finding("identity", Outcome.PASS, "NodesUnchanged", "the nodes are those that were measured")


def nodes_healthy(case: Case) -> Finding:
    """What the cluster's own health tools say is believed: a node under a veto is neither fit nor measured as such."""
    said = case.world.nodes.vetoes
    if said:
        what = text.listed(tuple(map(str, said)), most=2)
        cordoned = "a cordoned node is left out once no worker pod runs on it"
        why = f"{cordoned}, and the operator's nodeHealth.ignore takes a tool's word off"
        return _finding("nodeHealth", Outcome.UNKNOWN, "NodeVetoed", f"{what}; {why}")
    return _finding("nodeHealth", Outcome.PASS, "NodesNotVetoed", "no health tool speaks against a node in use")


def paths_covered(case: Case) -> Finding:
    if case.evidence is None:
        return _finding("coverage", Outcome.UNKNOWN, "NotMeasured", nothing_yet(case))
    usable = frozenset(case.world.nodes.paths)
    between = [path for path in case.fabric.paths if path.path in usable and not path.path.same_node]
    asked = asked_of(case, between)
    if not between and case.fabric.own.measured:
        return _finding("coverage", Outcome.PASS, "PathsCovered", "no path in use leaves its node")
    answered = sum(1 for path in asked if path.answered)
    limit = case.criteria.min_coverage
    share = answered / len(asked) if asked else 0.0
    kind, of_all = ("paths in use", "") if len(asked) == len(between) else ("sampled paths", _sample_of(case, between))
    what = f"{answered} of {len(asked)} {kind} gave an answer ({text.percent(share)}), minCoverage is {limit}{of_all}"
    silent = [path for path in asked if not path.answered]
    if missing := _never_planned(case, between):
        why = f"{what}; no evidence covers node {text.listed(missing)}: a new sweep is due"
        return _finding("coverage", Outcome.UNKNOWN, "NodeNotCovered", why)
    if answered and share >= limit.fraction - 1e-9:
        return _finding("coverage", Outcome.PASS, "PathsCovered", what)
    return _gap(silent, what)


def pods_covered(case: Case) -> Finding:
    """Whether worker pods run only where the evidence speaks of: where this pool's sweeps do not go, none will help."""
    usable = frozenset(case.world.nodes.paths)
    blank = [p.path for p in case.fabric.paths if not (p.answered or p.path in usable or p.path.same_node)]
    if case.evidence is None or not blank:
        return _finding(POD_NODES, Outcome.PASS, "PodsCovered", "no worker pod runs where this pool does not measure")
    nodes = case.world.nodes
    away = (
        {path.source for path in blank} - set(nodes.prefill),
        {path.destination for path in blank} - set(nodes.decode),
    )
    sides = ((side, text.listed(tuple(sorted(names)))) for side, names in zip(("prefill", "decode"), away, strict=True))
    where = " and ".join(f"{side} pods run on node {names}" for side, names in sides if names)
    what = f"{where}, which no evidence covers and no sweep of this pool may measure"
    why = "fabric.prefillNodes and decodeNodes do not match it, or it takes no pods now"
    return _finding(POD_NODES, Outcome.UNKNOWN, "NodeNotCovered", f"{what}: {why}; the pool's owner must correct it")


def asked_of(case: Case, between: list[PathRates]) -> list[PathRates]:
    """All paths in use; where they are more than a sweep may measure, those that one meant to."""
    if in_use(case) <= case.pool.spec.fabric.schedule.max_paths or case.standing is None:
        return between
    planned = frozenset(case.standing.evidence.planned)
    return [path for path in between if path.path in planned]


def _sample_of(case: Case, between: list[PathRates]) -> str:
    most = case.pool.spec.fabric.schedule.max_paths
    sample = sample_of(case)
    left = f"; {sample.told}" if sample else ""
    return f"; they are a sample of {len(between)} paths in use, for schedule.maxPaths is {most}{left}"


def _never_planned(case: Case, between: list[PathRates]) -> tuple[str, ...]:
    """Nodes that came after the sweep was planned, or changed since: minCoverage is a share of what was planned, and
    excuses none."""
    if case.standing is None or all(path.answered for path in between):
        return ()
    wires = (path for path in case.standing.evidence.planned if not path.same_node)
    planned = {node for path in wires for node in (path.source, path.destination)}
    used = {node for path in between for node in (path.path.source, path.path.destination)}
    return tuple(sorted(used - (planned - case.standing.changed.keys())))


def _gap(silent: list[PathRates], what: str) -> Finding:
    told = tuple(_explained(path) for path in silent[:3])
    more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
    timed_out = any(f.kind is FailureKind.CONNECT_TIMEOUT for path in silent for f in path.failures)
    hint = "; look for a NetworkPolicy or firewall that blocks fabric.probe.port" if timed_out else ""
    why = f"{what}; without an answer: {', '.join(told)}{more}{hint}{_spent(silent)}"
    if elsewhere := _elsewhere(silent):
        return _finding("coverage", Outcome.INCONCLUSIVE, "Unmeasured", f"{why}; {elsewhere}")
    return _finding("coverage", Outcome.INCONCLUSIVE, "CoverageTooLow", why)


def _spent(silent: list[PathRates]) -> str:
    """That it is the operator's limit on bytes which left paths without a number, and who must act."""
    told = [f.message for path in silent for f in path.failures if f.kind is FailureKind.BYTE_BUDGET_SPENT]
    if not told:
        return ""
    raise_it = "the operator's administrator must raise probe.maxBytesPerSweep, or the pool's owner measure fewer paths"
    return f"; {len(told)} of them for want of bytes ({told[0]}): {raise_it}"


def _elsewhere(silent: list[PathRates]) -> str:
    """That probes were not on the workers' network, why, and who must act."""
    kinds = [{f.kind: f.message for f in path.failures} for path in silent]
    told = [kind[FailureKind.OTHER_NETWORK] for kind in kinds if FailureKind.OTHER_NETWORK in kind]
    return f"{len(told)} of them were not measured on the workers' own network ({told[0]})" if told else ""


def _explained(path: PathRates) -> str:
    return f"{path.path} ({path.failures[0].kind})" if path.failures else str(path.path)


def paths_reachable(case: Case) -> Finding:
    dead = case.fabric.unreachable
    if dead:
        named = text.listed(tuple(f"{p.path} ({p.unreachable.kind})" for p in dead if p.unreachable is not None))
        what = f"{len(dead)} of {len(case.fabric.paths)} paths carry nothing: {named}; the network team must look"
        return _finding("reachability", Outcome.FAIL, "Unreachable", f"{what}{case.blame}")
    return _needs_evidence(case, "reachability") or _finding(
        "reachability", Outcome.PASS, "PathsReachable", "no path in use is dead"
    )


def no_outlier(case: Case) -> Finding:
    """Between nodes: what stays on one crosses no wire that it could be compared by."""
    apart = case.fabric.apart
    if case.numbers and not case.fabric.crossed:
        return _finding("outlier", Outcome.PASS, "PathsAlike", "no path that serving uses leaves its node")
    usual, found = judged(apart, case.criteria.slowest_percent_of_paths), slowest(apart)
    if usual is None or found is None or found.bytes_per_second is None:
        return _unmeasured(case, "outlier")
    worst = found.bytes_per_second
    what = f"the worst path carries {text.rate(worst)}, the judged one {text.rate(usual)}"
    if worst < usual / 2:
        return _finding("outlier", Outcome.INCONCLUSIVE, "PathOutlier", f"{what}: less than half{case.blame}")
    return _finding("outlier", Outcome.PASS, "PathsAlike", what)


def layers_measured(case: Case) -> Finding:
    """Whether the KV transport itself was measured on each path where a link number alone does not tell."""
    bare = [path for path in case.fabric.measured if path.endpoint is None]
    if not case.fabric.measured:
        return _unmeasured(case, "endpoint")
    tool = case.pool.spec.fabric.probe.endpoint.tool
    if tool is EndpointTool.NONE:
        bare = [path for path in bare if not _beside_the_point(case, path)]
    if not bare:
        what = f"the KV transport was measured on every path{_held_back(case.fabric.measured)}"
        return _finding("endpoint", Outcome.PASS, "EndpointMeasured", what)
    if tool is not EndpointTool.NONE:
        what = f"the spec asks for {tool}, and {len(bare)} of {len(case.fabric.measured)} paths have no number of it"
        why = f"{what}; measure again, or set fabric.probe.endpoint.tool to none"
        return _finding("endpoint", Outcome.INCONCLUSIVE, "EndpointUnmeasured", why)
    if any(sample.transport != TCP for path in bare for sample in path.samples):
        what = "a link that is not TCP tells nothing about the transport on it: measure the endpoint"
        return _finding("endpoint", Outcome.INCONCLUSIVE, "EndpointUnmeasured", what)
    fastest = max(path.link or 0.0 for path in bare)
    limit = text.rate(TCP_LINK_TRUSTED_UP_TO)
    if fastest > TCP_LINK_TRUSTED_UP_TO:
        what = f"{text.rate(fastest)} over TCP is above {limit}, where KV transports fall short: measure the endpoint"
        return _finding("endpoint", Outcome.INCONCLUSIVE, "EndpointUnmeasured", what)
    what = f"no link carries more than {text.rate(fastest)} over TCP, which is below {limit}: the link binds"
    return _finding("endpoint", Outcome.PASS, "LinkBound", what)


def _beside_the_point(case: Case, path: PathRates) -> bool:
    """Whether it stays on a node and is so fast that, with its transport at half of its link, it would still not be
    what the verdict rests on."""
    link, rests_on = path.link or 0.0, case.judged_bytes_per_second or 0.0
    return path.path.same_node and rests_on <= TCP_LINK_TRUSTED_UP_TO < link and rests_on <= LEAST_OF_A_LINK * link


def _held_back(measured: Sequence[PathRates]) -> str:
    """What may be done where the transport over TCP, and not the link, is what holds paths back."""
    slow = [path for path in measured if path.link and path.endpoint and path.endpoint < ENDPOINT_KEEPS_UP * path.link]
    over_tcp = [path for path in slow if all(sample.transport == TCP for sample in path.samples)]
    if not over_tcp:
        return ""
    worst = min(over_tcp, key=lambda path: (path.endpoint or 0.0) / (path.link or 1.0))
    told = f"{text.rate(worst.endpoint or 0.0)} of {text.rate(worst.link or 0.0)} on {worst.path}"
    what = f"; it, and not the link, holds back {len(over_tcp)} of {len(measured)} paths ({told})"
    return f"{what}: try UCX_TCP_TX_SEG_SIZE=64k on the prefill workers, and measure again"


def phases_measured(case: Case) -> Finding:
    """Each path has all phases that were asked for; beside Concurrent, Isolated is a sample of the paths."""
    measured, asked = case.fabric.measured, case.pool.spec.fabric.probe.phases
    if not measured:
        return _unmeasured(case, "phases")
    seen = [{sample.phase for sample in path.samples} for path in measured]
    missing = [phase for phase in asked if not _covered(phase, seen, sampled=len(asked) > 1)]
    if missing:
        what = f"the spec asks for phase {text.listed(tuple(missing))}, which does not cover the paths in use"
        return _finding("phases", Outcome.INCONCLUSIVE, "PhaseUnmeasured", f"{what}; set fabric.probe.phases")
    return _finding("phases", Outcome.PASS, "PhasesMeasured", f"measured: {text.listed(tuple(asked))}")


def _covered(phase: Phase, seen: list[set[Phase]], *, sampled: bool) -> bool:
    enough = any if phase is Phase.ISOLATED and sampled else all
    return enough(phase in phases for phases in seen)


def same_thing_measured(case: Case) -> Finding:
    """Whether each path's evidence is about the transport and memory that the workers will use."""
    target, measured = case.world.target, case.fabric.measured
    if not measured or not isinstance(target, TargetView):
        return _unmeasured(case, "kind")
    worker = target.fabric_class
    nearest = tuple(sample for path in measured for sample in path.nearest)
    if worker.rdma and any(sample.transport == TCP for sample in nearest):
        what = f"the workers ask for {worker} devices, and TCP was measured: TCP says nothing about RDMA"
        return _finding("kind", Outcome.INCONCLUSIVE, "Unmeasured", what)
    if not worker.rdma and any(sample.transport != TCP for sample in case.numbers):
        what = "the workers ask for no RDMA device and would use TCP, and something else was measured"
        return _finding("kind", Outcome.INCONCLUSIVE, "Unmeasured", f"{what}: measure TCP, or give them the device")
    if worker.rdma and any(sample.memory is Memory.HOST for sample in nearest):
        what = "the workers move GPU memory over RDMA, and only host memory was measured"
        return _finding("kind", Outcome.INCONCLUSIVE, "MemoryKindUnmeasured", what)
    return _finding("kind", Outcome.PASS, "SameThingMeasured", f"the workers use {worker}, which was measured")


def _needs_evidence(case: Case, criterion: str) -> Finding | None:
    return None if case.numbers else _unmeasured(case, criterion)


def _unmeasured(case: Case, criterion: str) -> Finding:
    what = "no path in use has a number yet" if case.evidence else nothing_yet(case)
    return _finding(criterion, Outcome.UNKNOWN, "NotMeasured", what)


def nothing_yet(case: Case) -> str:
    paths = case.world.nodes.paths
    if paths and case.world.nodes.unpaired and all(path.same_node for path in paths):
        return "no path in use leaves its node, so there is nothing to measure: give prefill and decode own nodes"
    return "no sweep has ended yet"


def _finding(criterion: str, outcome: Outcome, reason: str, message: str) -> Finding:
    return Finding(criterion, outcome, reason, message, Concern.FABRIC)
