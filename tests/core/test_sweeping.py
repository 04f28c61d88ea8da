"""When a sweep starts, over which paths, and why; and when none does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kvgate.core.evidence import NodeIdentity, Path
from kvgate.core.kvcache import Family, KVLayout
from kvgate.core.steps import Measure
from kvgate.core.world import KVKnown
from tests.core import cases
from tests.core.worlds import FAST, SLOW, Scene, closed, opened, proposed

Change = Callable[[Scene], Scene]
ASKED = "2026-11-30T12:00:00Z"
REPLACED = cases.nodes(identities=cases.identities(p1=NodeIdentity("p1", "another-uid", "boot-p1", "6.18")))
REBOOTED = cases.nodes(identities=cases.identities(d2=NodeIdentity("d2", "uid-d2", "another-boot", "6.18")))


def measure(scene: Scene) -> Measure | None:
    return next((step for step in scene.decide().steps if isinstance(step, Measure)), None)


DUE: dict[str, tuple[Change, str]] = {
    "no evidence": (lambda s: s.but(evidence=()), "no evidence yet"),
    "a person asked": (lambda s: s.but(asked=ASKED), f"asked for by annotation at {ASKED}"),
    "the interval passed": (lambda s: s.later(hours=23.3), "the last sweep is 24 h old, interval is 24h"),
    "the evidence expired": (lambda s: s.later(days=3), "the last sweep is 73 h old, interval is 24h"),
    "evidence from the future": (lambda s: s.measured(FAST).later(minutes=-5), "dated ahead of this clock"),
    "a node joined": (lambda s: s.but(nodes=cases.nodes(decode=("d1", "d2", "d3"))), "does not count: NodeNotCovered"),
    "a node was replaced by one of the same name": (lambda s: s.but(nodes=REPLACED), "does not count: NodeNotCovered"),
    "a node was rebooted": (lambda s: s.but(nodes=REBOOTED), "does not count: NodeNotCovered"),
    "another pool's evidence": (lambda s: s.measured(FAST, pool_uid="b"), "does not count: EvidenceOfAnotherPool"),
    "a first failure of what is on": (lambda s: opened(s).measured(SLOW), "a second one confirms it or clears it"),
    "a first failure of what is on, while the mode only looks": (
        lambda s: opened(s).asking(mode="Observe").measured(SLOW),
        "a second one confirms it or clears it",
    ),
}


@pytest.mark.parametrize(("change", "reason"), DUE.values(), ids=DUE)
def test_due(change: Change, reason: str) -> None:
    step = measure(change(Scene()))
    assert step is not None
    assert reason in step.reason


NOT_DUE: dict[str, Change] = {
    "fresh evidence": lambda s: s,
    "fresh evidence of what is on": opened,
    "one is under way": lambda s: s.but(evidence=(), sweeping=True),
    "one is under way and a person asked": lambda s: s.but(asked=ASKED, sweeping=True),
    "suspended": lambda s: s.asking(suspend=True).but(evidence=()),
    "an older pool has the target": lambda s: s.but(evidence=(), claimed_by="elder"),
    "the pool is being deleted": lambda s: s.but(evidence=(), deleted=True),
    "nothing is gated": lambda s: s.asking(criteria={}).but(evidence=()),
    "no node matches": lambda s: s.but(evidence=(), nodes=cases.nodes(prefill=(), decode=())),
    "only one node, with both roles and room for one walker": lambda s: s.but(
        evidence=(), nodes=replace(cases.nodes(("a",), ("a",)), unpaired="the owner must")
    ),
    "a failure of what is off": lambda s: s.measured(SLOW),
    "a confirmed failure that nothing can close": lambda s: (
        opened(s).asking(mode="Observe").measured(SLOW).later(minutes=1).measured(SLOW)
    ),
    "what was asked is handled": lambda s: s.but(asked=ASKED).after().measured(FAST),
    "an operation is in flight": lambda s: proposed(s).approved().after().later(days=3),
}


@pytest.mark.parametrize("change", NOT_DUE.values(), ids=NOT_DUE)
def test_not_due(change: Change) -> None:
    scene = change(Scene())
    if scene.status.operation is not None:
        scene = scene.measured(FAST).but(asked=ASKED)
    assert measure(scene) is None


@pytest.mark.parametrize(
    ("unpaired", "own"),
    [
        pytest.param("", (Path("both", "both"),), id="between two pods of a node that both kinds of workers may use"),
        pytest.param("the owner must", (), id="not where no second pod can stand there"),
    ],
)
def test_a_sweep_covers_every_path_in_use(unpaired: str, own: tuple[Path, ...]) -> None:
    nodes = replace(cases.nodes(prefill=("p1", "both"), decode=("d1", "both")), unpaired=unpaired)
    step = measure(Scene(evidence=(), nodes=nodes))
    assert step is not None
    assert step.paths == (Path("p1", "d1"), Path("p1", "both"), Path("both", "d1"), *own)
    assert step.in_use == len(step.paths)


def test_the_kv_transport_is_asked_for_pieces_as_the_model_has_them_or_the_pool_says() -> None:
    bare = Scene(evidence=())
    layout = KVLayout(Family.GQA, 114_688, (), 0, "bfloat16", "", "", full_layers=28, kv_heads=8)
    known = bare.but(kv=KVKnown(layout, 114_688, 16, "config", "", "digest"))
    split = known.asking(model__kvCache__tensorParallel__prefill=4)
    said = known.asking(fabric__probe__endpoint__descriptorBytes=1024)
    steps = [measure(scene) for scene in (bare, known, split, said)]
    assert [step.descriptor_bytes for step in steps if step] == [32_768, 32_768, 8_192, 1024]


def test_a_request_is_acknowledged_with_the_sweep_that_answers_it() -> None:
    asked = Scene().but(asked=ASKED)
    assert asked.decide().status.last_handled_measure_at == ASKED
    busy = asked.but(sweeping=True)
    assert busy.decide().status.last_handled_measure_at == ""
    assert measure(busy.after().but(sweeping=False)) is not None
    again = asked.after().but(asked="2026-11-30T13:00:00Z")
    assert measure(again) is not None


def test_a_sweep_is_named_by_its_turn() -> None:
    scene = Scene(evidence=())
    first, same, later = measure(scene), measure(scene), measure(scene.later(seconds=1))
    assert first == same
    assert first is not None
    assert later is not None
    assert later.run_id != first.run_id


def test_a_failing_fabric_is_not_swept_for_ever() -> None:
    scene = opened().asking(mode="Observe")
    sweeps = 0
    for _ in range(8):
        if measure(scene) is not None:
            sweeps += 1
            scene = scene.measured(SLOW)
        else:
            scene = scene.measured(SLOW) if sweeps == 0 else scene
        scene = scene.after(seconds=60)
    assert sweeps == 1


def test_what_failed_and_is_off_waits_for_its_interval() -> None:
    scene = closed().after()
    assert measure(scene) is None
    assert measure(scene.later(hours=24.3)) is not None
