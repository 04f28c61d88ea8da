"""`python3 -m kvgate_bench run --plan FILE`: sends the load of an A/B; JSON lines on stdout.

Exit codes: 0 told to the end (an aborted A/B has been told too), 2 usage, or a plan or trace that cannot be used (the
latter has been told too),
143 ended by SIGTERM after telling so.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import signal
import sys
from pathlib import Path

import aiohttp

from kvgate_bench import workload
from kvgate_bench.session import Door, Session
from kvgate_bench.trace import MOST_BYTES, TraceError, read_trace
from kvgate_bench.wire import TRACE, Ending, Plan, RunResult, decode_plan, encode_ending, encode_run
from kvgate_bench.workload import Due
from kvgate_probe.fields import WireError

USAGE, TERMINATED = 2, 143


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        plan = decode_plan(options.plan.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return _fail(f"plan: {getattr(error, 'strerror', None) or 'cannot be read'}", options.termination_log)
    except WireError as error:
        return _fail(str(error), options.termination_log)
    try:
        requests = _requests(plan, options.trace)
    except (OSError, TraceError) as error:
        why = str(error) if isinstance(error, TraceError) else f"trace: {error.strerror or 'cannot be read'}"
        print(encode_ending(plan.run_id, Ending(aborted=why)), flush=True)
        return _fail(why, options.termination_log)
    ending = asyncio.run(_run(plan, requests))
    print(encode_ending(plan.run_id, ending), flush=True)
    _leave(options.termination_log, ending.aborted or "told to the end")
    return TERMINATED if ending.aborted == _TOLD_TO_END else 0


_TOLD_TO_END = "the load generator was told to end"


def _requests(plan: Plan, trace: Path | None) -> tuple[tuple[Due, ...], ...]:
    if plan.workload != TRACE:
        return workload.requests_of(plan, None)
    if trace is None:
        raise TraceError("the plan asks for a trace and none was given")
    with trace.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if plan.trace_digest not in {"", hashlib.sha256(raw).hexdigest()}:
        raise TraceError("the trace is not the one that the A/B was planned for: its ConfigMap was changed meanwhile")
    return workload.requests_of(plan, read_trace(raw, plan.blocks * plan.requests_per_run))


async def _run(plan: Plan, requests: tuple[tuple[Due, ...], ...]) -> Ending:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 20) as http:
        task = asyncio.ensure_future(Session(plan, requests, Door(http, lambda run: _tell(plan, run))).run())
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return Ending(aborted=_TOLD_TO_END)


def _tell(plan: Plan, run: RunResult) -> None:
    for line in encode_run(plan.run_id, run):
        print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvgate_bench", description="Sends the load of a routing A/B.")
    run = parser.add_subparsers(required=True).add_parser("run", help="run one A/B after its plan")
    run.add_argument("--plan", type=Path, required=True, help="file with the plan, JSON")
    run.add_argument("--trace", type=Path, help="file with the trace, JSON lines in Mooncake's format, gzip allowed")
    run.add_argument("--termination-log", type=Path, help="file for a last word, at most 4096 bytes")
    return parser


def _fail(message: str, termination_log: Path | None) -> int:
    print(f"kvgate_bench: {message}", file=sys.stderr)
    _leave(termination_log, message)
    return USAGE


def _leave(termination_log: Path | None, text: str) -> None:
    if termination_log is None:
        return
    try:
        termination_log.write_text(text[:4000], encoding="utf-8")
    except OSError as error:
        print(f"kvgate_bench: termination log: {error.strerror}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
