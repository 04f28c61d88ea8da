"""What a pool's status says as series of metrics: one row for each metric, each a pure function of one pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from kvgate.api.status import Estimate, LayerStatus, PoolStatus
from kvgate.api.words import Capability, ConditionStatus, Mode
from kvgate.core.memory import Action, of
from kvgate.core.world import Pool

POOL = ("namespace", "pool")
Points = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels beyond those of the pool, and the number."""


@dataclass(frozen=True)
class Watched:
    """A pool, its status as it was last read or written, and how many of its turns have failed in a row.

    Nothing else of the pool is held: what a turn read beside it may be large.
    """

    namespace: str
    name: str
    mode: Mode
    target: str
    status: PoolStatus
    failures: int = 0

    @classmethod
    def of(cls, pool: Pool, status: PoolStatus, failures: int = 0) -> Watched:
        return cls(pool.namespace, pool.name, pool.spec.mode, pool.spec.target_ref.name, status, failures)

    @property
    def labels(self) -> tuple[str, str]:
        return (self.namespace, self.name)


@dataclass(frozen=True)
class Series:
    """One metric: its name, its labels beyond those of the pool, and its points. A counter's name has no `_total`."""

    name: str
    help: str
    points: Callable[[Watched, datetime], Points]
    labels: tuple[str, ...] = ()
    counts: bool = False


def info(watched: Watched, _: datetime) -> Points:
    yield (watched.mode.value, watched.target), 1.0


def conditions(watched: Watched, _: datetime) -> Points:
    for said in watched.status.conditions:
        yield (said.type, said.status.value, said.reason), 1.0


def condition_since(watched: Watched, _: datetime) -> Points:
    for said in watched.status.conditions:
        yield (said.type,), said.last_transition_time.timestamp()


def outcomes(watched: Watched, _: datetime) -> Points:
    for entry in watched.status.capabilities:
        yield (entry.name.value, entry.outcome.value), 1.0


def enabled(watched: Watched, _: datetime) -> Points:
    for entry in watched.status.capabilities:
        yield (entry.name.value,), float(entry.enabled)


def permitted(watched: Watched, _: datetime) -> Points:
    for entry in watched.status.capabilities:
        yield (entry.name.value,), float(entry.name in watched.status.permitted)


def held(watched: Watched, _: datetime) -> Points:
    for entry in watched.status.capabilities:
        if entry.held_by:
            yield (entry.name.value, entry.held_by), 1.0


def held_since(watched: Watched, _: datetime) -> Points:
    """By the condition `…Enabled`: the status of a capability that is off has stood since it last went off."""
    since = {said.type: said for said in watched.status.conditions}
    for entry in watched.status.capabilities:
        said = since.get(f"{entry.name}Enabled")
        if entry.held_by and said is not None and said.status is ConditionStatus.FALSE:
            yield (entry.name.value,), said.last_transition_time.timestamp()


def switched_on(watched: Watched, _: datetime) -> Points:
    for capability in Capability:
        for entry in of(watched.status.history, capability, Action.ENABLED)[:1]:
            yield (capability.value,), entry.time.timestamp()


def layers(read: Callable[[LayerStatus], float | None]) -> Callable[[Watched, datetime], Points]:
    def points(watched: Watched, _: datetime) -> Points:
        for name, layer in watched.status.fabric.layers if watched.status.fabric else ():
            if (value := read(layer)) is not None:
                yield (name, layer.tool), float(value)

    return points


def evidence_age(watched: Watched, now: datetime) -> Points:
    fabric = watched.status.fabric
    if fabric is not None and fabric.measured_at is not None:
        yield (), max(0.0, (now - fabric.measured_at).total_seconds())


def evidence_measured(watched: Watched, _: datetime) -> Points:
    fabric = watched.status.fabric
    if fabric is not None and fabric.measured_at is not None:
        yield (), fabric.measured_at.timestamp()


def evidence_expires(watched: Watched, _: datetime) -> Points:
    fabric = watched.status.fabric
    if fabric is not None and fabric.expires_at is not None:
        yield (), fabric.expires_at.timestamp()


def estimates(read: Callable[[Estimate], float]) -> Callable[[Watched, datetime], Points]:
    def points(watched: Watched, _: datetime) -> Points:
        for entry in {entry.prompt_tokens: entry for entry in watched.status.estimates}.values():
            yield (str(entry.prompt_tokens),), read(entry)

    return points


def longest_prompt(watched: Watched, _: datetime) -> Points:
    if (tokens := watched.status.longest_prompt_within_budget) is not None:
        yield (), float(tokens)


