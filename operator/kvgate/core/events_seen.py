"""What was seen of a deployment's KV events: each worker and each frontend replica, look by look, oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kvgate.core.serving import Reply


class Routes(StrEnum):
    """How the deployment's frontends route, as far as events matter."""

    KV = "kv"
    APPROXIMATE = "approximate"
    """By the router's own record of its decisions: events are not listened to."""
    OTHER = "other"
    """Not by KV cache: the router has no index, and its event counters do not exist."""
    UNKNOWN = "unknown"


class Declares(StrEnum):
    """What a worker's spec says about KV events."""

    ON = "on"
    OFF = "off"
    BROKEN = "broken"
    """On, in a way in which no event can arrive."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Declared:
    """`why` names the field that decides and what to write there; empty where the spec turns events on."""

    says: Declares = Declares.UNKNOWN
    why: str = ""


@dataclass(frozen=True)
class Advert:
    """What a worker publishes of itself: whether its engine publishes, whether it announced a source of KV events
    (None: it does not say), where they can be had, and its block size in tokens."""

    publishing: bool | None = None
    has_source: bool | None = None
    addresses: tuple[str, ...] = ()
    block_tokens: int | None = None


@dataclass(frozen=True)
class WorkerCounts:
    """A worker's counters at one moment, since its start; None where none of the names that were tried exists.

    `stored` are stored events that its publisher accepted from the engine, `received` all that it received.
    `queried_tokens` and `cached_tokens` are the engine's own count of prompt tokens and of those it had cached.
    """

    dropped: int | None = None
    stored: int | None = None
    received: int | None = None
    filtered: int | None = None
    unconvertible: int | None = None
    requests: int | None = None
    queried_tokens: int | None = None
    cached_tokens: int | None = None
    absent: tuple[str, ...] = ()
    """Names that were tried, for each family that judges and is not there."""


@dataclass(frozen=True)
class FrontendCounts:
    """A frontend replica's counters at one moment, since its start; None where none of the names tried exists.

    `stored` are stored events that its router applied, `refused` stored events that it could not apply,
    `mismatched` workers whose event source is missing, ambiguous or switched off. `input_tokens` and `cached_tokens`
    are those of `prompts` prompts.
    """

    mismatched: int | None = None
    stored: int | None = None
    refused: int | None = None
    batches: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    prompts: int | None = None
    requests: int | None = None
    errors: int | None = None
    failures: int | None = None
    model_ready: bool | None = None
    registered_workers: int | None = None
    block_tokens: int | None = None
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerLook:
    """One look at one worker. Without `counts`, `problem` says why there are none; without `advert` it published
    none that could be read."""

    taken_at: datetime
    advert: Advert | None = None
    counts: WorkerCounts | None = None
    problem: str = ""


@dataclass(frozen=True)
class FrontendLook:
    """One look at one frontend replica. Without `counts`, `problem` says why there are none."""

    taken_at: datetime
    counts: FrontendCounts | None = None
    problem: str = ""


@dataclass(frozen=True, order=True)
class CanaryState:
    """What a worker was when a canary was meant for it: its process and what that said of itself, and who listened."""

    process: str = ""
    listeners: str = ""


@dataclass(frozen=True)
class CanaryAnswer:
    """What became of one canary: the reply to a new prompt, and to the same once more where the first was served.

    `state` is what the worker was when it was asked, as `Canary` has it: answers of another process prove nothing, and
    what other routers did not hear proves nothing of these.
    """

    state: CanaryState
    asked_at: datetime
    ended_at: datetime
    first: Reply
    again: Reply | None = None

    @property
    def failure(self) -> str:
        return self.first.failure or (self.again.failure if self.again else "")


@dataclass(frozen=True)
class WorkerSeen:
    """One worker pod that must publish or need not (`must_publish`), and the looks at it, oldest first.

    `instance` is Dynamo's own id of it, by which a request can be pinned to it; a pod may keep it over `restarts` of
    its container. `prefills` says that it serves as a prefill worker. `canaries` are the answers of late, oldest
    first.
    """

    pod: str
    component: str
    must_publish: bool = True
    ready_since: datetime | None = None
    instance: int | None = None
    restarts: int = 0
    generation: str = ""
    declared: Declared = Declared()
    looks: tuple[WorkerLook, ...] = ()
    prefills: bool = False
    canaries: tuple[CanaryAnswer, ...] = ()

    @property
    def last(self) -> WorkerLook | None:
        return self.looks[-1] if self.looks else None


@dataclass(frozen=True)
class FrontendSeen:
    """One frontend replica, and the looks at it, oldest first."""

    pod: str
    ready_since: datetime | None = None
    looks: tuple[FrontendLook, ...] = ()

    @property
    def last(self) -> FrontendLook | None:
        return self.looks[-1] if self.looks else None


class Hears(StrEnum):
    """What the event probe says of one endpoint, in its own words, gravest first."""

    NOT_REACHABLE = "NotReachable"
    NOT_ZMQ = "NotZMQ"
    NOTHING = "PublishesNothing"
    """Which an idle engine does too."""
    GARBAGE = "PublishesGarbage"
    OTHER_BLOCK_SIZE = "OtherBlockSize"
    BYTES = "HashesAreBytes"
    FILTERED = "FilteredOnly"
    FLOWS = "Flows"


@dataclass(frozen=True)
class Heard:
    """One endpoint of one worker, and the block sizes in tokens that were heard there."""

    pod: str
    address: str
    state: Hears
    block_tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Listening:
    """What one run of the event probe told; `trouble` says what is missing of it, and why.

    `endpoints` names the processes and addresses that it was for, `requested` the measurement asked for by then.
    """

    run_id: str
    ended_at: datetime
    endpoints: str = ""
    requested: str = ""
    entries: tuple[Heard, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class EventsSeen:
    """Everything that the judgement of KV events may look at. `canaries_at` is when canaries were last sent; while
    `asking` they are under way."""

    routes: Routes
    workers: tuple[WorkerSeen, ...] = ()
    frontends: tuple[FrontendSeen, ...] = ()
    canaries_at: datetime | None = None
    asking: bool = False
    listening: Listening | None = None


@dataclass(frozen=True, order=True)
class Canary:
    """A request that is wanted: a prompt that nobody sent before, of at least this many tokens, pinned to one worker by
    its instance. `state` is what the worker is now."""

    pod: str
    instance: int
    tokens: int
    prefills: bool = False
    state: CanaryState = CanaryState()
