"""What was measured, as parameters of other tools: Dynamo's mocker, AIConfigurator, and Dynamo's kvTransferPolicy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low

import yaml

from kvgate.app.report.names import shown
from kvgate.app.report.subject import PathFact, Reach, Subject
from kvgate.core import text
from kvgate.core.rates import lower_percentile
from kvgate.core.topology import short
from kvgate.edge.errors import EdgeError

WORTHWHILE = 1.25
"""A label is worth a policy where paths within one of its places carry so many times as much as those across."""
_NO_DOMAIN = re.compile(r"[^a-z0-9]+")


def mocker(subject: Subject) -> str:
    """Arguments of `python -m dynamo.mocker` for prefill workers: decimal GB per second, and KV bytes per token."""
    rate = _judged(subject)
    args = ["--kv-transfer-bandwidth", f"{rate / 1e9:.6g}"]
    per_token = _bytes_per_token(subject)
    if per_token is not None:
        args += ["--kv-bytes-per-token", str(per_token)]
    head = (
        *_head(subject),
        "For the args of mocker workers with the prefill role. The mocker charges each prompt's bytes at this rate,",
        "and lets no two transfers contend for a link.",
    )
    return _commented(head, {"args": args})


def aiconfigurator(subject: Subject) -> str:
    """What replaces `node.inter_node_bw` (bytes per second) in a system's YAML, and `p2p_latency` where it was seen."""
    node: dict[str, float] = {"inter_node_bw": round(_judged(subject), 1)}
    trips = [s.round_trip_seconds for s in subject.evidence.samples if s.round_trip_seconds]
    if trips:
        node["p2p_latency"] = float(f"{median_low(trips) / 2:.3g}")
    head = (
        *_head(subject),
        "Merge it into a copy of the system's YAML. AIConfigurator reads inter_node_bw as that of one GPU: divide it",
        "by the GPUs of a node that share the interface. It has no transfer term in its time to first token.",
        "In a system with num_gpus_per_rack, inter_node_bw is NVLink: what a network between racks carried is",
        "inter_rack_bw there.",
    )
    return _commented(head, {"node": node})


@dataclass(frozen=True)
class Contrast:
    """What a node label tells apart: the judged bytes per second within its places and across them."""

    key: str
    places: int
    within: float
    across: float | None
    within_paths: int
    across_paths: int
    complete: bool
    """Whether each place that sends has a node that receives."""

    @property
    def ratio(self) -> float:
        return self.within / self.across if self.across else float("inf")


def contrasts(subject: Subject) -> tuple[Contrast, ...]:
    """One per label that puts measured paths both within and across places, the sharpest first."""
    found = (_contrast(subject, key) for key in sorted({key for own in subject.labels.values() for key in own}))
    return tuple(sorted((one for one in found if one), key=lambda one: -one.ratio))


def _contrast(subject: Subject, key: str) -> Contrast | None:
    place = {name: own[key] for name, own in subject.labels.items() if own.get(key)}
    known = [f for f in subject.facts if f.path.source in place and f.path.destination in place]
    known = [f for f in known if f.reach in {Reach.MEASURED, Reach.UNREACHABLE}]
    within = [f for f in known if place[f.path.source] == place[f.path.destination]]
    across = [f for f in known if place[f.path.source] != place[f.path.destination]]
    rate = _percentile(within, subject)
    if rate is None or not across:
        return None
    sends = {place[f.path.source] for f in subject.facts if f.path.source in place}
    receives = {place[f.path.destination] for f in subject.facts if f.path.destination in place}
    others = _percentile(across, subject)
    return Contrast(key, len(sends | receives), rate, others, len(within), len(across), sends <= receives)


def _percentile(facts: Sequence[PathFact], subject: Subject) -> float | None:
    """None where the judged path carries nothing."""
    return lower_percentile([(fact.bytes_per_second or 0.0, 1.0) for fact in facts], subject.percent) or None


def kv_transfer_policy(subject: Subject) -> str:
    """A patch of a DynamoGraphDeployment for the label that tells fast paths from slow ones best; comments alone where
    none does."""
    found = contrasts(subject)
    best = next((one for one in found if one.ratio >= WORTHWHILE), None)
    head = [*_head(subject), *_table(found)]
    if best is None:
        head.append(
            f"No label tells paths apart by {WORTHWHILE:g} times or more: a policy would cost balance and gain nothing."
        )
        return _commented(head, {})
    policy, why = _policy(best, subject)
    head += [*why, "Dynamo refuses to change kvTransferPolicy on a deployment that exists: set it when it is created."]
    return _commented(head, {"spec": {"experimental": {"kvTransferPolicy": policy}}})


def _policy(best: Contrast, subject: Subject) -> tuple[dict[str, object], Iterator[str]]:
    policy: dict[str, object] = {"labelKey": best.key, "domain": _domain(best.key)}
    least = max((line.bytes_per_second for line in subject.required), default=0.0)
    fails_across = best.across is None or best.across * subject.derating < least
    if fails_across and best.within >= least and best.complete:
        return policy | {"enforcement": "required"}, iter(("Paths across carry less than is required: required.",))
    weight = round(1 - (best.across or 0.0) / best.within, 2)
    lacks = () if best.complete else ("A place sends and has no node that receives, so it can't be required.",)
    why = (*lacks, "preferredWeight is 1 − across/within: it biases, and load still counts.")
    return policy | {"enforcement": "preferred", "preferredWeight": weight}, iter(why)


def _domain(key: str) -> str:
    return _NO_DOMAIN.sub("-", short(key).lower()).strip("-") or "domain"


def _table(found: Sequence[Contrast]) -> Iterator[str]:
    if not found:
        yield "No label of the nodes has measured paths both within its places and across them."
    for one in found:
        across = "nothing" if one.across is None else text.rate(one.across)
        yield (
            f"{shown(one.key)}: {one.places} places; within {text.rate(one.within)} ({one.within_paths:,} paths), "
            f"across {across} ({one.across_paths:,} paths)"
        )


def _judged(subject: Subject) -> float:
    if subject.judged_bytes_per_second is None:
        raise EdgeError(f"InferencePool {subject.key}: no path has a number, so there is nothing to hand over")
    return subject.judged_bytes_per_second * subject.derating


def _bytes_per_token(subject: Subject) -> int | None:
    """Of the longest prompt, with what windows and state add, and the copies that decode ranks pull."""
    entries = subject.verdict.status.estimates if subject.verdict else ()
    longest = max(entries, key=lambda entry: entry.prompt_tokens, default=None)
    return -(-longest.kv_bytes // longest.prompt_tokens) if longest else None


def _head(subject: Subject) -> tuple[str, ...]:
    evidence = subject.evidence
    rate = subject.judged_bytes_per_second
    told = "no number" if rate is None else text.rate(rate)
    derated = f", times loadDerating {subject.derating:g}" if subject.derating != 1 else ""
    return (
        f"kvgate report of {shown(subject.key)}, run {shown(evidence.run_id)}, of {text.moment(evidence.measured_at)}.",
        f"Judged throughput, the slowest {subject.percent:g}% of {len(subject.rated):,} paths: {told}{derated}.",
    )


def _commented(head: Sequence[str], document: dict[str, object]) -> str:
    comments = "".join(f"# {shown(line)}\n" for line in head)
    return comments + (yaml.safe_dump(document, sort_keys=False, width=110) if document else "")
