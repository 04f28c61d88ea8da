"""One turn of the ring where a step fails: the others are tried, and the failure is told."""

from __future__ import annotations

import math

import pytest

from kvgate.api.status import PoolStatus
from kvgate.app.ring import turn
from kvgate.core.steps import Step
from kvgate.core.target import Switch
from kvgate.core.world import Pool, World
from kvgate.edge.errors import EdgeError
from tests.core.worlds import ROUTING, Scene, proposed


class Refusing:
    """Plays a ground whose API server refuses every step, as `carry_out` documents; notes what was tried."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.tried: list[str] = []

    def observe(self, key: str) -> tuple[Pool, World]:
        return self.scene.pool, self.scene.world

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        self.tried.append("status")

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        self.tried.append(type(step).__name__)
        raise EdgeError(f"{type(step).__name__} is refused")


def test_a_recommendation_that_is_refused_keeps_no_sweep_from_being_started() -> None:
    scene = proposed(Scene().gating(ROUTING, Switch.OFF).asking(mode="Recommend"))
    ground = Refusing(scene.but(asked="now"))
    with pytest.raises(EdgeError, match="Recommend is refused") as caught:
        turn(ground, "serving/qwen3", lambda: scene.now)
    assert ground.tried == ["status", "Recommend", "Measure"]
    assert caught.value.within_seconds == math.inf, "nothing is watched"
