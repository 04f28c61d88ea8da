"""`kvgate evaluate`: the operator's verdict on files, without a cluster and without touching anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from kvgate.api.words import Capability, Outcome
from kvgate.app.output import Report, approval_template, printable
from kvgate.app.pipelines import Check, Level
from kvgate.core.decide import decide
from kvgate.core.explain import explain
from kvgate.core.findings import NOTHING_JUDGED, Finding
from kvgate.core.world import Pool
from kvgate.edge.errors import EdgeError
from kvgate.edge.files import Read, objects_of, read_sources
from kvgate.edge.objects import Objects, opened
from kvgate.edge.observe import pool_of, world_of
from kvgate.edge.targets import preview
from kvgate.edge.yamlplaces import Named, Places

_EVIDENCE = frozenset({"FabricReport", "BenchmarkReport"})
_BLOCKS = {
    Capability.ROUTING: "routing",
    Capability.DISAGGREGATION: "disaggregation",
    Capability.KV_STORAGE: "kvStorage",
}


def evaluate_files(pool: Path, evidence: Iterable[Path], target: Path | None, now: datetime) -> tuple[Report, ...]:
    """A report per pool. Raises EdgeError when a file, or a document of ours in one, cannot be read."""
    evidence = tuple(evidence)
    read = read_sources([pool, *evidence, *((target,) if target else ())])
    objects = objects_of(read)
    if not objects.pools:
        raise EdgeError(f"{pool}: holds no InferencePool of kvgate.dev/v1alpha1")
    if target and not objects.targets:
        raise EdgeError(f"{target}: holds no DynamoGraphDeployment of nvidia.com")
    _refuse_empty(evidence, read)
    return tuple(_report(pool_of(stored), objects, now, target_needed=target is not None) for stored in objects.pools)


def _refuse_empty(evidence: Iterable[Path], read: Read) -> None:
    """A file that was meant as evidence and holds none is a slip, which no verdict should hide."""
    for path in evidence:
        kinds = {str(one.body.get("kind")) for source in read.sources if source.path == path for one in opened(source)}
        if not kinds & _EVIDENCE:
            held = f"it holds {', '.join(sorted(map(printable, kinds)))}" if kinds else "it is empty"
            raise EdgeError(f"{path}: holds no FabricReport and no BenchmarkReport of kvgate.dev/v1alpha1: {held}")


def _report(pool: Pool, objects: Objects, now: datetime, *, target_needed: bool) -> Report:
    world = world_of(pool, objects, target_needed=target_needed, nodes_needed=False)
    decision, told = decide(pool, world, now), explain(pool, world, now)
    return Report(
        pool=pool,
        status=decision.status,
        explanation=told,
        patch=preview(pool, objects, decision.steps),
        approval=approval_template(pool, decision.status, told),
    )


def checks_of(reports: Sequence[Report], file: Path) -> tuple[Check, ...]:
    """Every finding as a check at its criteria in the pool's file. One of them fails exactly where a report does not
    pass: what an approval accepts is a note, and a pool that gates nothing has a failing check of its own."""
    places = Places()
    return tuple(check for report in reports for check in _checks(report, file, places))


def _checks(report: Report, file: Path, places: Places) -> list[Check]:
    named = Named("InferencePool", report.pool.name, report.pool.namespace)
    passing = {entry.name for entry in report.status.capabilities if entry.outcome is Outcome.PASS}

    def check(capability: Capability | None, finding: Finding) -> Check:
        field = f"spec.criteria.{_BLOCKS[capability]}" if capability else "spec"
        return Check(
            subject=f"{report.pool.key} {capability or 'criteria'}",
            name=finding.criterion,
            level=_level(finding.outcome, accepted=capability in passing),
            rule=finding.reason,
            message=finding.message,
            file=file.as_posix(),
            line=places.line(file, named, field),
            broken=finding.outcome is Outcome.ERROR,
        )

    found = [check(capability, finding) for capability, finding in report.explanation.findings]
    return found or [check(None, NOTHING_JUDGED)]


def _level(outcome: Outcome, *, accepted: bool) -> Level:
    if outcome is Outcome.PASS:
        return Level.PASS
    if accepted:
        return Level.NOTE
    return Level.ERROR if outcome in {Outcome.FAIL, Outcome.ERROR} else Level.FAILURE
