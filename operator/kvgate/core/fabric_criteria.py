"""Criteria that compare: two tools, a path with its line rate and with the fleet, idle and busy, alone and together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median_low

from kvgate.api.quantities import Percentage
from kvgate.api.words import Outcome
from kvgate.core import text
from kvgate.core.evidence import Evidence, Path, Sample
from kvgate.core.findings import Concern, Finding
from kvgate.core.judging import Case
from kvgate.core.rates import PathRates, carried, judged, lower_percentile, reached_pace

MOST_DISAGREEMENT = 2.0
"""Two tools that measured the same of one path agree while neither says more than this times the other."""


def tools_agree(case: Case) -> Finding:
    """Where two tools say things of one path that cannot both be true, neither is believed."""
    if not case.fabric.measured:
        return _not_measured("tools")
    odd = tuple(said for path in case.fabric.measured for said in _contradictions(path))
    if odd:
        what = f"{text.listed(odd, most=2)}: more than {MOST_DISAGREEMENT:g} times apart, so that one of them is wrong"
        why = f"{what}; the lower one is judged, the network team must find out which is right"
        return _finding("tools", Outcome.INCONCLUSIVE, "ToolsDisagree", why)
    return _finding("tools", Outcome.PASS, "ToolsAgree", "no two tools contradict each other about a path")


def _contradictions(path: PathRates) -> Iterator[str]:
    """Tools on the same layer that differ; and a KV transport that outdoes the link of the same transport."""
    if len(path.samples) < 2:
        return
    by_kind: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in path.samples:
        kind = (sample.layer, sample.phase, sample.transport, sample.memory)
        by_kind[kind][sample.tool].append(carried(sample) or 0.0)
    for tools in by_kind.values():
        rates = sorted((median_low(rates), tool) for tool, rates in tools.items())
        if len(rates) > 1 and rates[-1][0] > MOST_DISAGREEMENT * rates[0][0]:
            (low, slow), (high, fast) = rates[0], rates[-1]
            yield f"path {path.path}: {slow} says {text.rate(low)}, {fast} {text.rate(high)}"
    link, endpoint = path.link, path.endpoint
    same = len({sample.transport for sample in path.samples}) == 1
    paced = any(reached_pace(sample) for sample in path.samples)
    if same and not paced and link is not None and endpoint is not None and endpoint > MOST_DISAGREEMENT * link:
        yield f"path {path.path}: the link carries {text.rate(link)}, and the transport on it {text.rate(endpoint)}"


def line_rate_reached(case: Case) -> Finding:
    """The judged percentile of each path's share of its own line rate, against minShareOfLineRate."""
    limit = case.criteria.min_share_of_line_rate
    if limit is None:
        return _finding("lineRate", Outcome.PASS, "NoLineRateAsked", "no minShareOfLineRate is asked for")
    apart = case.fabric.apart
    if case.numbers and not case.fabric.crossed:
        return _finding("lineRate", Outcome.PASS, "LineRateReached", "no path that serving uses leaves its node")
    shares = [(_share_of_line(path), apart.weight(path.path)) for path in apart.measured]
    if unknown := sum(1 for share, _ in shares if share is None):
        what = f"minShareOfLineRate is {limit}, and {unknown} of {len(shares)} paths do not tell their line rate"
        why = f"{what}; set minThroughput in its place, or accept it"
        return _finding("lineRate", Outcome.INCONCLUSIVE, "LineRateUnknown", why)
    share = lower_percentile(((s or 0.0, weight) for s, weight in shares), case.criteria.slowest_percent_of_paths)
    if share is None:
        return _not_measured("lineRate")
    what = f"the judged path carries {text.percent(share)} of its line rate, minShareOfLineRate is {limit}"
    if not _reaches(share, limit):
        return _finding("lineRate", Outcome.FAIL, "BelowLineRate", f"{what}; the network team must look{case.blame}")
    return _finding("lineRate", Outcome.PASS, "LineRateReached", what)


def _share_of_line(path: PathRates) -> float | None:
    """The narrowest interface on the way bounds the path; None where no sample knows one."""
    known = [s.line_rate_bytes_per_second for s in path.samples if s.line_rate_bytes_per_second]
    return (path.bytes_per_second or 0.0) / min(known) if known else None


def median_reached(case: Case) -> Finding:
    """The judged path against the median of all paths between nodes: a fleet of another make needs no other number."""
    apart, limit = case.fabric.apart, case.criteria.min_share_of_median
    rate = judged(apart, case.criteria.slowest_percent_of_paths)
    if limit is None:
        return _finding("median", Outcome.PASS, "NoMedianAsked", "no minShareOfMedian is asked for")
    rated = ((path.bytes_per_second or 0.0, apart.weight(path.path)) for path in apart.measured)
    median = lower_percentile(rated, 50)
    if case.numbers and not case.fabric.crossed:
        return _finding("median", Outcome.PASS, "MedianReached", "no path that serving uses leaves its node")
    if rate is None or not median:
        return _not_measured("median")
    what = f"the judged path carries {text.rate(rate)}, {text.percent(rate / median)} of the median {text.rate(median)}"
    what = f"{what}; minShareOfMedian is {limit}"
    if not _reaches(rate / median, limit):
        return _finding("median", Outcome.FAIL, "BelowMedian", f"{what}; the network team must look{case.blame}")
    return _finding("median", Outcome.PASS, "MedianReached", what)


