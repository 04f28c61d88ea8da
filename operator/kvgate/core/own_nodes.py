"""Criteria on paths from a node to itself, which prefill and decode use where they may share a node."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.evidence_criteria import asked_of, nothing_yet
from kvgate.core.faults import SLOW_SHARE, USUAL_PERCENT
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case
from kvgate.core.rates import Fabric, PathRates, judged, slowest


def own_nodes(case: Case) -> Finding:
    """Paths from a node to itself are a class of their own, whatever the coverage of the others."""
    own = case.fabric.own
    if not own.paths:
        return _finding("sameNode", Outcome.PASS, "NodesApart", "no node may run both prefill and decode")
    if case.evidence is None and not case.world.nodes.unpaired:
        return _finding("sameNode", Outcome.UNKNOWN, "NotMeasured", nothing_yet(case))
    if silent := [path for path in _asked_own(case, own) if not path.answered]:
        shared = text.listed(tuple(path.path.source for path in silent))
        what = f"prefill and decode may share node {shared}, and no number says what they carry there"
        why = f"{_untold(case, silent)}, or an approver accepts SameNodeUnmeasured"
        return _finding("sameNode", Outcome.INCONCLUSIVE, "SameNodeUnmeasured", f"{what}: {why}")
    worst = slowest(own)
    least = f", {text.rate(worst.bytes_per_second)} at least" if worst and worst.bytes_per_second else ""
    what = f"{text.counted(len(own.measured), 'path')} between two pods of one node measured{least}"
    return _finding("sameNode", Outcome.PASS, "SameNodeMeasured", what)


def own_alike(case: Case) -> Finding:
    """Paths from a node to itself are compared with each other alone."""
    if slow := _slow_own(case, case.fabric.own):
        what = f"between two pods on it {text.listed(slow)}; the administrator must look there"
        return _finding("sameNodeRate", Outcome.INCONCLUSIVE, "SameNodeSlow", what)
    return _finding("sameNodeRate", Outcome.PASS, "SameNodesAlike", "no node is slow between two pods of its own")


def _asked_own(case: Case, own: Fabric) -> list[PathRates]:
    """All; where a sweep takes a sample, those of it, and those that worker pods use. A sample without any excuses
    none."""
    asked = {path.path for path in asked_of(case, list(case.fabric.paths))} | case.weights.keys()
    return [path for path in own.paths if path.path in asked] or list(own.paths)


def _slow_own(case: Case, own: Fabric) -> tuple[str, ...]:
    """Nodes on which a path carries less than half of what the better ones of its class do, or than minThroughput."""
    usual, least = judged(own, USUAL_PERCENT) or 0.0, case.criteria.min_throughput
    limit = max(SLOW_SHARE * usual, least.bytes_per_second if least else 0.0)
    asked = f"others carry {text.rate(usual)} on one node" + (f", minThroughput is {least}" if least else "")
    return tuple(
        f"node {path.path.source} carries {text.rate(path.bytes_per_second)} ({asked})"
        for path in own.measured
        if path.bytes_per_second is not None and path.bytes_per_second < limit and not path.at_least
    )


def _untold(case: Case, silent: Sequence[PathRates]) -> str:
    """Why these paths have no number, and who must act."""
    if case.world.nodes.unpaired:
        return case.world.nodes.unpaired
    failed = next((path for path in silent if path.failures), None)
    if failed is not None:
        told = f"the test between two pods of node {failed.path.source} failed ({failed.failures[0].kind})"
        return f"{told}; the administrator must make room there for a second probe pod, the owner measure again"
    return "the sweep that counts had no second pod there; the owner measures again, or gives them nodes of their own"


def _finding(criterion: str, outcome: Outcome, reason: str, message: str) -> Finding:
    return Finding(criterion, outcome, reason, message, Concern.FABRIC)
