"""kvgate at work on one real deployment, before evidence that is made up so that it wants the capability on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvgate.api.words import Capability, ConditionType
from kvgate.core.steps import Decision, Enable, Revert
from kvgate.core.target import TargetView
from kvgate.edge.errors import WriteConflictError
from tests.core.hours import gated
from tests.core.worlds import ROUTING, SPLIT, Scene, condition
from tests.edge.cluster.yard import Yard

ENV = {ROUTING: "DYN_ROUTER_MODE", SPLIT: "DYN_VLLM_DISAGGREGATION_MODE"}
FRONTEND, PREFILL, DECODE = "Frontend", "PrefillWorker", "DecodeWorker"
ON = {ROUTING: {FRONTEND: "kv"}, SPLIT: {PREFILL: "prefill", DECODE: "decode"}}
OFF = {ROUTING: {FRONTEND: "round-robin"}, SPLIT: {PREFILL: "agg", DECODE: "agg"}}
ALLOWED = {
    "enforcement__onConflict": "TakeOver",
    "rollback__onDelete": {"routing": "Revert", "disaggregation": "Revert"},
}


@dataclass
class Shift:
    """kvgate at work on the yard's deployment: real looks at it and real writes, before evidence that passes."""

    yard: Yard
    capability: Capability
    scene: Scene
    patches: int = 0
    conflicts: int = 0

    def turn(self) -> Decision:
        """One turn: what is meant first, then the patch, which rests on the deployment as it was read."""
        read, world = self.yard.observe()
        assert isinstance(world.target, TargetView)
        toggle = replace(world.target.toggles[self.capability], findings=())
        at = self.scene.but(toggles={self.capability: toggle}, target_uid=world.target.uid, landed=world.patch_landed)
        decision = at.decide()
        self.scene = at.but(status=decision.status)
        for step in decision.patches:
            assert isinstance(step, Enable | Revert)
            try:
                self.yard.ground.carry_out(replace(read, spec=self.scene.spec), world, step)
                self.patches += 1
            except WriteConflictError:
                self.conflicts += 1
        return decision

    def settle(self, turns: int = 4) -> Decision:
        for _ in range(turns):
            decision = self.turn()
            self.scene = self.scene.later(seconds=1)
        return decision

    def drifted(self) -> tuple[str, str, str]:
        found = condition(self.turn().status, ConditionType.DRIFTED)
        return found.status.value, found.reason, found.message

    def holds(self, wanted: dict[Capability, dict[str, str]]) -> bool:
        return self.values() == wanted[self.capability]

    def values(self) -> dict[str, str | None]:
        found = {part: self.yard.env(part, ENV[self.capability]) for part in ON[self.capability]}
        return {part: None if held is None else str(held.get("value", "")) for part, held in found.items()}


def at_work(yard: Yard, capability: Capability, **spec: object) -> Shift:
    return Shift(yard, capability, gated(capability, **{**ALLOWED, **spec}))
