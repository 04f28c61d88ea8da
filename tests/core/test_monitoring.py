"""Watching by metrics, rule by rule and through whole decisions: what closes, what is told, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kvgate.api.status import BenchmarkRun, HistoryEntry, MonitoringStatus
from kvgate.api.words import Capability, ConditionType
from kvgate.core.ab.evidence import BenchmarkEvidence, Provenance, Subject
from kvgate.core.judging import Case
from kvgate.core.metrics_seen import MetricsSeen, Served, Unseen
from kvgate.core.monitoring import Watch, asks, changed_at, findings, hits_enough, watch
from kvgate.core.serving import OwnRequests
from kvgate.core.steps import Decision, Enable, Revert
from kvgate.core.target import Switch
from tests.core.ab.trials import experiment
from tests.core.cases import POOL_UID
from tests.core.plays import Play, pods
from tests.core.worlds import NOW, ROUTING, SPLIT, Scene, condition, told

HEALTHY, BACK, ENABLED = ConditionType.METRICS_HEALTHY, ConditionType.ROLLED_BACK, ConditionType.DISAGGREGATION_ENABLED
GONE = Unseen('Prometheus "default" of the operator\'s settings: no connection')


class Frontends:
    """Plays what a Prometheus tells: requests come at a steady rate, and a share of them fails once something is on."""

    def __init__(self, per_second: float = 1.0, failing: float = 0.001, after: float = 0.001) -> None:
        self.per_second, self.failing, self.after = per_second, failing, after
        self.ttft_before, self.ttft_after = 0.4, 1.7
        self.cached = 0.5
        self.unseen: Unseen | None = None
        self.unready_since: datetime | None = None

    def seen(self, play: Play) -> MetricsSeen:
        now = play.scene.now
        if not asks(play.scene.pool):
            return MetricsSeen()
        if self.unseen is not None:
            return MetricsSeen(now, self.unseen)
        changed = changed_at(play.scene.status.history)
        since = None if changed is None else self._served(play, now, (now - changed).total_seconds())
        return MetricsSeen(
            now,
            lately=self._served(play, now, 3600),
            changed_at=changed,
            since_change=since,
            unready_since=self.unready_since,
        )

    def _served(self, play: Play, until: datetime, seconds: float) -> Served:
        on = any(toggle.switch is Switch.ON for toggle in play.scene.toggles.values())
        count = self.per_second * seconds
        ttft = self.ttft_after if on else self.ttft_before
        failing = self.after if on else self.failing
        return Served(
            until, seconds, count, count * failing, count * 1000, count * 1000 * self.cached, count * ttft, count
        )


class Watched(Play):
    """A play under a Prometheus."""

    def __init__(self, scene: Scene, frontends: Frontends) -> None:
        super().__init__(scene)
        self.frontends_metrics = frontends

    def turn(self) -> Decision:
        self.scene = self.scene.but(metrics=self.frontends_metrics.seen(self))
        return super().turn()


def approved(frontends: Frontends | None = None, **spec: object) -> Watched:
    scene = Scene().asking(monitor__prometheusRef={"name": "default"}, **spec).but(workers=pods())
    play = Watched(scene, frontends or Frontends())
    play.turn()
    play.scene = play.scene.approved()
    return play


def verified(frontends: Frontends | None = None, **spec: object) -> Watched:
    play = approved(frontends, **spec)
    play.until(ENABLED, "True", "Verified")
    return play


def message(decision: Decision, kind: ConditionType = HEALTHY) -> str:
    return condition(decision.status, kind).message


def kept(decision: Decision) -> MonitoringStatus:
    assert decision.status.monitoring is not None
    return decision.status.monitoring


def unseen_since(decision: Decision) -> datetime:
    since = kept(decision).unseen_since
    assert since is not None
    return since


def watching(play: Watched, **span: float) -> Decision:
    """A look after so long at which nothing else happens."""
    play.scene = play.scene.later(**span)
    return play.turn()


def test_nothing_is_asked_while_nothing_is_on_and_nothing_is_about_to_be() -> None:
    scene = Scene().asking(monitor__prometheusRef={"name": "default"}).but(workers=pods())
    play = Watched(scene, Frontends())
    assert told(play.turn().status, HEALTHY) == ("Unknown", "NothingOn")
    assert play.scene.metrics == MetricsSeen()
    assert not asks(play.scene.pool)


def test_before_the_switch_the_errors_are_seen_and_kept() -> None:
    play = approved()
    decision = play.until(ConditionType.READY, "True", "HoldingForMetrics")
    assert not decision.patches
    decision = play.until(ENABLED, "Unknown", "AwaitingVerification")
    (before,) = kept(decision).before
    assert (before.capability, before.failed) == (SPLIT, 4)
    assert before.requests == pytest.approx(3600, abs=400)
    assert before.mean_ttft_milliseconds == pytest.approx(400, abs=20)


def test_the_look_goes_on_while_a_finalizer_is_set_before_the_switch() -> None:
    play = approved(rollback__onDelete__disaggregation="Revert")
    play.scene = play.scene.but(finalizer=False)
    decision = play.until(ENABLED, "Unknown", "AwaitingVerification", most=20)
    (before,) = kept(decision).before
    assert before.capability == SPLIT
    assert before.requests == pytest.approx(3600, abs=400), "kept until it is on"
    steps = [type(step).__name__ for decision in play.decisions for step in decision.steps]
    assert [name for name in steps if name in {"HoldDeletion", "LetGo", "Enable"}] == ["HoldDeletion", "Enable"]


def test_what_cannot_be_watched_is_not_switched_on() -> None:
    play = approved()
    play.frontends_metrics.unseen = GONE
    decision = play.until(ConditionType.READY, "True", "HoldingForMetrics")
    decision = [play.turn() for _ in range(20)][-1]
    assert not any(isinstance(step, Enable) for past in play.decisions for step in past.steps)
    assert "no connection" in message(decision, ConditionType.READY)
    play.frontends_metrics.unseen = None
    play.until(ENABLED, "True", "Verified")


@pytest.mark.parametrize(
    ("after", "minutes", "reason", "closes"),
    [
        pytest.param(0.010, 10, "ErrorsAsBefore", False, id="0.9 points more within the hour: stays"),
        pytest.param(0.012, 10, "ErrorsIncreased", True, id="1.1 points more within the hour: off"),
        pytest.param(0.5, 59, "ErrorsIncreased", True, id="half of all, one minute before the hour is over: off"),
        pytest.param(0.5, 61, "ErrorsIncreased", False, id="half of all, one minute after it: told, and stays"),
    ],
)
def test_errors_close_within_an_hour_of_the_switch(after: float, minutes: float, reason: str, closes: bool) -> None:
    play = verified()
    switched = play.scene.status.history[0].time
    play.frontends_metrics.after = after
    play.scene = play.scene.but(now=switched + timedelta(minutes=minutes))
    decision = play.turn()
    assert bool(decision.patches) is closes
    assert condition(decision.status, HEALTHY).reason == reason
    if not closes:
        assert told(decision.status, ConditionType.READY) == ("True", "Enabled")
        return
    assert isinstance(decision.patches[0], Revert)
    decision = play.until(BACK, "True", "Disaggregation")
    assert decision.status.history[0].reason == "ErrorsIncreased"
    assert "Monitor: " in message(decision, BACK)
    assert "monitor.maxErrorRateIncrease is 1%" in message(decision, BACK)


def test_too_few_requests_close_nothing_and_say_so() -> None:
    play = verified(Frontends(per_second=0.1, after=0.9))
    decision = play.turn()
    assert condition(decision.status, HEALTHY).reason == "TooFewToJudge"
    assert not decision.patches


def test_without_a_baseline_errors_are_not_compared_and_that_is_told() -> None:
    frontends = Frontends(per_second=0.01, after=0.9)
    play = verified(frontends)
    frontends.per_second = 100.0
    decision = watching(play, minutes=5)
    assert told(decision.status, HEALTHY) == ("Unknown", "ErrorsNotCompared")
    assert not decision.patches


def test_a_metric_that_recovers_before_the_patch_is_written_changes_nothing() -> None:
    play = verified()
    play.frontends_metrics.after = 0.5
    watching(play, minutes=10)
    play.scene = play.scene.switched(Switch.ON)
    play.frontends_metrics.after = 0.0
    decision = play.turn()
    assert [type(step) for step in decision.patches] == [Revert]


def test_our_own_prompts_are_neither_errors_nor_requests() -> None:
    own = (OwnRequests(NOW, 300, 300, 3000, 1500, 9.0, 0), OwnRequests(NOW - timedelta(hours=2), 999))
    served = Served(NOW, 3600, 500, 303, 10_000, 2_000, 100.0, 200)
    users = served.without(own)
    assert (users.requests, users.failed, users.prompt_tokens, users.cached_tokens) == (200, 3, 7000, 500)
    assert users.ttft_seconds == pytest.approx(91.0)
    swallowed = Served(NOW, 3600, 10, 5).without(own)
    assert (swallowed.requests, swallowed.failed, swallowed.cached_share) == (0, 0, None)


@pytest.mark.parametrize(
    ("seconds", "minutes", "closes"),
    [
        pytest.param(59, 10, False, id="59 s: borne"),
        pytest.param(61, 10, True, id="61 s within the hour: off"),
        pytest.param(61, 70, False, id="61 s after the hour: told"),
    ],
)
def test_a_model_that_is_not_ready_goes_off_within_the_hour(seconds: float, minutes: float, closes: bool) -> None:
    play = verified()
    switched = play.scene.status.history[0].time
    play.scene = play.scene.but(now=switched + timedelta(minutes=minutes))
    play.frontends_metrics.unready_since = play.scene.now - timedelta(seconds=seconds)
    decision = play.turn()
    assert bool(decision.patches) is closes
    expected = "ModelNotReady" if seconds > 60 else "ErrorsAsBefore"
    assert (condition(decision.status, HEALTHY).reason == expected) or seconds <= 60


def routing_on(**spec: object) -> Watched:
    """Routing is on beside nothing else, in approximate mode, since the first turn."""
    scene = Scene().asking(monitor__prometheusRef={"name": "default"}, **spec).gating(ROUTING, Switch.ON)
    scene = scene.asking(criteria__routing={"kvEvents": "Ignored"})
    entry = HistoryEntry(time=NOW, action="Enabled", capability=ROUTING, reason="CriteriaMet")
    status = scene.status.model_copy(update={"history": (entry,)})
    return Watched(scene.but(status=status), Frontends())


@pytest.mark.parametrize(
    ("cached", "reason"),
    [
        pytest.param(0.19, "HitRatioLow", id="below the limit"),
        pytest.param(0.20, "ErrorsNotCompared", id="at the limit"),
    ],
)
def test_a_low_hit_ratio_is_told_and_closes_nothing(cached: float, reason: str) -> None:
    play = routing_on(monitor__minCacheHitRatio="20%")
    play.turn()
    play.frontends_metrics.cached = cached
    decision = watching(play, minutes=10)
    assert condition(decision.status, HEALTHY).reason == reason
    assert not [step for step in decision.patches if isinstance(step, Revert)]
    if reason == "HitRatioLow":
        assert "monitor.minCacheHitRatio is 20%" in message(decision)


def ended(play: Watched, minutes_ago: float, *, live: bool) -> BenchmarkEvidence:
    subject = Subject(play.scene.target_uid, "", "agg")
    at = play.scene.now - timedelta(minutes=minutes_ago)
    return BenchmarkEvidence("ab-1", POOL_UID, at, subject, experiment(), Provenance(live=live))


def looked(play: Watched, *benchmarks: BenchmarkEvidence) -> Watch:
    scene = play.scene.but(metrics=play.frontends_metrics.seen(play))
    world = replace(scene.world, benchmarks=benchmarks)
    found = watch(Case(scene.pool, world, world.evidence[0] if world.evidence else None, scene.now))
    assert found is not None
    return found


def under_way(play: Watched, *, live: bool) -> None:
    fence = BenchmarkRun(run_id="ab-2", started_at=play.scene.now, ran_on="qwen3", on_live=live, job_uid="job")
    play.scene = play.scene.but(status=play.scene.status.model_copy(update={"benchmark": fence}))


@pytest.mark.parametrize(
    ("minutes_ago", "live", "reason"),
    [
        pytest.param(10, True, "HeldForBenchmark", id="on the target itself, within the hour that is looked at"),
        pytest.param(61, True, "HitRatioLow", id="on the target itself, before that hour"),
        pytest.param(10, False, "HitRatioLow", id="on a staging deployment"),
    ],
)
def test_hits_beside_an_ab_are_not_judged(minutes_ago: float, live: bool, reason: str) -> None:
    play = routing_on(monitor__minCacheHitRatio="20%")
    play.turn()
    play.frontends_metrics.cached = 0.1
    play.scene = play.scene.later(minutes=70)
    told_of_hits = hits_enough(looked(play, ended(play, minutes_ago, live=live)))
    assert told_of_hits is not None
    assert told_of_hits.reason == reason
    if reason == "HeldForBenchmark":
        assert "the A/B ab-1 used the same workers until" in told_of_hits.message


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        pytest.param(True, "HeldForBenchmark", id="on the target itself"),
        pytest.param(False, "MeanTTFTAboveEstimate", id="on a staging deployment"),
    ],
)
def test_the_mean_ttft_beside_an_ab_that_is_under_way_is_not_judged(live: bool, reason: str) -> None:
    play = verified()
    play.frontends_metrics.ttft_after = 9.0
    play.scene = play.scene.later(minutes=70)
    under_way(play, live=live)
    rules = {finding.criterion: finding.reason for finding in findings(looked(play))}
    assert rules.get("meanTTFT") == reason


def test_errors_beside_an_ab_switch_back_all_the_same() -> None:
    play = verified()
    under_way(play, live=True)
    play.frontends_metrics.after = 0.2
    decision = watching(play, minutes=10)
    assert condition(decision.status, HEALTHY).reason == "ErrorsIncreased"
    assert [step for step in decision.patches if isinstance(step, Revert)]


def test_the_rise_of_the_mean_ttft_stands_beside_the_estimate() -> None:
    play = verified()
    decision = watching(play, minutes=70)
    assert kept(decision).observed_to_estimated == "0.85"
    assert kept(decision).mean_ttft_milliseconds == pytest.approx(1700, abs=50)
    play.frontends_metrics.ttft_after = 9.0
    decision = watching(play, minutes=70)
    assert told(decision.status, HEALTHY) == ("Unknown", "MeanTTFTAboveEstimate")
    assert not decision.patches


@pytest.mark.parametrize("action", ["Hold", "Revert"])
def test_metrics_that_stay_away_are_unknown_and_then_lost(action: str) -> None:
    play = verified(monitor__onMetricsLost={"after": "10m", "action": action})
    play.frontends_metrics.unseen = GONE
    decision = watching(play, seconds=15)
    since = unseen_since(decision)
    assert told(decision.status, HEALTHY) == ("Unknown", "MetricsUnseen")
    assert "no connection" in message(decision)
    play.scene = play.scene.but(now=since + timedelta(minutes=9, seconds=59))
    assert not play.turn().patches
    play.scene = play.scene.but(now=since + timedelta(minutes=10))
    decision = play.turn()
    assert told(decision.status, HEALTHY) == ("Unknown", "MetricsLost")
    assert "monitor.onMetricsLost.after is 10m" in message(decision)
    assert bool(decision.patches) is (action == "Revert")
    if action == "Hold":
        play.frontends_metrics.unseen = None
        decision = watching(play, seconds=15)
        assert kept(decision).unseen_since is None
        assert told(decision.status, HEALTHY)[1] == "ErrorsAsBefore" or told(decision.status, HEALTHY)[0] == "True"


def test_a_restart_does_not_begin_the_loss_anew() -> None:
    play = verified(monitor__onMetricsLost={"after": "10m", "action": "Revert"})
    play.frontends_metrics.unseen = GONE
    since = unseen_since(watching(play, seconds=15))
    scene = play.scene.but(metrics=MetricsSeen(), now=since + timedelta(minutes=11), serving=play.serving())
    assert not scene.decide().patches
    assert kept(scene.decide()).unseen_since == since
    assert scene.but(metrics=MetricsSeen(scene.now, GONE)).decide().patches


def both_on(split_minutes: float, routing_minutes: float, failing: float = 0.5) -> Watched:
    """Both are on, switched so many minutes before now; the baselines of both are kept."""
    play = verified()
    now = play.scene.now + timedelta(hours=2)
    entries = [(SPLIT, split_minutes), (ROUTING, routing_minutes)]
    history = tuple(
        HistoryEntry(time=now - timedelta(minutes=minutes), action="Enabled", capability=one, reason="CriteriaMet")
        for one, minutes in sorted(entries, key=lambda pair: pair[1])
    )
    scene = play.scene.gating(ROUTING, Switch.ON).asking(criteria__routing={"kvEvents": "Ignored"})
    before = play.scene.status.monitoring.before[0]  # type: ignore[union-attr]
    monitoring = MonitoringStatus(before=(before, before.model_copy(update={"capability": ROUTING})))
    toggled = scene.toggles[ROUTING].off_values
    target = play.scene.status.target.model_copy(  # type: ignore[union-attr]
        update={"baseline": (*play.scene.status.target.baseline, *toggled)}  # type: ignore[union-attr]
    )
    status = play.scene.status.model_copy(update={"history": history, "monitoring": monitoring, "target": target})
    play.scene = scene.but(status=status, now=now)
    play.frontends_metrics.after = failing
    return play


@pytest.mark.parametrize(
    ("split_minutes", "routing_minutes", "goes"),
    [
        pytest.param(50, 20, ROUTING, id="both within the hour, routing last: routing"),
        pytest.param(20, 50, SPLIT, id="both within the hour, the split last: the split"),
        pytest.param(90, 20, ROUTING, id="routing alone within the hour: routing"),
        pytest.param(90, 80, None, id="both before the hour: neither"),
    ],
)
def test_the_newest_switch_goes_off_first(
    split_minutes: float, routing_minutes: float, goes: Capability | None
) -> None:
    decision = both_on(split_minutes, routing_minutes).turn()
    assert [step.capability for step in decision.patches] == ([goes] if goes else [])


def test_after_the_newest_went_off_the_other_is_judged_by_requests_since_then_alone() -> None:
    play = both_on(50, 20)
    play.turn()
    decision = play.turn()
    assert [entry.capability for entry in decision.status.history[:1]] == [ROUTING]
    assert decision.status.history[0].action == "Reverted"
    assert not decision.patches
    seen = play.frontends_metrics.seen(play)
    assert seen.changed_at == decision.status.history[0].time
    assert not play.turn().patches, "two seconds are too few requests"
    play.scene = play.scene.later(minutes=5)
    assert [step.capability for step in play.turn().patches] == [SPLIT]


def test_a_steady_deployment_is_not_written_about_for_an_idle_hour() -> None:
    play = verified()
    play.seconds = 15.0
    for _ in range(8):
        play.turn()
    frontends = play.frontends_metrics
    written, status = 0, play.scene.status
    for index in range(230):
        frontends.after = 0.001 + 0.0001 * (index % 7)
        frontends.ttft_after = 1.7 + 0.01 * (index % 5)
        decision = play.turn()
        written += decision.status != status
        status = decision.status
    assert written <= 3


def test_a_verdict_is_asked_for_at_every_interval_while_anything_is_on() -> None:
    play = verified()
    decision = watching(play, minutes=1)
    assert decision.requeue_after_seconds <= 15.0
    lone = replace(play.scene, serving=None)
    assert lone.decide().requeue_after_seconds <= 15.0


def test_a_deployment_of_another_identity_is_compared_with_nothing() -> None:
    play = verified()
    assert play.scene.status.monitoring is not None
    scene = play.scene.but(target_uid="another")
    assert scene.decide().status.monitoring is None or not scene.decide().status.monitoring.before  # type: ignore[union-attr]
