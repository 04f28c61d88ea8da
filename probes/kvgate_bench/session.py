"""One A/B from its first look to its last line: calibration, blocks in the order of the coin, and a clean end."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import aiohttp

from kvgate_bench import guard, pages, workload
from kvgate_bench.client import Answer, ask, body_of
from kvgate_bench.pages import LiveLook, Page
from kvgate_bench.wire import ARMS, QUIET_SECONDS, SALT_BLOCKS, Asked, Ending, Plan, RunResult, Sent
from kvgate_bench.workload import Due, Salt

AHEAD = 256
"""So many prompts are made before a run starts, so that making them disturbs no wait."""
LOOK_SECONDS = 2.0
CALIBRATED_PROMPTS = 5
PAGE_SECONDS = 4.0
Prompt = Callable[[Plan, Due, Salt], list[int]]
Tell = Callable[[RunResult], None]


class AbortedError(Exception):
    """The A/B must end now; the message says why."""


@dataclass(frozen=True)
class Door:
    """Where requests go out, how prompts are made, and who hears of each run."""

    http: aiohttp.ClientSession
    tell: Tell
    prompt: Prompt = workload.prompt


class Session:
    """At most one run at a time; `watching` holds the looks at each live frontend."""

    def __init__(self, plan: Plan, requests: Sequence[Sequence[Due]], door: Door) -> None:
        self._plan, self._requests, self._door = plan, tuple(map(tuple, requests)), door
        self._before: dict[str, list[LiveLook]] = {url: [] for url in plan.live}
        self._during: dict[str, list[LiveLook]] = {url: [] for url in plan.live}
        self._slowest_start = 0.0

    async def run(self) -> Ending:
        """The last line, whatever happens on the way; runs are told as they end."""
        ending = Ending()
        try:
            ending = replace(ending, workers_before=await self._ready())
            ending = replace(ending, template_tokens=await self._template())
            await self._quiet()
            ending = replace(ending, calibration=await self._calibrate(ending.workers_before))
            await self._watched(self._blocks())
            ending = replace(ending, workers_after=await self._workers())
        except AbortedError as aborted:
            ending = replace(ending, aborted=str(aborted))
        rates = [rate for looks in self._during.values() if (rate := guard.live_rate(looks)) is not None]
        live = sum(rates) if rates else None
        return replace(ending, live_requests_per_second=live, slowest_start_seconds=self._slowest_start)

    async def _ready(self) -> tuple[str, ...]:
        """Both arms serve the model, and the KV arm's router knows its workers."""
        deadline = time.monotonic() + self._plan.ready_seconds
        while True:
            ready = [await self._serves(arm) for arm in ARMS]
            found = await self._workers() if all(ready) else ()
            if found and len(found) >= self._plan.workers:
                return found
            if time.monotonic() > deadline:
                late = [arm for arm, up in zip(ARMS, ready, strict=True) if not up]
                few = f"{len(found)} of {max(1, self._plan.workers)} workers are registered for"
                what = f"the frontend of {' and '.join(late)} does not serve" if late else few
                raise AbortedError(f"{what} {self._plan.model} after {self._plan.ready_seconds:.0f} s")
            await asyncio.sleep(0.5)

    async def _serves(self, arm: str) -> bool:
        url = f"{self._plan.url(arm)}/v1/models/{self._plan.model}/ready"
        try:
            async with asyncio.timeout(PAGE_SECONDS), self._door.http.get(url) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def _workers(self) -> tuple[str, ...]:
        page = await self._page(self._plan.kv)
        return () if page is None else pages.workers(page)

    async def _page(self, url: str) -> Page | None:
        try:
            async with asyncio.timeout(PAGE_SECONDS), self._door.http.get(f"{url}/metrics") as response:
                return pages.read_page(await response.text()) if response.status == 200 else None
        except (aiohttp.ClientError, OSError, ValueError):
            return None

    async def _template(self) -> int:
        """Tokens that the deployment puts before a prompt: none, for a prompt of token IDs, unless it does."""
        answer = await self._alone([self._plan.first_token])
        if answer.fault is not None:
            return 0
        return max(0, (answer.heard.prompt_tokens or 1) - 1)

    async def _alone(self, tokens: list[int], worker: str = "") -> Answer:
        body = body_of(self._plan.model, tokens, self._plan.output_tokens, worker)
        return await ask(self._door.http, self._plan.round_robin, body, time.monotonic(), self._plan.timeout_seconds)

    async def _calibrate(self, workers: Sequence[str]) -> tuple[Asked, ...]:
        """Each worker alone: prompts of the workload that it has not seen, and each of them again. A worker that
        fails one of them is left out, which the judgement will not overlook."""
        chosen = workload.samples([due for part in self._requests for due in part], CALIBRATED_PROMPTS)
        found = []
        for worker in workers:
            prompts = [
                workload.prompt(self._plan, due, Salt(self._plan.seed, number, f"alone/{worker}"))
                for number, due in enumerate(chosen)
            ]
            misses, hits = [], []
            for tokens in prompts:
                misses.append((await self._alone(tokens, worker)).first_token_seconds)
                hits.append((await self._alone(tokens, worker)).first_token_seconds)
            miss, hit = [wait for wait in misses if wait], [wait for wait in hits if wait]
            if len(miss) == len(hit) == len(prompts):
                found.append(Asked(worker, fmean(miss), fmean(hit)))
        return tuple(found)

    async def _blocks(self) -> None:
        for block in range(self._plan.blocks):
            for arm in workload.order(self._plan, block):
                self._door.tell(await self._run(block, arm))
                await asyncio.sleep(self._plan.washout_seconds)

    async def _run(self, block: int, arm: str) -> RunResult:
        """Open loop: each request leaves at its moment, whether or not those before it were answered."""
        moments = workload.arrivals(self._plan, block)
        timed = [replace(due, arrival_seconds=at) for due, at in zip(self._requests[block], moments, strict=True)]
        salt = Salt(self._plan.seed, block, arm)
        bodies = deque(self._body(due, salt) for due in timed[:AHEAD])
        began, began_at = time.monotonic(), time.time()
        sent: list[asyncio.Task[Sent]] = []
        try:
            for number, due in enumerate(timed):
                body = bodies.popleft() if bodies else self._body(due, salt)
                await asyncio.sleep(max(0.0, began + due.arrival_seconds - time.monotonic()))
                self._slowest_start = max(self._slowest_start, time.monotonic() - began - due.arrival_seconds)
                sent.append(asyncio.create_task(self._send(arm, due, body, began + due.arrival_seconds)))
                if number % AHEAD == 0:
                    self._refused(sent)
            told = await asyncio.gather(*sent)
        finally:
            for task in sent:
                task.cancel()
        ended_at = time.time()
        self._refused(sent)
        page = await self._page(self._plan.url(arm))
        families = pages.kv_families(page) if page is not None else ()
        return RunResult(block, arm, len(timed), tuple(told), families, began_at, ended_at)

    def _body(self, due: Due, salt: Salt) -> bytes:
        return body_of(self._plan.model, self._door.prompt(self._plan, due, salt), due.output_tokens)

    async def _send(self, arm: str, due: Due, body: bytes, at: float) -> Sent:
        answer = await ask(self._door.http, self._plan.url(arm), body, at, self._plan.timeout_seconds)
        heard, planned = answer.heard, due.input_tokens + SALT_BLOCKS * self._plan.block_tokens
        prompt_tokens = heard.prompt_tokens or planned
        return Sent(
            family=due.family,
            arrival_seconds=due.arrival_seconds,
            prompt_tokens=prompt_tokens,
            repeated_tokens=due.repeated_tokens,
            first_token_seconds=answer.first_token_seconds,
            token_gap_seconds=answer.token_gap_seconds,
            cached_tokens=heard.cached_tokens,
            overlap_tokens=self._overlap(heard.hit_rate, prompt_tokens),
            worker=heard.worker,
            fault=answer.fault,
            answer_tokens=max(heard.completion_tokens, heard.chunks) if answer.fault is None else 0,
        )

    def _overlap(self, hit_rate: float | None, prompt_tokens: int) -> int | None:
        """The router tells blocks expected over blocks asked, partial ones included."""
        if hit_rate is None or not math.isfinite(hit_rate) or hit_rate < 0:
            return None
        blocks = math.ceil(prompt_tokens / self._plan.block_tokens)
        return round(hit_rate * blocks) * self._plan.block_tokens

    def _refused(self, sent: Sequence[asyncio.Task[Sent]]) -> None:
        """Where users share the workers, a request of ours that is refused says that theirs are about to be."""
        ended = [task.result() for task in sent if task.done() and not task.cancelled() and task.exception() is None]
        refused = sum(1 for request in ended if request.fault in {"Unavailable", "Overloaded"})
        if self._plan.on_live and refused:
            raise AbortedError(f"{refused} requests were answered with 503 or 529 on the deployment that users share")

    async def _quiet(self) -> None:
        """What users feel while nothing of ours runs."""
        ending = time.monotonic() + (QUIET_SECONDS if self._plan.live else 0.0)
        while time.monotonic() < ending:
            await self._look(self._before)
            await asyncio.sleep(LOOK_SECONDS)
            if objection := self._objection():
                raise AbortedError(objection)

    async def _watched(self, work: Awaitable[None]) -> None:
        """The work, ended as soon as a look at the users objects."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_SECONDS)
            await self._look(self._during)
            if not task.done() and (objection := self._objection()):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise AbortedError(objection)
        await task

    async def _look(self, into: dict[str, list[LiveLook]]) -> None:
        for url, looks in into.items():
            page = await self._page(url)
            if page is not None:
                looks.append(pages.look(page, time.monotonic()))

    def _objection(self) -> str:
        for url in self._plan.live:
            before, during = self._before[url], self._during[url]
            seen = during or before[-1:]
            if found := guard.objection(before, seen, self._plan.most_live_utilization):
                return found
        return ""
