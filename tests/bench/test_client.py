"""One streamed completion: what each answer of a frontend comes to.

The server is a double. It plays what Dynamo's frontend documents and was seen to do: chunks of server-sent events with
nvext and usage, 503 while a model is not ready, 529 when overloaded, streams that end early.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from kvgate_bench.client import Answer, ask, body_of

Play = Callable[[web.StreamResponse], Awaitable[None]]
WORKERS = {"worker_id": {"prefill_worker_id": 12209161835820804734, "decode_worker_id": 5}}
CHUNK = {"choices": [{"text": "", "index": 0}], "nvext": WORKERS}
LAST = {
    "choices": [{"text": "", "index": 0, "finish_reason": "length"}],
    "nvext": {"timing": {"kv_hit_rate": 0.75}},
}
USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 320, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 240}},
}


async def say(response: web.StreamResponse, *chunks: object, pause: float = 0.0) -> None:
    for chunk in chunks:
        await asyncio.sleep(pause)
        text = chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}"
        await response.write(f"{text}\n\n".encode())


async def answered(play: Play, status: int = 200, seconds: float = 1.0, late: float = 0.0) -> Answer:
    async def serve(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        await play(response)
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession() as session:
            body = body_of("tiny", [5, 6], 3)
            return await ask(session, f"http://{host}:{port}", body, time.monotonic() - late, seconds)
    finally:
        await runner.cleanup()


def run(play: Play, **how: object) -> Answer:
    return asyncio.run(answered(play, **how))  # type: ignore[arg-type]


async def good(response: web.StreamResponse) -> None:
    await asyncio.sleep(0.05)
    await say(response, CHUNK)
    await say(response, CHUNK, CHUNK, LAST, USAGE, "data: [DONE]", pause=0.02)


def test_an_answer_tells_its_first_token_its_gap_its_worker_and_its_cache() -> None:
    answer = run(good)
    assert answer.fault is None
    assert answer.first_token_seconds == pytest.approx(0.05, abs=0.04)
    assert answer.token_gap_seconds == pytest.approx(0.02, abs=0.015)
    heard = answer.heard
    assert (heard.worker, heard.hit_rate, heard.prompt_tokens, heard.cached_tokens) == (
        "12209161835820804734",
        0.75,
        320,
        240,
    )


def test_the_wait_counts_from_when_the_request_was_due() -> None:
    assert (run(good, late=0.3).first_token_seconds or 0) >= 0.35


async def nothing(_: web.StreamResponse) -> None:
    return


async def silent(_: web.StreamResponse) -> None:
    await asyncio.sleep(5)


async def stalled(response: web.StreamResponse) -> None:
    await say(response, CHUNK)
    await asyncio.sleep(5)


async def cut(response: web.StreamResponse) -> None:
    await say(response, CHUNK, CHUNK)


async def failing(response: web.StreamResponse) -> None:
    await say(response, CHUNK, {"error": {"message": "worker left"}}, "data: [DONE]")


async def erring(response: web.StreamResponse) -> None:
    await say(response, CHUNK, "event: error", "data: [DONE]")


async def garbled(response: web.StreamResponse) -> None:
    await say(response, "data: {{{")


def saying(*chunks: object) -> Play:
    async def play(response: web.StreamResponse) -> None:
        await say(response, CHUNK, *chunks, USAGE, "data: [DONE]")

    return play


ODD = {"choices": [{"text": ""}], "nvext": ["x"], "usage": {"prompt_tokens": "many", "prompt_tokens_details": []}}


async def empty(response: web.StreamResponse) -> None:
    await say(response, USAGE, "data: [DONE]")


@pytest.mark.parametrize(
    ("play", "status", "fault"),
    [
        pytest.param(nothing, 503, "Unavailable", id="the model is not ready"),
        pytest.param(nothing, 529, "Overloaded", id="the frontend is overloaded"),
        pytest.param(nothing, 400, "Rejected", id="the request is refused"),
        pytest.param(nothing, 404, "Rejected", id="the model is unknown"),
        pytest.param(nothing, 500, "ServerError", id="the frontend fails"),
        pytest.param(silent, 200, "Timeout", id="no token comes in time"),
        pytest.param(stalled, 200, "BrokenStream", id="the second token never comes"),
        pytest.param(cut, 200, "BrokenStream", id="the stream ends without its end mark"),
        pytest.param(failing, 200, "BrokenStream", id="a worker leaves in the middle"),
        pytest.param(erring, 200, "BrokenStream", id="an error event"),
        pytest.param(garbled, 200, "BrokenStream", id="what is no JSON"),
        pytest.param(saying([CHUNK]), 200, "BrokenStream", id="a chunk that is no object"),
        pytest.param(saying("data: " + "[" * 100_000), 200, "BrokenStream", id="brackets without end"),
        pytest.param(empty, 200, "Empty", id="an answer without a token"),
    ],
)
def test_a_failure_has_its_word(play: Play, status: int, fault: str) -> None:
    answer = run(play, status=status, seconds=0.3)
    assert (answer.fault, answer.first_token_seconds) == (fault, None)


def test_extras_of_other_shapes_are_passed_over() -> None:
    async def play(response: web.StreamResponse) -> None:
        await say(response, CHUNK, ODD, "data: [DONE]")

    answer = run(play)
    assert answer.fault is None
    assert (answer.heard.prompt_tokens, answer.heard.cached_tokens) == (None, None)


def test_a_frontend_that_is_gone_is_not_connected() -> None:
    async def asked() -> Answer:
        async with aiohttp.ClientSession() as session:
            return await ask(session, "http://127.0.0.1:9", body_of("tiny", [5], 1), time.monotonic(), 1.0)

    assert asyncio.run(asked()).fault == "NotConnected"


def test_a_request_that_is_due_no_more_is_a_timeout() -> None:
    assert run(good, late=2.0).fault == "Timeout"
