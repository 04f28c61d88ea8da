"""What every criterion looks at: one pool, one sweep, one deployment, and the numbers derived from them once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from kvgate.api.pool import CriteriaBlock, DisaggregationCriteria
from kvgate.api.status import FabricStatus
from kvgate.api.words import Capability, KVEvents
from kvgate.core.estimate import Demand, Load, Share, Transfer, load
from kvgate.core.events import EventsJudged, judge_events
from kvgate.core.evidence import Evidence, Layer, Path, Sample, Uplink
from kvgate.core.faults import SLOW_SHARE, USUAL_PERCENT, Suspect, Trials, further_tests, suspects, trials_of
from kvgate.core.faults_told import blame
from kvgate.core.moments import later
from kvgate.core.rates import Fabric, PathRates, fabric, judged, slowest
from kvgate.core.sharing import SharedLink, shared_links, uplinks
from kvgate.core.standing import Standing, standing
from kvgate.core.target import TargetView
from kvgate.core.topology import KEYS, Places, places
from kvgate.core.workers import PodRole, path_weights, pods_on_nodes
from kvgate.core.world import KVKnown, Pool, World

CLOCK_TOLERANCE = timedelta(minutes=1)


@dataclass(frozen=True)
class Case:
    """One pool before one piece of evidence, at one moment."""

    pool: Pool
    world: World
    evidence: Evidence | None
    now: datetime

    @cached_property
    def events(self) -> EventsJudged | None:
        """What is said of the KV events; None where nobody looked at them, or the pool ignores them."""
        routing = self.pool.spec.criteria.routing
        if self.world.events is None or routing is None or routing.kv_events is KVEvents.IGNORED:
            return None
        return judge_events(self.world.events)

    @property
    def criteria(self) -> DisaggregationCriteria:
        return self.pool.spec.criteria.disaggregation or DisaggregationCriteria()

    def block(self, capability: Capability) -> CriteriaBlock | None:
        """The criteria of one capability; None where it is not gated."""
        return self.pool.spec.criteria.of(capability)

    @cached_property
    def weights(self) -> Mapping[Path, float]:
        """How many pairs of worker pods use each path; empty while no pair of pods has nodes."""
        return path_weights(self.world.pods)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Those that workers may use, and those that worker pods use beyond them."""
        return tuple(dict.fromkeys((*self.world.nodes.paths, *self.weights)))

    @cached_property
    def fabric(self) -> Fabric:
        if self.standing is None:
            return Fabric(tuple(map(PathRates, self.paths)), self.weights)
        return fabric(self.standing.evidence, self.paths, self.weights)

    @cached_property
    def standing(self) -> Standing | None:
        """What counts of this sweep and of those before it; None where there is no sweep of this pool."""
        newest, ttl = self.evidence, self.pool.spec.fabric.evidence_ttl.delta
        if newest is None or newest.pool_uid != self.pool.uid:
            return None
        older = (e for e in self.world.evidence if e.run_id != newest.run_id and e.measured_at <= newest.measured_at)
        return standing(newest, older, self.paths, self.world.nodes.identities, (self.now, ttl))

    @cached_property
    def unanswered(self) -> tuple[Path, ...]:
        """The paths in use that lack an answer which counts now: never measured, failed, or of a changed node."""
        return tuple(path.path for path in self.fabric.paths if not path.answered and not path.path.same_node)

    @cached_property
    def numbers(self) -> tuple[Sample, ...]:
        """The samples that gave the paths in use their numbers."""
        return tuple(sample for path in self.fabric.measured for sample in path.samples)

    @cached_property
    def judged_bytes_per_second(self) -> float | None:
        return judged(self.fabric, self.criteria.slowest_percent_of_paths)

    @cached_property
    def slow(self) -> tuple[PathRates, ...]:
        """The measured paths no faster than the judged one."""
        limit = self.judged_bytes_per_second or 0.0
        return tuple(path for path in self.fabric.measured if (path.bytes_per_second or 0.0) <= limit)

    @cached_property
    def worst_bytes_per_second(self) -> float | None:
        found = slowest(self.fabric)
        return found.bytes_per_second if found else None

    @property
    def expires_at(self) -> datetime | None:
        """When the oldest of what counts dies."""
        since = self.standing.since if self.standing else self.evidence.measured_at if self.evidence else None
        return later(since, self.pool.spec.fabric.evidence_ttl.delta) if since else None

    @property
    def outdated(self) -> FabricStatus | None:
        """The newer evidence that the last verdict rested on, where it is gone and older evidence is left; not where it
        was only dated ahead of the clock."""
        last, now = self.pool.status.fabric, next(iter(self.world.evidence), None)
        if last is None or last.measured_at is None or now is None or last.measured_at - self.now > CLOCK_TOLERANCE:
            return None
        return last if last.measured_at > now.measured_at else None

    @property
    def from_the_future(self) -> bool:
        return self.evidence is not None and self.evidence.measured_at - self.now > CLOCK_TOLERANCE

    @property
    def fresh(self) -> bool:
        return self.expires_at is not None and self.now < self.expires_at and not self.from_the_future

    @cached_property
    def transfer(self) -> Transfer | None:
        """None while either the KV size or a positive throughput is missing."""
        rate, kv = self.judged_bytes_per_second, self.world.kv
        if not isinstance(kv, KVKnown) or not rate or rate <= 0:
            return None
        derating = self.pool.spec.fabric.probe.load_derating.number
        return Transfer(kv.size, kv.block_tokens, self.decode_ranks, rate * derating)

    @property
    def decode_ranks(self) -> int:
        """Ranks that pull the cache: what the pool says, or more where the worker's own args say so."""
        seen = self.world.target.decode_tensor_parallel if isinstance(self.world.target, TargetView) else None
        return max(self.pool.spec.model.kv_cache.tensor_parallel.decode, seen or 1)

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The prompt sizes with their fraction of requests; without shares every request is the largest."""
        prompts = self.pool.spec.workload.prompts
        if all(prompt.share is not None for prompt in prompts):
            return tuple(Share(p.tokens, p.share.fraction) for p in prompts if p.share is not None)
        return (Share(max(prompt.tokens for prompt in prompts), 1.0),)

    @cached_property
    def load(self) -> Load | None:
        """None while the peak request rate, the nodes or the transfer is missing."""
        if self.transfer is None or self.demand is None or not all(uplink.readable for uplink in self.uplinks):
            return None
        return self.load_of(self.transfer, self.demand)

    def load_of(self, transfer: Transfer, demand: Demand) -> Load:
        return load(transfer, self.shares, demand)

    @cached_property
    def demand(self) -> Demand | None:
        """None while the peak request rate or the nodes are missing."""
        peak = self.pool.spec.workload.peak_requests_per_second
        if peak is None or not self.world.nodes.paths:
            return None
        skew = self.pool.spec.workload.skew.number
        prefill, decode = self._sharing(PodRole.PREFILL), self._sharing(PodRole.DECODE)
        return Demand(peak.number, skew, prefill, decode, self.uplinks)

    @cached_property
    def shared_links(self) -> tuple[SharedLink, ...]:
        """Links on which paths slowed each other down in the concurrent phase."""
        return shared_links(self.standing.evidence, self.places) if self.standing and self.fabric.measured else ()

    @cached_property
    def uplinks(self) -> tuple[Uplink, ...]:
        """What many paths share: as the sweep named it, and as it was seen."""
        named = self.evidence.uplinks if self.evidence else ()
        return (*named, *uplinks(self.shared_links, self.fabric, self.places))

    def _sharing(self, role: PodRole) -> float:
        """Over how many nodes a side's load falls: its pods over those of its busiest node. While no pod of it has a
        node: the nodes that it may use, of which it fills no more than it has pods."""
        placed = pods_on_nodes(self.world.pods, role)
        if placed:
            return sum(placed.values()) / max(placed.values())
        prefill, target = role is PodRole.PREFILL, self.world.target
        nodes = len(self.world.nodes.prefill if prefill else self.world.nodes.decode)
        asked = (target.prefill_pods if prefill else target.decode_pods) if isinstance(target, TargetView) else None
        return min(nodes, asked or nodes)

    @cached_property
    def places(self) -> Places:
        """Where the nodes stand, by their labels now, or by those of the sweep where they are gone."""
        seen = (*(self.evidence.nodes if self.evidence else ()), *self.world.nodes.identities)
        return places(seen, self.pool.spec.fabric.schedule.topology_keys or KEYS)

    @cached_property
    def trials(self) -> Trials | None:
        """The tests by which parts of the fabric are accused; None where no path in use is dead, below minThroughput or
        below half of what the better quarter of them carries."""
        if self.standing is None or not (self.fabric.apart.unreachable or self._slow):
            return None
        least = self.criteria.min_throughput
        limit = least.bytes_per_second if least else 0.0
        return trials_of(self.standing.evidence, limit, self.standing.tries)

    @property
    def _slow(self) -> bool:
        found, usual = slowest(self.fabric.apart), judged(self.fabric.apart, USUAL_PERCENT)
        worst = found.bytes_per_second if found else None
        if worst is None or usual is None:
            return False
        least = self.criteria.min_throughput
        return worst < SLOW_SHARE * usual or (least is not None and worst < least.bytes_per_second)

    @cached_property
    def suspects(self) -> tuple[Suspect, ...]:
        """Who is at fault for what is dead or slow, by the tests of this evidence."""
        return suspects(self.trials, self.places) if self.trials else ()

    @property
    def blame(self) -> str:
        """What is said of the suspects at the end of a message."""
        return blame(self.suspects, self.trials) if self.trials else ""

    @property
    def further_tests(self) -> tuple[Path, ...]:
        """The second pass: paths, in use or not, whose test would tell the suspects apart."""
        return further_tests(self.trials, self.suspects) if self.trials else ()

    def has_layer(self, layer: Layer) -> bool:
        return any(sample.layer is layer for sample in self.numbers)
