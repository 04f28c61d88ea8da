"""Workers and frontends of a healthy deployment, looked at every 15 s: each test says only what differs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from kvgate.core.events_seen import (
    Advert,
    Declared,
    Declares,
    EventsSeen,
    FrontendCounts,
    FrontendLook,
    FrontendSeen,
    Routes,
    WorkerCounts,
    WorkerLook,
    WorkerSeen,
)

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BLOCK = 16
ANNOUNCED = Advert(publishing=True, has_source=True, addresses=("tcp://10.0.0.1:5557",), block_tokens=BLOCK)
OFF = replace(ANNOUNCED, publishing=False, has_source=False, addresses=())
ON_BY_SPEC = Declared(Declares.ON)
LONG_READY = START - timedelta(hours=1)
JUST_READY = START + timedelta(seconds=1)


def at(place: int) -> datetime:
    return START + timedelta(seconds=15 * place)


def worker_look(place: int, advert: Advert | None = ANNOUNCED, **counts: int | tuple[str, ...] | None) -> WorkerLook:
    stated = {"dropped": 0, "requests": 10 * place, "stored": 5 * place, "received": 5 * place, **counts}
    return WorkerLook(at(place), advert, WorkerCounts(**stated))  # type: ignore[arg-type]


def frontend_look(place: int, **counts: int | tuple[str, ...] | None) -> FrontendLook:
    """Between two looks: 20 requests of 400 tokens each, none of them cached; 20 events."""
    stated = {
        "mismatched": 0,
        "stored": 20 * place,
        "refused": 0,
        "input_tokens": 8000 * place,
        "cached_tokens": 0,
        "prompts": 20 * place,
        "block_tokens": BLOCK,
        **counts,
    }
    return FrontendLook(at(place), FrontendCounts(**stated))  # type: ignore[arg-type]


def worker(name: str, *looks: WorkerLook, **fields: object) -> WorkerSeen:
    usual = WorkerSeen(
        pod=name,
        component="VllmWorker",
        ready_since=LONG_READY,
        instance=sum(name.encode()),
        declared=ON_BY_SPEC,
        looks=looks or tuple(worker_look(place) for place in (1, 2, 3)),
    )
    return replace(usual, **fields)  # type: ignore[arg-type]


def with_advert(name: str, advert: Advert | None, **fields: object) -> WorkerSeen:
    """Three looks at a worker that says so of itself, and of which no publisher counts an event."""
    looks = tuple(worker_look(place, advert, stored=None, received=None) for place in (1, 2, 3))
    return worker(name, *looks, **fields)


def frontend(name: str, *looks: FrontendLook, **fields: object) -> FrontendSeen:
    usual = FrontendSeen(name, LONG_READY, looks or tuple(frontend_look(place) for place in (1, 2, 3)))
    return replace(usual, **fields)  # type: ignore[arg-type]


def gauged(name: str, mismatched: int, **counts: int | None) -> FrontendSeen:
    return frontend(name, *(frontend_look(place, mismatched=mismatched, **counts) for place in (1, 2, 3)))


def seen(
    *workers: WorkerSeen, routes: Routes = Routes.KV, frontends: tuple[FrontendSeen, ...] | None = None
) -> EventsSeen:
    held = (frontend("fe-1"),) if frontends is None else frontends
    return EventsSeen(routes, workers or (worker("w1"), worker("w2"), worker("w3")), held)


UNREAD = "HTTP 403 from 10.0.0.1:9090"
BARE = replace(ANNOUNCED, has_source=False)
NOTHING = Declared(Declares.UNKNOWN, "a launcher hides its flags")
PREFIX_OFF = Declared(Declares.OFF, "prefix caching is off by --no-enable-prefix-caching in args[3]")
CONNECTS = Declared(Declares.BROKEN, "its --kv-events-config endpoint tcp://0.0.0.0:5557 makes the engine connect")
PLAIN = {"stored": None, "received": None}
"""A worker whose publisher counts no event, as those that write into Dynamo's event plane themselves."""


def engine(place: int, stored: int | None, **fields: int) -> WorkerLook:
    """10 requests of 400 tokens between two looks, none cached: 240 new blocks."""
    tokens = {"queried_tokens": 4000 * place, "cached_tokens": 0, "requests": 10 * place, **fields}
    return worker_look(place, ANNOUNCED, stored=stored, received=stored, **tokens)


def engines(*stored: int | None, **fields: int) -> tuple[WorkerLook, ...]:
    return tuple(engine(place, count, **fields) for place, count in enumerate(stored, 1))


def deaf(**counts: int) -> tuple[FrontendLook, ...]:
    return tuple(frontend_look(place, stored=0, **counts) for place in (1, 2, 3))


def unread(name: str) -> WorkerSeen:
    return worker(name, *(WorkerLook(at(place), ANNOUNCED, None, UNREAD) for place in (1, 2, 3)))
