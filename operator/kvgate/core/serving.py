"""What was seen of the running deployment: its rollout, each frontend's readiness, and the answers to our prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class WorkerType(StrEnum):
    """A worker type as Dynamo's model cards name it."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True)
class ComponentRollout:
    """Pods of one component: wanted by the spec, and as the status counts them; None where it does not say."""

    name: str
    wanted: int | None = None
    replicas: int | None = None
    updated: int | None = None
    ready: int | None = None

    @property
    def complete(self) -> bool:
        wanted = self.replicas if self.wanted is None else self.wanted
        return wanted is not None and self.replicas == self.updated == wanted and (self.ready or 0) >= wanted


@dataclass(frozen=True)
class Rollout:
    """How far the Dynamo operator has come with the deployment, by the deployment's own status.

    `phase` is rollingUpdate's, empty where there is none; `ready` is the Ready condition, None where it is not told.
    """

    generation: int
    observed_generation: int | None = None
    phase: str = ""
    ready: bool | None = None
    components: tuple[ComponentRollout, ...] = ()

    @property
    def observed(self) -> bool:
        return self.observed_generation is not None and self.observed_generation >= self.generation


@dataclass(frozen=True)
class NamespaceReadiness:
    """One Dynamo namespace, which is one generation of workers: live workers by type, and the types that it lacks."""

    name: str
    ready: bool
    workers: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        return any(count > 0 for count in self.workers.values())


@dataclass(frozen=True)
class Readiness:
    """What `/v1/models/{model}/ready` says: whether requests are served, and by which workers."""

    ready: bool
    namespaces: tuple[NamespaceReadiness, ...] = ()

    @property
    def worker_types(self) -> frozenset[str]:
        return frozenset(kind for space in self.namespaces for kind, count in space.workers.items() if count > 0)

    def count(self, kind: WorkerType) -> int:
        return sum(space.workers.get(kind.value, 0) for space in self.namespaces)


@dataclass(frozen=True)
class FrontendSeen:
    """One frontend replica: its readiness, or why it could not be looked at. `unready_since` is when the model was
    first seen unready there without a ready look since."""

    name: str
    readiness: Readiness | None = None
    problem: str = ""
    unready_since: datetime | None = None


class ExamKind(StrEnum):
    """What a set of prompts is for."""

    REQUESTS = "Requests"
    REPEATS = "Repeats"
    ANSWERS = "Answers"
    TTFT = "TTFT"


Pair = tuple[int | None, int | None]
"""Dynamo's ids of the prefill and the decode worker of one request; equal where one worker did both."""


@dataclass(frozen=True)
class Exam:
    """A set of prompts to put to the deployment, in the background; `id` names it, whoever asks again.

    Each prompt size has its needles by seed, and each is asked in `rounds` rounds; of every one of `pairs`, or of those
    that can be met where `prefills` and `decodes` only say how many workers there are (0 prefills: workers that do
    both). `warm_up` answers of each pair are asked for beyond the seeds. `window` replies of earlier runs count on. No
    request may take longer than `request_seconds`.
    """

    id: str
    kind: ExamKind
    model: str
    seeds: tuple[tuple[int, tuple[int, ...]], ...]
    rounds: int = 1
    prefills: int = 0
    decodes: int = 0
    pairs: tuple[Pair, ...] = ()
    warm_up: int = 0
    concurrency: int = 1
    window: int = 0
    request_seconds: float = 30.0
    seconds: float = 900.0
    """The longest that all of it may take."""


@dataclass(frozen=True)
class Reply:
    """What became of one request: an answer, or a failure in one word.

    `answer` is the digest of what came after the first token, empty where nothing did. `tokens` is the prompt size that
    was asked for, `prompt_tokens` what the tokenizer made of it. `router_hit_rate` is the share of the prompt that the
    KV router expected to find in a cache; None where no KV router chose the worker.
    """

    frontend: str
    tokens: int
    seed: int
    round: int = 0
    failure: str = ""
    ttft_seconds: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    router_hit_rate: float | None = None
    answer: str = ""
    pair: Pair = (None, None)


@dataclass(frozen=True)
class ExamResult:
    """All replies of an exam that has ended, in the order in which they were asked; `problem` says why some are
    missing."""

    id: str
    ended_at: datetime
    replies: tuple[Reply, ...] = ()
    problem: str = ""

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple(reply.failure for reply in self.replies if reply.failure)


@dataclass(frozen=True)
class OwnRequests:
    """What one run of our prompts put to the frontends, for whoever judges what users ask.

    `ttft_seconds` is the sum over the `first_tokens` answers that came to a first token.
    """

    ended_at: datetime
    requests: int
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_seconds: float = 0.0
    first_tokens: int = 0


def own_requests(result: ExamResult) -> OwnRequests:
    """The sum over a result's replies."""
    times = [reply.ttft_seconds for reply in result.replies if reply.ttft_seconds is not None]
    return OwnRequests(
        ended_at=result.ended_at,
        requests=len(result.replies),
        failed=len(result.failures),
        prompt_tokens=sum(reply.prompt_tokens or 0 for reply in result.replies),
        cached_tokens=sum(reply.cached_tokens or 0 for reply in result.replies),
        ttft_seconds=sum(times),
        first_tokens=len(times),
    )


@dataclass(frozen=True)
class ServingSeen:
    """All that has arrived about the running deployment up to this look. `running` are exams under way, `own` the
    prompts that were put to it of late."""

    rollout: Rollout
    frontends: tuple[FrontendSeen, ...] = ()
    results: Mapping[str, ExamResult] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    own: tuple[OwnRequests, ...] = ()
