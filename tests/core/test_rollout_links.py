"""Generation, rollout and readiness: what each look at them comes to, and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kvgate.core.links import Progress
from kvgate.core.rollout_links import generation_observed, model_ready, outage, rollout_complete
from kvgate.core.serving import ComponentRollout, FrontendSeen, NamespaceReadiness, Readiness, Rollout, ServingSeen
from kvgate.core.target import Switch
from tests.core import views
from tests.core.views import NOW, passed
from tests.core.worlds import SPLIT, toggle

WHOLE = (ComponentRollout("Frontend", 1, 1, 1, 1), ComponentRollout("Decode", 2, 2, 2, 2))
DONE = Rollout(7, 7, "Completed", ready=True, components=WHOLE)

GENERATIONS = {
    "the status observed the newest generation": (7, Progress.PASSED),
    "a newer one than was read": (8, Progress.PASSED),
    "an older one": (6, Progress.WAITING),
    "none at all, as where no Dynamo operator runs": (None, Progress.WAITING),
}


@pytest.mark.parametrize(("observed", "progress"), GENERATIONS.values(), ids=GENERATIONS)
def test_the_generation_must_be_observed(observed: int | None, progress: Progress) -> None:
    look = generation_observed(views.view(rollout=Rollout(7, observed)))
    assert look.progress is progress
    assert "generation is 7" in look.message


def short(**fields: object) -> Rollout:
    return replace(DONE, components=(WHOLE[0], replace(WHOLE[1], **fields)))  # type: ignore[arg-type]


ROLLOUTS = {
    "all pods are up to date": (DONE, Progress.PASSED, "2 components"),
    "no rolling update stands there, as after a small change": (replace(DONE, phase=""), Progress.PASSED, ""),
    "one is under way": (replace(DONE, phase="InProgress"), Progress.WAITING, "InProgress"),
    "one is to come": (replace(DONE, phase="Pending"), Progress.WAITING, "Pending"),
    "a pod is not replaced yet": (short(updated=1), Progress.WAITING, "Decode: 1 updated and 2 ready of 2"),
    "a pod is not ready": (short(ready=1), Progress.WAITING, "Decode: 2 updated and 1 ready of 2"),
    "no pod is ready, which the status leaves out": (short(ready=None), Progress.WAITING, "0 ready of 2"),
    "an old pod is still there": (short(replicas=3), Progress.WAITING, "Decode"),
    "nothing is wanted and nothing runs": (short(wanted=0, replicas=0, updated=0, ready=None), Progress.PASSED, ""),
    "a component that the status lacks": (short(replicas=None, updated=None, ready=None), Progress.WAITING, "Decode"),
    "the status names no component": (replace(DONE, components=()), Progress.UNSEEN, "names no components"),
    "it has no Ready condition": (replace(DONE, ready=None), Progress.UNSEEN, "no Ready condition"),
    "it is not Ready": (replace(DONE, ready=False), Progress.WAITING, "not True"),
}


@pytest.mark.parametrize(("rollout", "progress", "word"), ROLLOUTS.values(), ids=ROLLOUTS)
def test_a_rollout_is_complete_when_every_pod_is_new_and_ready(rollout: Rollout, progress: Progress, word: str) -> None:
    look = rollout_complete(views.view(rollout=rollout))
    assert (look.progress, word in look.message) == (progress, True), look.message


@pytest.mark.parametrize(("seconds", "progress"), [(29, Progress.WAITING), (30, Progress.FAILED)])
def test_a_failed_rollout_counts_once_it_cannot_be_the_word_of_the_one_before(seconds: int, progress: Progress) -> None:
    remembered = views.memory(passed=passed("GenerationObserved"))
    seen = views.view(rollout=replace(DONE, phase="Failed"), remembered=remembered, later=timedelta(seconds=seconds))
    assert rollout_complete(seen).progress is progress


def front(
    workers: dict[str, int], *, ready: bool = True, missing: tuple[str, ...] = (), name: str = "frontend-0"
) -> FrontendSeen:
    return FrontendSeen(name, Readiness(ready, (NamespaceReadiness("demo", ready, workers, missing),)))


SPLIT_UP, WHOLE_ONES = {"prefill": 2, "decode": 2}, {"aggregated": 4}
READY = {
    "prefill and decode at every frontend": ((front(SPLIT_UP), front(SPLIT_UP)), Progress.PASSED, "prefill"),
    "one frontend does not see the prefill workers yet": (
        (front(SPLIT_UP), front({"decode": 2}, ready=False, missing=("prefill",), name="late")),
        Progress.WAITING,
        "frontend late says the model is not ready: prefill workers are missing",
    ),
    "aggregated workers are still there": ((front({**SPLIT_UP, "aggregated": 1}),), Progress.WAITING, "aggregated"),
    "only aggregated ones": ((front(WHOLE_ONES),), Progress.WAITING, "wanted are decode and prefill"),
    "a type that nobody knows is not echoed": ((front({"<b>": 1}),), Progress.WAITING, "by other workers"),
    "a type of which none lives": ((front({**SPLIT_UP, "aggregated": 0}),), Progress.PASSED, ""),
    "a frontend that could not be asked": (
        (front(SPLIT_UP), FrontendSeen("deaf", problem="Timeout")),
        Progress.UNSEEN,
        "frontend deaf could not be asked: Timeout",
    ),
    "no frontend": ((), Progress.UNSEEN, "no frontend pod"),
}


@pytest.mark.parametrize(("fronts", "progress", "word"), READY.values(), ids=READY)
def test_every_frontend_must_serve_by_the_wanted_workers(
    fronts: tuple[FrontendSeen, ...], progress: Progress, word: str
) -> None:
    look = model_ready(views.view(serving=ServingSeen(DONE, fronts)))
    assert (look.progress, word in look.message) == (progress, True), look.message


def test_aggregated_workers_are_wanted_while_the_split_is_off() -> None:
    off = {SPLIT: toggle(SPLIT, Switch.OFF)}
    fronts = (front(WHOLE_ONES),)
    assert model_ready(views.view(serving=ServingSeen(DONE, fronts), toggles=off)).progress is Progress.PASSED
    assert (
        model_ready(views.view(serving=ServingSeen(DONE, (front(SPLIT_UP),)), toggles=off)).reason == "WorkerTypesWrong"
    )


OUTAGES = {
    "for longer than the pool bears": (61, False, True),
    "not longer": (60, False, False),
    "it is ready again": (61, True, False),
}


@pytest.mark.parametrize(("seconds", "ready", "out"), OUTAGES.values(), ids=OUTAGES)
def test_a_model_that_stays_unready_is_an_outage_rollout_or_not(seconds: int, ready: bool, out: bool) -> None:
    seen = replace(front({"decode": 1}, ready=ready, missing=("prefill",)), unready_since=NOW)
    look = outage(views.view(serving=ServingSeen(Rollout(7), (seen,)), later=timedelta(seconds=seconds)))
    assert (look is not None) == out
    assert look is None or (look.progress, look.reason) == (Progress.FAILED, "ModelNotReady")
