"""The ring's decisions before real frontends and mock workers: this plays the Dynamo operator and the cluster alone.

It starts the workers of the wanted generation, waits for them as the operator waits for pods, and then stops the
others (a managed rolling update: new generation, new namespace, old one gone last). Readiness and all answers are real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kvgate.api.words import Capability, ConditionType
from kvgate.core import exams
from kvgate.core.judging import Case
from kvgate.core.serving import ComponentRollout, Rollout, ServingSeen
from kvgate.core.steps import Decision, Enable, Prepare, Revert, Verify
from kvgate.core.target import Switch
from kvgate.core.verification import Chain, verify
from kvgate.core.workers import PodRole
from kvgate.edge.canary import Frontend as Address
from kvgate.edge.verifier import Verifier
from tests.core import cases, worlds
from tests.core.worlds import SPLIT, Scene
from tests.dynamo_stage import model, replay
from tests.dynamo_stage.specs import Role, Worker
from tests.dynamo_stage.stage import RunningFrontend, Stage

TOKENS = 256
BYTES_PER_SECOND = worlds.FAST
WHOLE, SPLIT_UP = "aaaaaaaa", "bbbbbbbb"
SECONDS_BETWEEN_TURNS = 0.25


def now() -> datetime:
    return datetime.now(UTC)


def truth(folder: Path, pool_uid: str = cases.POOL_UID) -> Path:
    """The answers that every healthy worker gives to the needles of this pool."""
    return _trace(folder / "truth.jsonl", 0, pool_uid)


def lies(folder: Path, pool_uid: str = cases.POOL_UID) -> Path:
    """Other answers, first word aside: what a decode worker makes of a corrupt cache."""
    return _trace(folder / "lies.jsonl", 7, pool_uid)


def _trace(path: Path, shift: int, pool_uid: str) -> Path:
    seeds = exams.seeds(exams.NEEDLES, pool_uid, "needles", TOKENS)
    first = model.WORDS[0]
    answers = {
        f"kvgate-{seed}": (first, *model.WORDS[index + shift : index + shift + 12]) for index, seed in enumerate(seeds)
    }
    return replay.write_trace(path, answers)


def timed(role: Role, trace: Path, bytes_per_second: float = BYTES_PER_SECOND, **fields: object) -> Worker:
    """A worker whose transfer takes what the evidence says, or what `bytes_per_second` says instead."""
    plain = Worker(role, replay=trace, kv_bytes_per_token=cases.BYTES_PER_TOKEN)
    rated = replace(plain, kv_transfer_bytes_per_second=bytes_per_second) if role is Role.PREFILL else plain
    return replace(rated, **fields)  # type: ignore[arg-type]


@dataclass
class Rig:
    """Turns of the ring; `split` are the workers that the split generation consists of."""

    stage: Stage
    folder: Path
    split: Mapping[str, Worker]
    fronts: list[RunningFrontend] = field(default_factory=list)
    scene: Scene = field(default_factory=Scene)
    verifier: Verifier = field(default_factory=lambda: Verifier(now))
    decisions: list[Decision] = field(default_factory=list)

    def open(self, **asked: object) -> None:
        """Two frontends, two aggregated workers, and a plan that is approved."""
        self.fronts = [self.stage.frontend("f1"), self.stage.frontend("f2")]
        self._generation(
            {"a1": timed(Role.AGGREGATED, truth(self.folder)), "a2": timed(Role.AGGREGATED, truth(self.folder))}, WHOLE
        )
        for front in self.fronts:
            self.stage.until_ready(front)
        self.scene = Scene(evidence=(worlds.sweep(BYTES_PER_SECOND, "run-1", now() - timedelta(hours=1)),), now=now())
        changes = {"model__name": model.NAME, "workload__prompts": [{"tokens": TOKENS}], **asked}
        self.scene = self.scene.asking(monitor__modelNotReadyFor="5s", **changes)
        self.turn()
        self.scene = self.scene.approved()

    def turn(self) -> Decision:
        at = now()
        seen = self._seen()
        pods = (
            *cases.pods(PodRole.FRONTEND, "f1", "f2", address="127.0.0.1"),
            *cases.pods(PodRole.PREFILL, "p1"),
            *cases.pods(PodRole.DECODE, "d1"),
        )
        scene = self.scene.but(serving=seen, workers=pods, now=at)
        decision = scene.decide()
        self.decisions.append(decision)
        self.scene = scene.but(status=decision.status)
        for step in decision.steps:
            self._do(step)
        return decision

    def _do(self, step: object) -> None:
        if isinstance(step, Enable):
            self.scene = self.scene.switched(Switch.ON, step.capability)
            self._flip(dict(self.split), SPLIT_UP)
        elif isinstance(step, Revert):
            self.scene = self.scene.switched(Switch.OFF, step.capability)
            self._flip(
                {"a3": timed(Role.AGGREGATED, truth(self.folder)), "a4": timed(Role.AGGREGATED, truth(self.folder))},
                "cccccccc",
            )
        elif isinstance(step, Prepare | Verify):
            self.verifier.start("serving/qwen3", step.capability, step.exam, self._addresses())

    def _flip(self, workers: dict[str, Worker], generation: str) -> None:
        old = [name for name in self.stage.running if name not in {front.name for front in self.fronts}]
        self._generation(workers, generation)
        self.stage.stop(*old)

    def _generation(self, workers: dict[str, Worker], generation: str) -> None:
        self.stage.workers(**{name: replace(spec, generation=generation) for name, spec in workers.items()})

    def rollout(self) -> Rollout:
        names = ("Frontend", "VllmDecodeWorker", "VllmPrefillWorker")
        return Rollout(1, 1, "Completed", ready=True, components=tuple(ComponentRollout(n, 1, 1, 1, 1) for n in names))

    def until(self, holds: Callable[[Decision], bool], what: str, seconds: float = 180.0) -> Decision:
        deadline = time.monotonic() + seconds
        while True:
            decision = self.turn()
            if holds(decision):
                return decision
            told = "\n".join(f"{c.type} {c.status} {c.reason}: {c.message}" for c in decision.status.conditions)
            assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}:\n{told}"
            time.sleep(SECONDS_BETWEEN_TURNS)

    def until_told(self, kind: ConditionType, status: str, reason: str) -> Decision:
        def told(decision: Decision) -> bool:
            return worlds.told(decision.status, kind) == (status, reason)

        return self.until(told, f"{kind} {status} {reason}")

    def verified(self, capability: Capability, holds: Callable[[Chain], bool], seconds: float = 120.0) -> Chain:
        """Looks along the chain of a capability alone, on and ours, until this holds."""
        deadline, case = time.monotonic() + seconds, self._on(capability)
        while True:
            chain = verify(case(), capability)
            assert chain is not None
            if chain.exam is not None:
                self.verifier.start("serving/qwen3", capability, chain.exam, self._addresses())
            status = self.scene.status.model_copy(update={"verifications": (chain.memory,)})
            self.scene = self.scene.but(status=status)
            if holds(chain):
                return chain
            assert time.monotonic() < deadline, f"{chain.state}: {chain.message}"
            time.sleep(SECONDS_BETWEEN_TURNS)

    def _on(self, capability: Capability) -> Callable[[], Case]:
        asked = {"model__name": model.NAME, "workload__prompts": [{"tokens": TOKENS}]}
        self.scene = Scene(now=now()).asking(**asked).gating(capability, Switch.ON)
        return lambda: self.scene.but(serving=self._seen(), now=now()).case

    def _seen(self) -> ServingSeen:
        return self.verifier.seen("serving/qwen3", model.NAME, self._addresses(), self.rollout())

    def _addresses(self) -> tuple[Address, ...]:
        return tuple(Address(front.name, front.door.base.removeprefix("http://")) for front in self.fronts)

    @property
    def is_split(self) -> bool:
        return self.scene.toggles[SPLIT].switch is Switch.ON
