"""What people and pipelines read: aligned tables, YAML and JSON of one judged pool."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvgate.api.status import PoolStatus
from kvgate.api.words import ApprovalState, ConditionStatus, Outcome
from kvgate.core import text
from kvgate.core.explain import Explanation, PathLine
from kvgate.core.world import Pool

_COLOURS = {
    Outcome.PASS.value: "green",
    Outcome.FAIL.value: "red",
    Outcome.ERROR.value: "red",
    Outcome.INCONCLUSIVE.value: "yellow",
    Outcome.UNKNOWN.value: "yellow",
    ConditionStatus.TRUE.value: "green",
    ConditionStatus.FALSE.value: "red",
}


_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True)
class Report:
    """One pool after its last turn: what was found, what was written, and what was done to files."""

    pool: Pool
    status: PoolStatus
    explanation: Explanation
    done: tuple[str, ...] = ()
    patch: str = ""
    approval: str = ""

    @property
    def passed(self) -> bool:
        """Whether every gated capability passes; nothing gated is no pass."""
        outcomes = [entry.outcome for entry in self.status.capabilities]
        return bool(outcomes) and all(outcome is Outcome.PASS for outcome in outcomes)


def approval_template(pool: Pool, status: PoolStatus, explanation: Explanation) -> str:
    """A GateApproval, ready for an approver to fill in and save, for the first capability that waits for one."""
    for entry in status.capabilities:
        waiting = entry.plan_hash and not entry.enabled and entry.approval.state is not ApprovalState.VALID
        if not waiting or entry.approval.state is ApprovalState.NOT_REQUIRED:
            continue
        findings = [finding for capability, finding in explanation.findings if capability is entry.name]
        accept = sorted({finding.reason for finding in findings if finding.outcome is Outcome.INCONCLUSIVE})
        spec: dict[str, Any] = {
            "poolRef": {"name": pool.name, "uid": pool.uid},
            "capability": entry.name.value,
            "planHash": entry.plan_hash,
            "approver": "<your user name>",
        }
        if accept:
            spec["acceptInconclusive"] = accept
        block = pool.spec.criteria.of(entry.name)
        if block and block.attestations:
            spec["attestations"] = list(block.attestations)
        spec["reason"] = "<for the auditor>"
        spec["expiresAt"] = "<at most 90 days from now, as 2027-01-31T00:00:00Z>"
        return _yaml(
            {
                "apiVersion": "kvgate.dev/v1alpha1",
                "kind": "GateApproval",
                "metadata": {"name": f"{pool.name}-{entry.name.lower()}", "namespace": pool.namespace},
                "spec": spec,
            }
        )
    return ""


def printable(words: str) -> str:
    """Foreign words as a terminal may show them: what would steer it, or turn its text around, is a question mark."""
    return _STEERING.sub("?", words)


def print_reports(reports: Sequence[Report], form: Format, console: Console) -> None:
    if form is Format.TABLE:
        for report in reports:
            _print_table(report, console)
        return
    document = {"apiVersion": "kvgate.dev/v1alpha1", "kind": "Evaluation", "pools": [as_document(r) for r in reports]}
    console.out(as_json(document) if form is Format.JSON else _yaml(document).rstrip(), highlight=False)


def as_json(document: object) -> str:
    return json.dumps(document, indent=2, sort_keys=False)


def as_document(report: Report) -> dict[str, Any]:
    """The stable form of `-o json` and `-o yaml`: see docs/cli.md."""
    return {
        "name": report.pool.name,
        "namespace": report.pool.namespace,
        "uid": report.pool.uid,
        "passed": report.passed,
        "status": report.status.model_dump(mode="json", by_alias=True, exclude_none=True),
        "findings": [
            {
                "capability": capability.value,
                "criterion": finding.criterion,
                "outcome": finding.outcome.value,
                "reason": finding.reason,
                "message": finding.message,
            }
            for capability, finding in report.explanation.findings
        ],
        "paths": [_path_document(line) for line in report.explanation.paths],
        "done": list(report.done),
        "patch": report.patch,
    }


def _path_document(line: PathLine) -> dict[str, Any]:
    return {
        "from": line.path.source,
        "to": line.path.destination,
        "linkBytesPerSecond": _whole(line.link),
        "endpointBytesPerSecond": _whole(line.endpoint),
        "roundTripMicroseconds": _microseconds(line.latency.round_trip),
        "loadedRoundTripMicroseconds": _microseconds(line.latency.loaded),
        "setUpMilliseconds": None if line.latency.set_up is None else round(line.latency.set_up * 1000),
        "failure": line.failure.value if line.failure else None,
        "message": line.message,
        "notes": list(line.notes),
    }


def _whole(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def _print_table(report: Report, console: Console) -> None:
    pool, status = report.pool, report.status
    console.print()
    console.print(
        Text(f"InferencePool {pool.key}", style="bold")
        + Text(f"   mode {pool.spec.mode.value}   target {pool.spec.target_ref.name}   model {pool.spec.model.name}")
    )
    section(console, ("PATH", "LINK", "ENDPOINT", "NOTE"), (_path_row(line) for line in report.explanation.paths))
    section(console, LATENCIES, _latencies(report.explanation.paths))
    if status.kv_cache:
        console.print(f"\nKV cache: {status.kv_cache.bytes_per_token} B per token ({status.kv_cache.derivation})")
    section(console, ESTIMATES, _estimates(status))
    if status.longest_prompt_within_budget is not None:
        console.print(f"\nLongest prompt within the budget: {status.longest_prompt_within_budget} tokens")
    section(console, ("KV STORAGE", "RECOMPUTE", "BREAK-EVEN"), _break_even(status))
    section(console, ("AT FAULT", "SETTLED", "TESTS"), _suspects(status))
    conditions = ((c.type, c.status.value, c.reason, c.message) for c in status.conditions if c.reason != "NotGated")
    section(console, ("CONDITION", "STATUS", "REASON", "MESSAGE"), conditions)
    for line in report.done:
        console.print(f"\n{line}")
    if report.patch:
        console.print(Text(report.patch.rstrip()))
    if report.approval:
        console.print("\nTo approve, save this beside the pool, filled in:\n")
        console.print(Text(report.approval.rstrip()))


def _path_row(line: PathLine) -> tuple[str, ...]:
    note = "; ".join(line.notes) if line.failure is None else f"{line.failure.value}: {line.message}"
    return (str(line.path), _rate(line.link), _rate(line.endpoint), note)


LATENCIES = ("PATH", "ROUND TRIP", "UNDER LOAD", "SET-UP")


def _latencies(lines: Iterable[PathLine]) -> Iterable[tuple[str, ...]]:
    for line in lines:
        told = (line.latency.round_trip, line.latency.loaded, line.latency.set_up)
        if any(seconds is not None for seconds in told):
            yield (str(line.path), *("-" if seconds is None else text.brief(seconds) for seconds in told))


def _rate(rate: float | None) -> str:
    return "-" if rate is None else text.rate(rate)


ESTIMATES = ("PROMPT", "KV BYTES", "LINK", "ENDPOINT", "ADDED TTFT", "OF IT WAITING", "BUDGET", "ESTIMATE")


def _estimates(status: PoolStatus) -> Iterable[tuple[str, ...]]:
    for entry in status.estimates:
        queue = _milliseconds(entry.queue_milliseconds)
        yield (
            f"{entry.prompt_tokens} tokens",
            text.size(entry.kv_bytes),
            _milliseconds(entry.link_milliseconds),
            _milliseconds(entry.endpoint_milliseconds),
            text.span(entry.added_ttft_milliseconds / 1000),
            queue,
            text.span(entry.budget_milliseconds / 1000),
            entry.outcome.value,
        )


def _milliseconds(count: int | None) -> str:
    return "-" if count is None else text.span(count / 1000)


def _break_even(status: PoolStatus) -> Iterable[tuple[str, ...]]:
    for entry in status.estimates:
        if entry.recompute_milliseconds is not None and entry.break_even_bytes_per_second is not None:
            rate = text.rate(entry.break_even_bytes_per_second)
            yield f"{entry.prompt_tokens} tokens", _milliseconds(entry.recompute_milliseconds), rate


def _suspects(status: PoolStatus) -> Iterable[tuple[str, ...]]:
    for suspect in status.fabric.suspects if status.fabric else ():
        yield suspect.name, "yes" if suspect.settled else "not yet", suspect.tests


_WHOLE = frozenset({"PATH", "CONDITION", "STATUS", "REASON", "POOL", "CAPABILITY", "STATE", "SINCE", "WHY", "WHO ACTS"})


def section(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]], *, gap: bool = True) -> None:
    """A table without rules, after an empty line unless it opens the page; nothing where it has no rows."""
    listed = list(rows)
    if not listed:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in _WHOLE)
    for row in listed:
        table.add_row(*(Text(printable(cell), style=_COLOURS.get(cell, "")) for cell in row))
    with console.capture() as captured:
        console.print(table)
    console.out("\n" * gap + "\n".join(line.rstrip() for line in captured.get().splitlines()), highlight=False)
