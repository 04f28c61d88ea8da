"""Views for the tables of links: each says only what differs from a split that has just been written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from kvgate.api.status import AgreedAnswer, LinkPassed, PromptBefore, Verification
from kvgate.core.links import View
from kvgate.core.serving import Exam, ExamResult, Pair, Reply, Rollout, ServingSeen
from kvgate.core.target import Switch
from kvgate.core.workers import WorkerPod
from tests.core import cases, plays
from tests.core.worlds import SPLIT, Scene

NOW = cases.NOW
PAIR: Pair = (11, 21)


def agreed(count: int = 20, tokens: int = 3000) -> tuple[PromptBefore, ...]:
    """So many prompts that were answered alike before, and 30 times of 0.4 s."""
    answers = tuple(AgreedAnswer(seed=seed, digest=f"digest-{seed}") for seed in range(count))
    return (PromptBefore(prompt_tokens=tokens, ttft_microseconds=(400_000,) * 30, agreed=answers),)


def memory(**fields: object) -> Verification:
    plain = Verification(capability=SPLIT, before=agreed(), before_at=NOW, started_at=NOW)
    return plain.model_copy(update=fields)


def passed(*links: str, at: timedelta = timedelta()) -> tuple[LinkPassed, ...]:
    return tuple(LinkPassed(link=link, time=NOW + at) for link in links)


def view(
    *,
    changes: Mapping[str, object] | None = None,
    rollout: Rollout | None = None,
    serving: ServingSeen | None = None,
    remembered: Verification | None = None,
    workers: tuple[WorkerPod, ...] = (),
    later: timedelta = timedelta(),
    **world: object,
) -> View:
    """A split of two prefill and two decode workers that is on, and what was seen of it."""
    seen = serving or plays.Play(Scene().switched(Switch.ON)).serving()
    seen = replace(seen, rollout=rollout) if rollout else seen
    scene = Scene(spec=cases.spec({"mode": "Enforce", **(changes or {})}), now=NOW + later).switched(Switch.ON)
    scene = scene.but(serving=seen, workers=workers or plays.pods(), **world)
    return View(scene.case, remembered or memory(), seen)


def answered(seen: View, exam: Exam, *replies: Reply, **fields: object) -> View:
    """The view once the exam was answered so."""
    result = ExamResult(exam.id, seen.case.now, replies, **fields)  # type: ignore[arg-type]
    serving = replace(seen.serving, results={exam.id: result})
    return replace(seen, serving=serving)


def reply(seed: int = 0, **fields: object) -> Reply:
    plain = Reply(
        frontend="frontend-0",
        tokens=3000,
        seed=seed,
        ttft_seconds=0.5,
        prompt_tokens=3000,
        cached_tokens=0,
        answer=f"digest-{seed}",
        pair=PAIR,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]
