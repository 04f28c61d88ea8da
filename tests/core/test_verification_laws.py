"""Laws of the chain over deployments and answers of any kind: total, never verified by half, never back and forth."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.core import exams
from kvgate.core.serving import (
    ComponentRollout,
    Exam,
    ExamResult,
    FrontendSeen,
    NamespaceReadiness,
    Readiness,
    Reply,
    Rollout,
    ServingSeen,
)
from kvgate.core.steps import Decision, Enable, Prepare, Revert, Verify
from kvgate.core.target import Switch
from kvgate.core.ttft_link import ttft_within_budget
from kvgate.core.verification import CHAINS
from kvgate.dynamo.canary import questions
from tests.core import plays, views
from tests.core.worlds import SPLIT, Scene, entry

counts = st.none() | st.integers(0, 3)
components = st.builds(ComponentRollout, st.sampled_from(("Frontend", "Decode")), counts, counts, counts, counts)
rollouts = st.builds(
    Rollout,
    st.just(3),
    st.none() | st.integers(2, 4),
    st.sampled_from(("", "Pending", "InProgress", "Completed", "Failed", "Odd")),
    ready=st.none() | st.booleans(),
    components=st.lists(components, max_size=2).map(tuple),
)
namespaces = st.builds(
    NamespaceReadiness,
    st.sampled_from(("a", "b")),
    st.booleans(),
    st.dictionaries(st.sampled_from(("prefill", "decode", "aggregated", "odd")), st.integers(0, 40), max_size=3),
    st.lists(st.sampled_from(("prefill", "decode")), max_size=2).map(tuple),
)
readings = st.builds(Readiness, st.booleans(), st.lists(namespaces, max_size=2).map(tuple))
fronts = st.builds(FrontendSeen, st.sampled_from(("f1", "f2")), st.none() | readings, st.just("Timeout"))
odd_servings = st.builds(ServingSeen, rollouts, st.lists(fronts, max_size=2).map(tuple))
times = st.none() | st.floats(0, 1e6) | st.sampled_from((0.0, 1e-9, 1e300, math.inf))


def answer(random: Random, exam: Exam, scene: Scene) -> ExamResult:
    """Replies of which each is what a healthy split would say, or a failure, or nonsense."""
    pairs = tuple((p, d) for p in (1, 2) for d in (3, 4)) if exam.prefills else ()
    kind = random.random()
    replies = []
    for question in questions(exam, pairs, 2)[: random.choice((0, 3, 500))]:
        odd = random.random() < 0.1 * kind
        replies.append(
            Reply(
                f"f{question.frontend}",
                question.tokens,
                question.seed,
                question.round,
                failure="HTTP503" if odd and random.random() < 0.5 else "",
                ttft_seconds=None if odd else 0.4 + random.random() * 4 * kind,
                prompt_tokens=None if odd else question.tokens,
                cached_tokens=question.tokens if question.round else 0,
                router_hit_rate=None if odd else 0.5,
                answer="" if odd else f"a{question.seed}",
                pair=question.pair or random.choice(((1, 3), (2, 4), (5, 5), (None, None))),
            )
        )
    return ExamResult(exam.id, scene.now, tuple(replies), random.choice(("", "", "late")))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.randoms(use_true_random=False), st.lists(odd_servings, min_size=24, max_size=24), st.booleans())
def test_any_deployment_gives_statuses_that_hold_and_moves_that_follow(
    random: Random, odd: list[ServingSeen], healthy: bool
) -> None:
    play = plays.approved()
    results: dict[str, ExamResult] = {}
    decisions: list[Decision] = []
    scene = play.scene
    for seen in odd:
        plain = plays.Play(scene).serving()
        shown = plain if healthy or random.random() < 0.6 else seen
        scene = scene.but(serving=replace(shown, results=dict(results)), workers=plays.pods())
        decision = scene.decide()
        decisions.append(decision)
        scene = scene.but(status=decision.status).later(seconds=random.choice((2, 20, 400)))
        for step in decision.steps:
            if isinstance(step, Enable | Revert):
                scene = scene.switched(Switch.ON if isinstance(step, Enable) else Switch.OFF)
            elif isinstance(step, Prepare | Verify):
                results[step.exam.id] = answer(random, step.exam, scene)
        if random.random() < 0.1:
            results.clear()
    _lawful(decisions)


def _lawful(decisions: list[Decision]) -> None:
    for decision in decisions:
        for memory in decision.status.verifications:
            links = [passed.link for passed in memory.passed]
            assert links == [link for link in CHAINS[SPLIT] if link in links], "each once, in order"
            assert memory.verified_at is None or set(links) == set(CHAINS[SPLIT])
            assert memory.failed is None or memory.verified_at is None or memory.failed.reason == "AnswersDiffer"
            back = any(isinstance(step, Revert) for step in decision.steps)
            on = entry(decision.status).enabled
            assert not (memory.failed and memory.started_at and on) or back or not decision.status.operation
    kinds = [type(step) for decision in decisions for step in decision.patches]
    assert all(one is not two for one, two in pairwise(kinds)), "each patch is followed by the other kind"


@given(st.lists(times, max_size=80), st.lists(times, max_size=80))
@settings(max_examples=60, deadline=None)
def test_any_times_give_a_look_without_raising(before: list[float | None], after: list[float | None]) -> None:
    old = tuple(round(min(value, 1e9) * 1e6) for value in before if value is not None)
    seen = views.view(
        remembered=views.memory(before=(views.agreed()[0].model_copy(update={"ttft_microseconds": old}),))
    )
    replies = [views.reply(index, ttft_seconds=value) for index, value in enumerate(after)]
    look = ttft_within_budget(views.answered(seen, exams.after_ttft(seen.case, seen.memory), *replies))
    assert look.reason
