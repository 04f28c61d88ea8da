"""A pool to which nothing is in the way but other hands: each look finds fresh evidence, and no approval is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from kvgate.api.words import Capability
from kvgate.core.ab.evidence import BenchmarkEvidence, Subject
from kvgate.core.digests import digest
from kvgate.core.target import Switch, TargetView
from kvgate.core.world import World
from tests.core import cases
from tests.core.ab.trials import experiment
from tests.core.worlds import FAST, ROUTING, SPLIT, Scene, sweep


@dataclass(frozen=True)
class Hour(Scene):
    """A scene with fresh evidence at each look, a won A/B of the deployment as it stands included.

    `landed` is the operation of the patch that the API server took last.
    """

    landed: str = ""

    @property
    def world(self) -> World:
        found = super().world
        assert isinstance(found.target, TargetView)
        routing = found.target.toggles.get(ROUTING)
        subject = Subject(self.target_uid, digest(routing.projection if routing else ""), "agg")
        won = BenchmarkEvidence("ab", cases.POOL_UID, self.now, subject, experiment(), report="ab")
        swept = sweep(FAST, "run-1", self.now - timedelta(minutes=1))
        return replace(
            found,
            target=replace(found.target, split="agg"),
            benchmarks=(won,),
            evidence=(swept,),
            patch_landed=self.landed,
        )


def gated(capability: Capability, **spec: object) -> Hour:
    """A pool that passes and needs no approval, so that nothing but the fence keeps kvgate from writing again."""
    block = {ROUTING: "routing", SPLIT: "disaggregation"}[capability]
    criteria: dict[str, object] = {"ttftBudget": "2s"} if capability is SPLIT else {"kvEvents": "Ignored"}
    wanted = {"routing": None, "disaggregation": None, block: {**criteria, "approval": "NotRequired"}}
    scene = Hour().asking(criteria=wanted, **spec)
    return scene.but(toggles={}).switched(Switch.OFF, capability)