def workers(watched: Watched, _: datetime) -> Points:
    events = watched.status.routing.events if watched.status.routing else None
    for state, count in (
        (("expected", events.expected_workers), ("publishing", events.publishing_workers)) if events else ()
    ):
        if count is not None:
            yield (state,), float(count)


def sweeping(watched: Watched, _: datetime) -> Points:
    yield (), float(watched.status.sweep is not None)


def sweeps(watched: Watched, _: datetime) -> Points:
    yield (), float(watched.status.sweeps)


def failures(watched: Watched, _: datetime) -> Points:
    yield (), float(watched.failures)


_LAYER, _PROMPT = ("layer", "tool"), ("prompt_tokens",)
_CAPABILITY = ("capability",)

SERIES: tuple[Series, ...] = (
    Series("kvgate_pool_info", "Always 1: the mode and the deployment of a pool.", info, ("mode", "target")),
    Series(
        "kvgate_pool_condition",
        "Always 1: the status and the reason of each condition.",
        conditions,
        ("type", "status", "reason"),
    ),
    Series(
        "kvgate_pool_condition_transition_timestamp_seconds",
        "When the status of each condition last changed, in Unix time.",
        condition_since,
        ("type",),
    ),
    Series(
        "kvgate_pool_failing_turns",
        "Turns of the pool that have failed in a row; 0 after one that did not.",
        failures,
    ),
    Series(
        "kvgate_capability_outcome",
        "Always 1: what the criteria of each gated capability come to.",
        outcomes,
        ("capability", "outcome"),
    ),
    Series("kvgate_capability_enabled", "1 where the capability is on, else 0.", enabled, _CAPABILITY),
    Series("kvgate_capability_permitted", "1 where it may be switched on now, else 0.", permitted, _CAPABILITY),
    Series(
        "kvgate_capability_held",
        "Always 1, while something holds the capability as it is: the word of heldBy.",
        held,
        ("capability", "by"),
    ),
    Series(
        "kvgate_capability_held_since_timestamp_seconds",
        "Since when a capability that is held has been off, in Unix time.",
        held_since,
        _CAPABILITY,
    ),
    Series(
        "kvgate_capability_switched_on_timestamp_seconds",
        "When kvgate last switched the capability on, in Unix time.",
        switched_on,
        _CAPABILITY,
    ),
    Series("kvgate_fabric_paths", "Paths in use.", layers(lambda layer: layer.paths), _LAYER),
    Series("kvgate_fabric_measured_paths", "Paths that have a number.", layers(lambda layer: layer.measured), _LAYER),
    Series(
        "kvgate_fabric_worst_bytes_per_second",
        "What the slowest path carries.",
        layers(lambda layer: layer.worst.bytes_per_second if layer.worst else None),
        _LAYER,
    ),
    Series(
        "kvgate_fabric_judged_bytes_per_second",
        "The throughput that is judged: the percentile that the pool asks for.",
        layers(lambda layer: layer.judged_bytes_per_second),
        _LAYER,
    ),
    Series(
        "kvgate_fabric_median_bytes_per_second",
        "What the middle path carries.",
        layers(lambda layer: layer.median_bytes_per_second),
        _LAYER,
    ),
    Series("kvgate_fabric_evidence_age_seconds", "How old the evidence of the fabric is.", evidence_age),
    Series(
        "kvgate_fabric_evidence_measured_timestamp_seconds",
        "When the evidence of the fabric was measured, in Unix time.",
        evidence_measured,
    ),
    Series(
        "kvgate_fabric_evidence_expiry_timestamp_seconds",
        "When the evidence of the fabric expires, in Unix time.",
        evidence_expires,
    ),
    Series(
        "kvgate_estimate_added_ttft_seconds",
        "What the split is estimated to add to the time to first token.",
        estimates(lambda entry: entry.added_ttft_milliseconds / 1000),
        _PROMPT,
    ),
    Series(
        "kvgate_estimate_ttft_budget_seconds",
        "What it may add.",
        estimates(lambda entry: entry.budget_milliseconds / 1000),
        _PROMPT,
    ),
    Series(
        "kvgate_longest_prompt_within_budget_tokens",
        "The longest prompt for which the estimate is within the budget.",
        longest_prompt,
    ),
    Series(
        "kvgate_kv_events_workers",
        "Workers that should publish KV events, and those that do.",
        workers,
        ("state",),
    ),
    Series("kvgate_sweep_running", "1 while a sweep of the pool is under way, else 0.", sweeping),
    Series("kvgate_sweeps_started", "Sweeps of the pool that have begun since it was made.", sweeps, counts=True),
)
