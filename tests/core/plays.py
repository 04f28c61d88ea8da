"""A deployment that runs, played turn by turn: it rolls out, gets ready, and answers prompts as its faults let it.

It plays what Dynamo documents: a status that follows the spec, readiness by worker type, and answers that name who
served them. Prompts are answered one look after they were asked; a restart of kvgate forgets all answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvgate.core.serving import (
    ComponentRollout,
    Exam,
    ExamKind,
    ExamResult,
    FrontendSeen,
    NamespaceReadiness,
    Pair,
    Readiness,
    Reply,
    Rollout,
    ServingSeen,
)
from kvgate.core.steps import Decision, Enable, HoldDeletion, LetGo, Prepare, Revert, Verify
from kvgate.core.target import Switch
from kvgate.core.workers import PodRole, WorkerPod
from kvgate.dynamo.canary import Question, questions
from tests.core import cases
from tests.core.worlds import SPLIT, Scene

PREFILLS, DECODES, WHOLE = (11, 12), (21, 22), (11, 12, 21, 22)
BEFORE_SECONDS, ADDED_SECONDS = 0.4, 1.3
COMPONENTS = ("Frontend", "VllmDecodeWorker", "VllmPrefillWorker")


def pods() -> tuple[WorkerPod, ...]:
    """Two frontends, and two workers of each role on the nodes of `cases.nodes()`."""
    return (
        *cases.pods(PodRole.FRONTEND, "f1", "f2", address="10.0.0.1"),
        *cases.pods(PodRole.PREFILL, *cases.PREFILL),
        *cases.pods(PodRole.DECODE, *cases.DECODE),
    )


@dataclass(frozen=True)
class Faults:
    """What is wrong with the deployment once it is split; the defaults are a healthy one."""

    unobserved: bool = False
    hangs: bool = False
    fails: bool = False
    never_ready: bool = False
    aggregated_still: bool = False
    unreachable: bool = False
    corrupt: int | None = None
    """The decode worker that answers something else."""
    refuses: bool = False
    local_prefill: bool = False
    silent_ids: bool = False
    added_seconds: float = ADDED_SECONDS
    unstable: bool = False
    """Answers differ from run to run, split or not."""


@dataclass
class Play:
    """Turns over a scene; `restarts` forgets all answers before every look."""

    scene: Scene
    faults: Faults = field(default_factory=Faults)
    restarts: bool = False
    seconds: float = 2.0
    results: dict[str, ExamResult] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def split(self) -> bool:
        return self.scene.toggles[SPLIT].switch is Switch.ON

    def turn(self) -> Decision:
        scene = self.scene.but(serving=self.serving(), workers=self.scene.workers or pods())
        decision = scene.decide()
        self.decisions.append(decision)
        if self.restarts:
            self.results.clear()
        self.scene = scene.but(status=decision.status).later(seconds=self.seconds)
        for step in decision.steps:
            self._do(step)
        return decision

    def until(self, kind: str, status: str, reason: str, most: int = 4000) -> Decision:
        """Turns until the condition says this. The clock moves faster once nothing is asked any more."""
        for _ in range(most):
            decision = self.turn()
            found = next(held for held in decision.status.conditions if held.type == kind)
            if (found.status.value, found.reason) == (status, reason):
                return decision
        told = [(held.type, held.status.value, held.reason) for held in self.decisions[-1].status.conditions]
        raise AssertionError(f"{kind} never was {status} {reason}: {told}")

    def _do(self, step: object) -> None:
        if isinstance(step, Enable):
            self.scene = self.scene.switched(Switch.ON, step.capability)
        elif isinstance(step, Revert):
            self.scene = self.scene.switched(Switch.OFF, step.capability)
        elif isinstance(step, HoldDeletion | LetGo):
            self.scene = self.scene.but(finalizer=isinstance(step, HoldDeletion))
        elif isinstance(step, Prepare | Verify):
            self.asked.append(step.exam.kind)
            self.results[step.exam.id] = self.sat(step.exam)

    def serving(self) -> ServingSeen:
        return ServingSeen(self.rollout(), self.frontends(), dict(self.results))

    def rollout(self) -> Rollout:
        bad = self.faults if self.split else Faults()
        phase = "Failed" if bad.fails else "InProgress" if bad.hangs else "Completed" if self.split else ""
        ready = 0 if bad.hangs else 1
        components = tuple(ComponentRollout(name, 1, 1, 1, ready) for name in COMPONENTS)
        return Rollout(7, 6 if bad.unobserved else 7, phase, not bad.hangs, components=components)

    def frontends(self) -> tuple[FrontendSeen, ...]:
        if self.split and self.faults.unreachable:
            return (FrontendSeen("frontend-0", problem="/v1/models/m/ready on port 8000: Timeout"),)
        whole = not self.split or self.faults.aggregated_still
        workers = {"aggregated": 4} if whole else {"prefill": 2, "decode": 2}
        missing: tuple[str, ...] = ()
        if self.split and self.faults.never_ready:
            workers, missing = {"decode": 2}, ("prefill",)
        space = NamespaceReadiness("demo-aaaa", not missing, workers, missing)
        seen = FrontendSeen("frontend-0", Readiness(space.ready, (space,)))
        return (seen, replace(seen, name="frontend-1"))

    def sat(self, exam: Exam) -> ExamResult:
        replies = tuple(self._reply(exam, index, question) for index, question in enumerate(self._questions(exam)))
        return ExamResult(exam.id, self.scene.now, replies)

    def _questions(self, exam: Exam) -> tuple[Question, ...]:
        split = [(prefill, decode) for prefill in PREFILLS for decode in DECODES]
        pairs = tuple(split) if exam.prefills else tuple((one, one) for one in WHOLE[: exam.decodes])
        return questions(exam, pairs, 2)

    def _reply(self, exam: Exam, index: int, question: Question) -> Reply:
        bad = self.faults if self.split else Faults(unstable=self.faults.unstable)
        pair: Pair = question.pair or self._met(index)
        seed = question.seed
        wrong = bad.corrupt is not None and pair[1] == bad.corrupt
        text = f"other-{seed}" if wrong else f"{index}" if bad.unstable else f"answer-{seed}"
        added = bad.added_seconds if self.split else 0.0
        return Reply(
            frontend=f"frontend-{question.frontend}",
            tokens=question.tokens,
            seed=seed,
            round=question.round,
            failure="HTTP503" if bad.refuses else "",
            ttft_seconds=BEFORE_SECONDS + added + 0.001 * (index % 7),
            prompt_tokens=question.tokens,
            cached_tokens=question.tokens if question.round and exam.kind is ExamKind.REPEATS else 0,
            router_hit_rate=0.0,
            answer="" if bad.refuses else text,
            pair=(None, None) if bad.silent_ids else pair,
        )

    def _met(self, index: int) -> Pair:
        if not self.split:
            return (WHOLE[index % 4], WHOLE[index % 4])
        decode = DECODES[index % 2]
        return (decode, decode) if self.faults.local_prefill else (PREFILLS[index // 2 % 2], decode)


def approved(**faults: object) -> Play:
    """A plan that a person has approved, before a deployment with these faults."""
    restarts = bool(faults.pop("restarts", False))
    play = Play(Scene(), Faults(**faults), restarts)  # type: ignore[arg-type]
    play.turn()
    play.scene = play.scene.approved()
    return play
