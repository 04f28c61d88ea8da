"""The parts of the page that are words and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from kvgate.api.status import CapabilityStatus, PathRate, PoolStatus
from kvgate.api.words import Outcome
from kvgate.app.report.html import Html, definitions, element, join, table
from kvgate.app.report.names import escaped
from kvgate.app.report.scale import MARKS, Scale
from kvgate.app.report.subject import PathFact, Reach, Subject, counted
from kvgate.core import text
from kvgate.core.evidence import Path

MOST_LISTED = 20
_SIGNS = {
    Outcome.PASS: "✓", Outcome.INCONCLUSIVE: "≈", Outcome.UNKNOWN: "?", Outcome.ERROR: "!", Outcome.FAIL: "✕",
}  # fmt: skip


def head(subject: Subject, now: datetime) -> Html:
    evidence, verdict = subject.evidence, subject.verdict
    spec = verdict.pool.spec if verdict else None
    fabric = verdict.status.fabric if verdict else None
    expires = fabric.expires_at if fabric else None
    facts = (
        ("Mode", spec.mode.value if spec else ""),
        ("Model", spec.model.name if spec else ""),
        ("Deployment", spec.target_ref.name if spec else ""),
        ("Measured", text.moment(evidence.measured_at)),
        ("Expires", f"{text.moment(expires)}{', and is over' if expires <= now else ''}" if expires else ""),
        ("Nodes", f"{len(subject.sources)} send, {len(subject.destinations)} receive"),
        ("Paths", f"{subject.count(Reach.MEASURED):,} of {len(subject.facts):,} measured"),
        ("Judged throughput", _rate(subject.judged_bytes_per_second)),
        ("Slowest path", f"{subject.rated[0][1]}, {_rate(subject.rated[0][0])}" if subject.rated else ""),
        ("Report", evidence.report),
    )
    notes = join(element("li", escaped(note)) for note in subject.notes)
    title = element("h1", f"{escaped(subject.name)} <small>{escaped(subject.namespace)}</small>")
    return element(
        "header", join((title, _banner(subject), definitions(facts), element("ul", notes, "notes") if notes else ""))
    )


def _banner(subject: Subject) -> Html:
    if subject.verdict is None:
        return element("p", "No verdict: the report was made from FabricReports alone.", "verdicts")
    return element("ul", join(map(_capability, subject.verdict.status.capabilities)), "verdicts")


def _capability(entry: CapabilityStatus) -> Html:
    on = ", switched on" if entry.enabled else f", held by {entry.held_by}" if entry.held_by else ""
    told = escaped(f"{_SIGNS[entry.outcome]} {entry.outcome.value}{on}")
    return f'<li class="{entry.outcome.value.lower()}"><b>{escaped(entry.name.value)}</b> {told}</li>'


def worst_paths(subject: Subject, scale: Scale) -> Html:
    rows = (
        (
            place, slow, MARKS[scale.cell(subject.by_path[slow])], text.rate(rate), _share(rate, scale.reference),
            _rate(subject.by_path[slow].link), _rate(subject.by_path[slow].endpoint), subject.by_path[slow].stratum,
        )
        for place, (rate, slow) in enumerate(subject.rated[:MOST_LISTED], 1)
    )  # fmt: skip
    heads = ("", "Path", "Band", "Throughput", f"Of {scale.by}", "Link", "KV transport", "Where")
    shown = table(
        f"The slowest {min(MOST_LISTED, len(subject.rated))} of {len(subject.rated):,} measured paths", heads, rows
    )
    return _section("Slowest paths", shown)


def dead_paths(subject: Subject) -> Html:
    dead = [fact for fact in subject.facts if fact.reach in {Reach.UNREACHABLE, Reach.FAILED}]
    rows = ((fact.path, fact.reach.value, fact.failure, fact.message) for fact in _worst_first(dead)[: 2 * MOST_LISTED])
    more = f"{min(2 * MOST_LISTED, len(dead))} of {len(dead):,} paths without an answer"
    return _section("Unreachable and failed paths", table(more, ("Path", "", "Why", "In words"), rows))


def _worst_first(facts: Iterable[PathFact]) -> list[PathFact]:
    return sorted(facts, key=lambda fact: fact.reach is not Reach.UNREACHABLE)


def nodes(subject: Subject) -> Html:
    """Whose paths are slowest: one bad node shows as a row, or a column, of the heat map."""
    seen = [
        *_sides(subject, "sends", lambda way: way.source),
        *_sides(subject, "receives", lambda way: way.destination),
    ]
    seen.sort(key=lambda side: (side.least if side.least is not None else 0.0, -side.dead, counted(side.node)))
    rows = (
        (side.node, side.role, _rate(side.least), _rate(side.median), f"{side.measured:,}", f"{side.dead:,}")
        for side in seen[:MOST_LISTED]
    )
    heads = ("Node", "Side", "Slowest path", "Median path", "Measured", "Unreachable or failed")
    caption = f"The {min(MOST_LISTED, len(seen))} worst of {len(seen):,} sides of nodes"
    return _section("Nodes", table(caption, heads, rows, numbers=(2, 3, 4, 5)))


@dataclass(frozen=True)
class _Side:
    node: str
    role: str
    least: float | None
    median: float | None
    measured: int
    dead: int


def _sides(subject: Subject, role: str, end: Callable[[Path], str]) -> Iterator[_Side]:
    own: dict[str, list[PathFact]] = {}
    for fact in subject.facts:
        if fact.reach is not Reach.SAME_NODE:
            own.setdefault(end(fact.path), []).append(fact)
    for node, facts in own.items():
        rates = sorted(fact.bytes_per_second for fact in facts if fact.bytes_per_second is not None)
        dead = sum(1 for fact in facts if fact.reach in {Reach.UNREACHABLE, Reach.FAILED})
        middle = rates[(len(rates) - 1) // 2] if rates else None
        yield _Side(node, role, rates[0] if rates else None, middle, len(rates), dead)


_RANKS = (1, 5, 10, 25, 50, 75, 90, 99)


def percentiles(subject: Subject) -> Html:
    """By nearest rank, each path alike; what is judged may weigh them by worker pods."""
    rates = [rate for rate, _ in subject.rated]
    ranks = ((f"slowest {rank}%", _rate(rates[max(0, -(-rank * len(rates) // 100) - 1)])) for rank in _RANKS)
    rows = [("slowest path", _rate(rates[0])), *ranks, ("fastest path", _rate(rates[-1]))]
    spread = table("By nearest rank, each path alike", ("Percentile", "At most"), rows, numbers=(1,))
    lines = (
        (line.by, _rate(line.bytes_per_second), _share(sum(1 for r in rates if r >= line.bytes_per_second), len(rates)))
        for line in subject.required
    )
    return spread + table("What is required", ("By", "At least", "Of paths reach it"), lines, numbers=(1, 2))


def estimates(subject: Subject) -> Html:
    status = subject.verdict.status if subject.verdict else PoolStatus()
    rows = (
        (
            f"{one.prompt_tokens:,} tokens", text.size(one.kv_bytes), _span(one.link_milliseconds),
            _span(one.endpoint_milliseconds), _span(one.queue_milliseconds), _span(one.added_ttft_milliseconds),
            _span(one.budget_milliseconds), f"{_SIGNS[one.outcome]} {one.outcome.value}",
        )
        for one in status.estimates
    )  # fmt: skip
    heads = (
        "Prompt",
        "KV bytes",
        "Over the link",
        "By the KV transport",
        "Waiting",
        "Added TTFT",
        "Budget",
        "Estimate",
    )
    longest = status.longest_prompt_within_budget
    words = (
        f"By its transfer alone, without waiting, a prompt of up to {longest:,} tokens fits the budget."
        if longest is not None
        else ""
    )
    return table("", heads, rows, numbers=range(1, 7)) + (element("p", words) if words else "")


_KNOWN = {
    Reach.MEASURED: "measured",
    Reach.UNREACHABLE: "unreachable: the path carries nothing",
    Reach.FAILED: "failed: tested, and the test could not look",
    Reach.UNMEASURED: "not measured",
    Reach.SAME_NODE: "of a node to itself, without a second pod to measure to",
}


def coverage(subject: Subject) -> Html:
    whole = len(subject.facts)
    rows = (
        (words, f"{subject.count(reach):,}", _share(subject.count(reach), whole)) for reach, words in _KNOWN.items()
    )
    fabric = subject.verdict.status.fabric if subject.verdict else None
    sample = fabric.sample if fabric else None
    told = ""
    if sample is not None:
        what = f"A sample: {sample.covered:,} of {sample.paths_in_use:,} paths in use have evidence now"
        told = element("p", f"{what}, and {sample.never_covered:,} never have before that of others expires.")
    return _section("Coverage", table("Paths in use", ("", "Paths", "Share"), rows, numbers=(1, 2)) + told)


def strata(subject: Subject) -> Html:
    """What topological classes carry, who is at fault, and which links are shared."""
    fabric = subject.verdict.status.fabric if subject.verdict else None
    if fabric is None:
        return ""
    classes = (
        (one.name, f"{one.paths:,}", f"{one.measured:,}", _rate(one.judged_bytes_per_second), _worst(one.worst))
        for one in fabric.strata
    )
    suspects = ((one.name, "yes" if one.settled else "not yet", f"{one.paths:,}", one.tests) for one in fabric.suspects)
    shared = (
        (one.name, f"{one.paths:,}", _rate(one.together_bytes_per_second), _rate(one.alone_bytes_per_second))
        for one in fabric.shared_links
    )
    parts = (
        table("By where the ends stand", ("Class", "Paths", "Measured", "Judged", "Slowest"), classes, numbers=(1, 2)),
        table("At fault", ("What", "Settled", "Paths it explains", "Tests that say so"), suspects),
        table("Shared links", ("Link", "Paths", "Together", "Alone"), shared),
    )
    return _section("Where it is slow", join(parts))


def criteria(subject: Subject) -> Html:
    if subject.verdict is None:
        return ""
    judged = (
        (f.criterion, capability.value, f"{_SIGNS[f.outcome]} {f.outcome.value}", f.reason, f.message)
        for capability, f in subject.verdict.findings
    )
    conditions = (
        (c.type, c.status.value, c.reason, c.message)
        for c in subject.verdict.status.conditions
        if c.reason != "NotGated"
    )
    parts = (
        table("Criteria", ("Criterion", "Capability", "Outcome", "Reason", "In words"), judged),
        table("Conditions", ("Condition", "Status", "Reason", "Message"), conditions),
    )
    return _section("Verdict", join(parts))


def provenance(subject: Subject) -> Html:
    evidence = subject.evidence
    ways = sorted({(s.tool, s.operation, s.transport, s.memory.value, s.layer.value, s.phase.value, s.streams)
                   for s in evidence.samples})  # fmt: skip
    facts = (
        ("Run", evidence.run_id),
        ("Probe image", evidence.image),
        ("Tools", ", ".join(evidence.tools)),
        ("Samples", f"{len(evidence.samples):,}"),
    )
    how = table("Tests", ("Tool", "Operation", "Transport", "Memory", "Layer", "Phase", "Streams"), ways)
    return _section("How it was measured", definitions(facts) + how)


def _section(title: str, inner: Html) -> Html:
    return element("section", element("h2", title) + inner) if inner else ""


def _rate(bytes_per_second: float | None) -> str:
    return "–" if bytes_per_second is None else text.rate(bytes_per_second)


def _span(milliseconds: int | None) -> str:
    return "–" if milliseconds is None else text.span(milliseconds / 1000)


def _share(part: float, whole: float) -> str:
    return text.percent(round(part / whole, 3)) if whole else "–"


def _worst(rate: PathRate | None) -> str:
    return f"{rate.source}→{rate.destination}, {text.rate(rate.bytes_per_second)}" if rate else "–"
