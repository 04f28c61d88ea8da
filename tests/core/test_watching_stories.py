"""Days on a made-up clock: events and metrics that are lost or flap, and what is switched when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from kvgate.api.status import BaselineEntry, HistoryEntry, Operation, TargetStatus
from kvgate.api.words import Capability, ConditionType
from kvgate.core.ab.evidence import BenchmarkEvidence, Subject
from kvgate.core.decide import decide
from kvgate.core.digests import digest
from kvgate.core.events_seen import EventsSeen, FrontendLook
from kvgate.core.steps import Decision, Enable, Revert
from kvgate.core.target import Switch, TargetView
from tests.core import cases
from tests.core.ab.trials import experiment
from tests.core.event_looks import frontend, frontend_look, seen
from tests.core.test_monitoring import Frontends, Watched, approved, verified
from tests.core.worlds import FAST, NOW, ROUTING, SPLIT, Scene, toggle, told
from tests.invariants import broken

PROJECTION = '{"image":"vllm:1"}'
INTERVAL_SECONDS = 15.0
SOONEST_SECONDS = 1.0
RESTING_SECONDS = 290.0
WON = experiment()


@dataclass
class Routed:
    """KV routing is on and ours, its A/B was won, and the source of a worker's KV events comes and goes, as the router
    counts it. A turn is taken when the last one asked for it, and a look once in each interval; while it is off, the
    clock moves faster."""

    scene: Scene
    loses: tuple[float, float]
    """Within each period (the second number, in seconds), events are lost after so many seconds (the first)."""
    looks: list[FrontendLook] = field(default_factory=list)
    looked_at: datetime | None = None
    held_at: list[datetime] = field(default_factory=list)
    """When a loss had lasted for two looks while routing was on."""
    reverted_at: list[datetime] = field(default_factory=list)
    enabled_at: list[datetime] = field(default_factory=list)

    def turn(self) -> Decision:
        scene, now = self.scene, self.scene.now
        target = TargetView("target-uid", split="agg", toggles=scene.toggles)
        world = replace(scene.world, target=target, events=self._events(), benchmarks=(self._won(),))
        decision = decide(scene.pool, world, now)
        assert broken(decision.status, scene.generation, now, scene.status) == []
        for step in decision.patches:
            if step.capability is ROUTING:
                (self.enabled_at if isinstance(step, Enable) else self.reverted_at).append(now)
            switch = Switch.ON if isinstance(step, Enable) else Switch.OFF
            scene = scene.switched(switch, step.capability, projection=PROJECTION)
        rests = not self.on and not decision.patches and now - self.reverted_at[-1] > timedelta(minutes=1)
        seconds = RESTING_SECONDS if rests else max(decision.requeue_after_seconds, SOONEST_SECONDS)
        self.scene = scene.but(status=decision.status).later(seconds=seconds)
        return decision

    def run(self, **span: float) -> Decision:
        end = self.scene.now + timedelta(**span)
        decision = self.turn()
        while self.scene.now < end:
            decision = self.turn()
        return decision

    @property
    def on(self) -> bool:
        return self.scene.toggles[ROUTING].switch is Switch.ON

    def _events(self) -> EventsSeen:
        now = self.scene.now
        if self.looked_at is None or (now - self.looked_at).total_seconds() >= INTERVAL_SECONDS - 0.5:
            lost = (now - NOW).total_seconds() % self.loses[1] >= self.loses[0]
            self.looks.append(frontend_look(len(self.looks) + 1, mismatched=int(lost)))
            self.looked_at = now
            if self.on and self._lost(-1) and self._lost(-2) and not self._lost(-3):
                self.held_at.append(now)
        return seen(frontends=(frontend("fe-1", *self.looks[-8:]),))

    def _lost(self, place: int) -> bool:
        counts = self.looks[place].counts if len(self.looks) >= -place else None
        return counts is not None and bool(counts.mismatched)

    def _won(self) -> BenchmarkEvidence:
        subject = Subject("target-uid", digest(PROJECTION), "agg")
        ended = self.scene.now - timedelta(hours=1)
        return BenchmarkEvidence("run-1", cases.POOL_UID, ended, subject, WON, report="r")


def routed(loses: tuple[float, float] = (1e9, 1e9)) -> Routed:
    asked = {"benchmark": {"targetRef": {"name": "staging"}}}
    scene = Scene().switched(Switch.OFF).gating(ROUTING, Switch.ON).asking(criteria__routing=asked)
    held = toggle(ROUTING, Switch.ON, projection=PROJECTION)
    entry = HistoryEntry(time=NOW - timedelta(hours=2), action="Enabled", capability=ROUTING, reason="CriteriaMet")
    target = TargetStatus(uid="target-uid", baseline=held.off_values)
    status = scene.status.model_copy(update={"history": (entry,), "target": target})
    return Routed(scene.but(toggles={**scene.toggles, ROUTING: held}, status=status), loses)


def test_healthy_events_switch_nothing_for_an_hour() -> None:
    life = routed()
    life.run(hours=1)
    assert life.on
    assert (life.reverted_at, life.held_at) == ([], [])


@pytest.mark.parametrize("begins", [0.0, 7.0, 100.0, 1000.0])
def test_lost_events_are_patched_back_in_the_turn_that_sees_the_loss_hold(begins: float) -> None:
    life = routed((begins, 1e9))
    life.run(seconds=begins + 60)
    assert not life.on
    assert life.reverted_at == life.held_at
    assert (life.held_at[0] - NOW).total_seconds() <= begins + 2 * INTERVAL_SECONDS + SOONEST_SECONDS


def sweeping(life: Routed) -> None:
    life.scene = life.scene.but(sweeping=True)


def in_flight(step: str, capability: Capability = SPLIT) -> Operation:
    return Operation(id="abc", capability=capability, plan_hash="v1:sha256:" + "0" * 64, step=step, started_at=NOW)


def enabling_the_split(life: Routed) -> None:
    begun = BaselineEntry(component="VllmDecodeWorker", env="DYN_DISAGGREGATION_MODE", present=False)
    target = life.scene.status.target
    assert target is not None
    kept = target.model_copy(update={"baseline": (*target.baseline, begun)})
    life.scene = life.scene.but(
        status=life.scene.status.model_copy(update={"operation": in_flight("Enable"), "target": kept})
    )


def suspicious_evidence(life: Routed) -> None:
    life.scene = life.scene.but(evidence=())


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(sweeping, id="a sweep runs"),
        pytest.param(enabling_the_split, id="the split is being switched on"),
        pytest.param(suspicious_evidence, id="nothing was ever measured"),
    ],
)
def test_nothing_else_that_goes_on_delays_it(busy: Callable[[Routed], None]) -> None:
    life = routed((0.0, 1e9))
    busy(life)
    life.run(seconds=60)
    assert life.reverted_at == life.held_at[:1]
    assert life.reverted_at


def test_events_that_flap_every_ten_seconds_for_a_day() -> None:
    life = routed((10.0, 20.0))
    decision = life.run(hours=23, minutes=59)
    assert life.reverted_at == life.held_at, "each rollback comes in the turn in which the loss holds"
    assert (len(life.reverted_at), len(life.enabled_at)) == (2, 1)
    (again,) = life.enabled_at
    assert again - life.reverted_at[0] >= timedelta(hours=1), "re-enabling waits for the cool-down"
    assert not life.on
    assert told(decision.status, ConditionType.READY) == ("False", "RollbackLoop")
    assert told(decision.status, ConditionType.STALLED)[0] == "True"


def test_a_person_who_opens_a_loop_again_meets_a_longer_cool_down_each_time() -> None:
    life = routed((10.0, 20.0))
    life.run(hours=2)
    waits = []
    for _ in range(3):
        back = life.reverted_at[-1]
        life.run(minutes=5)
        life.scene = life.scene.approved(ROUTING, planHash=_hash(life))
        while len(life.enabled_at) < len(life.reverted_at):
            life.turn()
        waits.append(life.enabled_at[-1] - back)
        while len(life.reverted_at) <= len(waits) + 1:
            life.turn()
    hours = [round(wait.total_seconds() / 3600) for wait in waits]
    assert hours == [2, 4, 8]


def _hash(life: Routed) -> str:
    return next(entry.plan_hash for entry in life.scene.status.capabilities if entry.name is ROUTING)


def test_errors_that_flap_every_ten_seconds_for_a_day() -> None:
    play = verified(Frontends(per_second=50))
    reverts: list[datetime] = []
    opened = play.scene.now
    waits_for_approval = False
    while play.scene.now - opened < timedelta(hours=23):
        lossy = int((play.scene.now - opened).total_seconds() // 10) % 2 == 1
        play.frontends_metrics.after = 0.5 if lossy else 0.0
        at = play.scene.now
        decision = play.turn()
        began = [step for step in decision.patches if isinstance(step, Revert)]
        reverts += [at] if began else []
        waits_for_approval = waits_for_approval or told(decision.status, ConditionType.APPROVED)[0] == "False"
        play.scene = play.scene.but(now=at + timedelta(seconds=max(decision.requeue_after_seconds, SOONEST_SECONDS)))
        if not play.split and play.scene.evidence[0].measured_at < play.scene.now - timedelta(hours=20):
            play.scene = play.scene.measured(FAST)
    assert len(reverts) == 1, "the split needs a new approval, and nobody gave one"
    assert (reverts[0] - opened).total_seconds() <= 10 + 2 * INTERVAL_SECONDS
    assert waits_for_approval
    assert not play.split


def test_a_second_rollback_by_errors_within_a_day_is_a_loop() -> None:
    play: Watched = approved()
    for _ in range(2):
        play.frontends_metrics.after = 0.001
        play.until(ConditionType.DISAGGREGATION_ENABLED, "True", "Verified")
        play.frontends_metrics.after = 0.5
        play.scene = play.scene.later(minutes=10)
        play.until(ConditionType.ROLLED_BACK, "True", "Disaggregation")
        play.frontends_metrics.after = 0.001
        play.scene = play.scene.later(hours=2).measured(FAST)
        decision = play.turn()
        if told(decision.status, ConditionType.READY)[1] != "RollbackLoop":
            play.scene = play.scene.approved()
    assert told(play.turn().status, ConditionType.READY) == ("False", "RollbackLoop")