def _reaches(share: float, limit: Percentage) -> bool:
    return share >= limit.fraction - 1e-9


def load_told(case: Case) -> Finding:
    """Paths that are fine idle and slow under serving load: both figures, of which the one under load is judged."""
    slow = tuple(_loaded(case, case.evidence)) if case.evidence else ()
    if slow:
        what = f"{text.listed(slow, most=2)}; what was measured under load is judged"
        return _finding("underLoad", Outcome.PASS, "SlowerUnderLoad", what)
    return _finding("underLoad", Outcome.PASS, "NotSlowerUnderLoad", "no path is known to carry less under load")


def _loaded(case: Case, evidence: Evidence) -> Iterator[str]:
    """Paths that carried, with what serving moved, less than half of what they once carried idle."""
    busy = _rates((s for path in case.fabric.measured for s in path.samples), serving=True)
    if not busy:
        return
    older = [e for e in case.world.evidence if e.pool_uid == case.pool.uid and e.measured_at <= evidence.measured_at]
    idle = _rates((sample for e in reversed(older) for sample in e.samples if sample.path in busy), serving=False)
    for path, (now, serving) in sorted(busy.items()):
        before = idle.get(path)
        if before is not None and now < before[0] / 2:
            of_it = f"{text.rate(now)}, {text.rate(serving)} of it by serving"
            yield f"path {path} carries {of_it}, and carried {text.rate(before[0])} idle"


def _rates(samples: Iterable[Sample], *, serving: bool) -> dict[Path, tuple[float, float]]:
    """Per path the last rate that was seen with, or without, serving traffic; and that traffic."""
    found: dict[Path, tuple[float, float]] = {}
    for sample in samples:
        moved = sample.serving_bytes_per_second or 0.0
        if (moved > 0) is serving and not reached_pace(sample) and (rate := carried(sample)) is not None:
            found[sample.path] = (rate, moved)
    return found


def sharing_told(case: Case) -> Finding:
    """Oversubscription: what paths carry at once against what they carry alone. Both are judged, by the smaller."""
    if case.shared_links:
        told = tuple(
            f"{link.name}: {len(link.at_once)} paths carry {text.rate(link.together)} at once and would carry "
            f"{text.rate(link.alone)} alone, {link.oversubscription:.1f} to 1"
            for link in case.shared_links
        )
        what = f"oversubscribed: {text.listed(told, most=2)}; what they carry at once is judged"
        return _finding("sharing", Outcome.PASS, "LinksShared", what)
    return _finding("sharing", Outcome.PASS, "NoLinkShared", "no paths were seen to slow each other down")


BY_RATE = frozenset({"minThroughput", "ttftBudget", "maxUtilization", "lineRate", "median", "outlier"})
"""The criteria that a higher number could pass."""


def starved_probes(case: Case) -> str:
    """What is said of paths, no faster than the judged one, whose probe lacked the processor; nothing of none."""
    told = tuple(f"path {path.path}: {s.starved}" for path in case.slow for s in path.samples if s.starved)
    return text.listed(told, most=2)


def unless_starved(finding: Finding, starved: str) -> Finding:
    """What a probe measured without the processor that it asked for is a lower bound: enough may pass, and too little
    fails nothing."""
    if not starved or finding.criterion not in BY_RATE or finding.outcome is not Outcome.FAIL:
        return finding
    what = f"{finding.reason}, but the probe was starved ({starved}), so the path may carry more: {finding.message}"
    why = f"{what}; the cluster's administrator must give the probe its processor, then measure again"
    return Finding(finding.criterion, Outcome.INCONCLUSIVE, "ProbeStarved", why, finding.concern)


def unless_sufficient(finding: Finding, case: Case) -> Finding:
    """A path that carried all that it was asked for while its nodes serve is no worse than those that were asked for
    more before."""
    if finding.criterion not in {"outlier", "median"} or finding.outcome is Outcome.PASS:
        return finding
    if not case.slow or not all(path.at_least for path in case.slow):
        return finding
    most = text.rate(case.judged_bytes_per_second or 0.0)
    what = f"{text.counted(len(case.slow), 'path')} carried all that was asked for beside serving, up to {most}"
    why = f"{what}; what they carry beyond that was not measured, so they are compared with no other path"
    return Finding(finding.criterion, Outcome.PASS, "SufficientBesideServing", why, finding.concern)


def _not_measured(criterion: str) -> Finding:
    return _finding(criterion, Outcome.UNKNOWN, "NotMeasured", "no path in use has a number yet")


def _finding(criterion: str, outcome: Outcome, reason: str, message: str) -> Finding:
    return Finding(criterion, outcome, reason, message, Concern.FABRIC)
