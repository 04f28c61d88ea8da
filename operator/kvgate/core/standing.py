"""What still stands of what was measured: the newest sweep, and older ones for paths that it left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kvgate.core.evidence import Evidence, NodeIdentity, Path
from kvgate.core.moments import later

_Test = tuple[str | int, ...]
"""How a path is tested: layer, tool, operation, streams, phase, size of a piece."""


@dataclass(frozen=True)
class Standing:
    """The samples that count now, as one evidence; `since` is when the oldest sweep among them ended.

    `changed` are the nodes that are not what they were when the newest sweep measured them, each with what changed:
    nothing that was measured of their paths counts. `tries` counts the samples of each path in older sweeps.
    """

    evidence: Evidence
    since: datetime
    changed: Mapping[str, str]
    tries: Mapping[Path, int]


def standing(
    newest: Evidence,
    older: Iterable[Evidence],
    paths: Iterable[Path],
    nodes: Iterable[NodeIdentity],
    dies: tuple[datetime, timedelta],
) -> Standing:
    """What counts of these sweeps for paths between these nodes at a moment, `dies[0]`, when each lives `dies[1]`.

    A path counts by the newest sweep that meant to measure it alone, also where that gave no number, or counts no more.
    Older sweeps, the newer first, fill in what newer ones left out: while they live, for nodes that are still what they
    were, and where they were measured by the same versions of the tools.
    """
    now, samples, planned, since = tuple(nodes), list(newest.samples), list(newest.planned), newest.measured_at
    changed = changes(newest.nodes, now)
    made, versions = _tests(newest), _versions(newest)
    missing, tries = set(paths).difference(newest.planned), dict[Path, int]()
    for sweep in older:
        left, missing = missing, missing.difference(sweep.planned)
        if not _alike(sweep, newest, made) or dies[0] >= later(sweep.measured_at, dies[1]):
            continue
        gone = changes(sweep.nodes, now).keys() | changes(sweep.nodes, newest.nodes).keys()
        other = _by_another_version(sweep, versions)
        filled = {path for path in left.intersection(sweep.planned) if path not in other and not touches(path, gone)}
        samples += [sample for sample in sweep.samples if sample.path in filled]
        for sample in sweep.samples:
            if sample.path not in other and not touches(sample.path, gone):
                tries[sample.path] = tries.get(sample.path, 0) + 1
        planned, since = [*planned, *sorted(filled)], sweep.measured_at if filled else since
    sound = tuple(sample for sample in samples if not touches(sample.path, changed)) if changed else tuple(samples)
    return Standing(replace(newest, samples=sound, planned=tuple(planned)), since, changed, tries)


def _alike(older: Evidence, newer: Evidence, made: frozenset[_Test]) -> bool:
    """Of one pool, whole, by all tests that the newer one `made`, and of one image where both tell theirs: what another
    image measured, or a pool's spec before it was changed, may be another thing."""
    if any(sample.run_id != older.run_id for sample in older.samples):
        return False
    same_image = not older.image or not newer.image or older.image == newer.image
    return older.pool_uid == newer.pool_uid and same_image and made <= _tests(older)


def _tests(sweep: Evidence) -> frozenset[_Test]:
    return frozenset((s.layer, s.tool, s.operation, s.streams, s.phase, s.piece_bytes or 0) for s in sweep.samples)


def _versions(sweep: Evidence) -> Mapping[str, frozenset[str]]:
    """Of each tool that says so, the versions by which it was used: more than one where hosts differ."""
    told = {(sample.tool, sample.tool_version) for sample in sweep.samples if sample.tool_version}
    return {tool: frozenset(version for name, version in told if name == tool) for tool, _ in told}


def _by_another_version(older: Evidence, versions: Mapping[str, frozenset[str]]) -> frozenset[Path]:
    """Its paths that were measured by a version of a tool that the newest sweep knows of, and did not use."""
    return frozenset(
        sample.path
        for sample in older.samples
        if sample.tool_version and sample.tool_version not in versions.get(sample.tool, {sample.tool_version})
    )


def touches(path: Path, nodes: Iterable[str]) -> bool:
    """Whether an end of the path is among these."""
    return path.source in nodes or path.destination in nodes


def changes(then: Iterable[NodeIdentity], now: Iterable[NodeIdentity]) -> Mapping[str, str]:
    """The nodes that are not what they were, each with what changed first; of what either did not tell, nothing is
    said, but for a UID, boot ID or kernel that was not noted then and is known now."""
    before = {node.name: node for node in then}
    told = ((node.name, _changed(before[node.name], node)) for node in now if node.name in before)
    return {name: what for name, what in sorted(told) if what}


def _changed(then: NodeIdentity, now: NodeIdentity) -> str:
    always = (
        (then.uid, now.uid, "replaced"),
        (then.boot_id, now.boot_id, "rebooted"),
        (then.kernel, now.kernel, "has another kernel"),
    )
    if what := next((what for before, after, what in always if after and before != after), ""):
        return what
    places, here = dict(then.labels), dict(now.labels)
    if any(places[key] != here[key] for key in places.keys() & here.keys()):
        return "stands elsewhere by its labels"
    known = ((then.driver, now.driver, "driver"), (then.firmware, now.firmware, "firmware"), (then.mtu, now.mtu, "MTU"))
    if then.image and now.image and then.image != now.image:
        return "was measured by another probe image"
    differs = (what for before, after, what in known if before and after and before != after)
    return next((f"has another {what} on its interface" for what in differs), "")
