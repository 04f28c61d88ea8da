"""One streamed completion over HTTP: when its first token came, who answered, and what was in the cache."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

MOST_LINE_BYTES = 1 << 20
_BY_STATUS = {503: "Unavailable", 529: "Overloaded"}


@dataclass
class Heard:
    """What a stream has told so far."""

    first_at: float | None = None
    last_at: float = 0.0
    done: bool = False
    broken: bool = False
    worker: str = ""
    hit_rate: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int = 0
    cached_tokens: int | None = None
    chunks: int = field(default=0)


@dataclass(frozen=True)
class Answer:
    """Seconds count from `due`. A fault is one of the wire's words; `heard` stands in both cases."""

    heard: Heard
    first_token_seconds: float | None
    token_gap_seconds: float | None
    fault: str | None


def body_of(model: str, tokens: Sequence[int], output_tokens: int, worker: str = "") -> bytes:
    """A completion of token IDs. `worker` pins it, which is for calibration alone."""
    hints: dict[str, Any] = {"extra_fields": ["worker_id", "timing"]}
    if worker:
        hints["backend_instance_id"] = int(worker)
    asked = {
        "model": model,
        "prompt": list(tokens),
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "nvext": hints,
    }
    return json.dumps(asked, separators=(",", ":")).encode()


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, due: float, timeout_seconds: float) -> Answer:
    """Never raises for what a server does. The first token must come within the timeout of `due`, the last within
    another; `due` is on the clock of time.monotonic."""
    heard = Heard()
    fault: str | None
    try:
        fault = await _stream(session, url, body, heard, due, timeout_seconds)
    except TimeoutError:
        fault = "Timeout" if heard.first_at is None else "BrokenStream"
    except aiohttp.ClientConnectorError:
        fault = "NotConnected"
    except (aiohttp.ClientError, OSError, ValueError, TypeError, RecursionError):
        fault = "BrokenStream"
    return _answer(heard, due, fault)


async def _stream(
    session: aiohttp.ClientSession, url: str, body: bytes, heard: Heard, due: float, timeout_seconds: float
) -> str | None:
    loop = asyncio.get_running_loop()
    left = due + timeout_seconds - time.monotonic()
    async with asyncio.timeout(max(0.0, left)) as limit:
        headers = {"content-type": "application/json"}
        async with session.post(f"{url}/v1/completions", data=body, headers=headers) as response:
            if response.status != 200:
                return _BY_STATUS.get(response.status) or ("Rejected" if response.status < 500 else "ServerError")
            async for line in response.content:
                if len(line) > MOST_LINE_BYTES:
                    return "BrokenStream"
                if _take(line, heard, time.monotonic()):
                    limit.reschedule(loop.time() + timeout_seconds)
    return None


def _take(line: bytes, heard: Heard, now: float) -> bool:
    """Notes one line of the stream; true when it brought the first token. Raises TypeError or ValueError."""
    if not line.startswith(b"data:"):
        heard.broken = heard.broken or line.startswith(b"event: error")
        return False
    text = line[5:].strip()
    if text == b"[DONE]":
        heard.done = True
        return False
    chunk = json.loads(text)
    if not isinstance(chunk, dict):
        raise TypeError("a chunk that is no object")
    heard.broken = heard.broken or "error" in chunk
    _take_extras(chunk, heard)
    if not chunk.get("choices"):
        return False
    heard.chunks += 1
    heard.last_at = now
    if heard.first_at is not None:
        return False
    heard.first_at = now
    return True


def _take_extras(chunk: dict[str, Any], heard: Heard) -> None:
    extras, usage = _object(chunk.get("nvext")), _object(chunk.get("usage"))
    workers, timing = _object(extras.get("worker_id")), _object(extras.get("timing"))
    named = _count(workers.get("prefill_worker_id")) or _count(workers.get("decode_worker_id"))
    heard.worker = heard.worker or ("" if named is None else str(named))
    if isinstance(timing.get("kv_hit_rate"), int | float):
        heard.hit_rate = float(timing["kv_hit_rate"])
    if usage:
        heard.prompt_tokens = _count(usage.get("prompt_tokens"))
        heard.completion_tokens = _count(usage.get("completion_tokens")) or 0
        heard.cached_tokens = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    """A whole number from 0; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _answer(heard: Heard, due: float, fault: str | None) -> Answer:
    if fault is None and heard.first_at is None:
        fault = "Empty"
    if fault is None and (heard.broken or not heard.done):
        fault = "BrokenStream"
    if fault is not None or heard.first_at is None:
        return Answer(heard, None, None, fault)
    count = max(heard.completion_tokens, heard.chunks)
    gap = (heard.last_at - heard.first_at) / (count - 1) if count > 1 else None
    return Answer(heard, max(0.0, heard.first_at - due), gap, None)
