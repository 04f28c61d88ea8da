"""`python3 -m kvgate_probe walk`: one node's walk through a sweep; JSON lines on stdout, a summary at the end.

Exit codes: 0 walked to the end (whatever the tests gave), 1 could not walk, 2 usage or unreadable schedule,
143 ended by SIGTERM after telling so.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import signal
import sys
import time
from pathlib import Path

from kvgate_probe.fields import WireError
from kvgate_probe.partners import Patience
from kvgate_probe.peers import PeersFile
from kvgate_probe.records import Trip
from kvgate_probe.summary import Summary, encode_summary
from kvgate_probe.tools import TOOLS, tools_of
from kvgate_probe.walker import Walker
from kvgate_probe.wire import Result, Schedule, decode_schedule, encode_result

CANNOT_WALK, USAGE, TERMINATED = 1, 2, 143


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        schedule = decode_schedule(options.schedule.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, WireError) as error:
        return _fail(USAGE, f"schedule: {_reason(error)}", options.termination_log)
    strange = sorted({step.tool for step in schedule.steps} - TOOLS.keys())
    if strange:
        known = f"this probe knows the tools {', '.join(sorted(TOOLS))} alone"
        return _fail(USAGE, f"schedule: {known}", options.termination_log)
    try:
        summary = asyncio.run(_walk(options, schedule))
    except OSError as error:
        kind = "PortInUse: " if error.errno == errno.EADDRINUSE else ""
        message = f"{kind}control port {options.port or schedule.port}: {_reason(error)}"
        return _fail(CANNOT_WALK, message, options.termination_log)
    except asyncio.CancelledError:
        return _fail(TERMINATED, "told to end before the walk began", options.termination_log)
    text = encode_summary(summary)
    print(text, file=sys.stderr)
    _leave(options.termination_log, text)
    return TERMINATED if summary.interrupted else 0


async def _walk(options: argparse.Namespace, schedule: Schedule) -> Summary:
    port = options.port or schedule.port
    patience = Patience(ask_seconds=options.ask_seconds, address_seconds=options.address_wait)
    trip = Trip(schedule, options.node, port, options.bind, patience, time.time)
    peers = PeersFile(options.peers, schedule.port)
    walker = Walker(trip, peers, tools_of(schedule, options.bind), _tell)
    task = asyncio.ensure_future(walker.walk())
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, _cancel_once, task, signum)
    return await task


def _cancel_once(task: asyncio.Task[Summary], signum: int) -> None:
    asyncio.get_running_loop().add_signal_handler(signum, lambda: None)
    task.cancel()


def _tell(result: Result) -> None:
    print(encode_result(result), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvgate_probe", description="Measures a node's paths in a sweep.")
    walk = parser.add_subparsers(required=True).add_parser("walk", help="walk one node through a schedule")
    walk.add_argument("--schedule", type=Path, required=True, help="file with the schedule, JSON")
    walk.add_argument("--peers", type=Path, required=True, help="file with node → address, JSON; may come late")
    walk.add_argument("--node", required=True, help="the node that this walker stands for")
    walk.add_argument("--bind", help="address to listen on and to send from")
    walk.add_argument("--port", type=int, help="control port, where it is not the schedule's")
    walk.add_argument("--address-wait", type=float, default=120.0, help="seconds to wait for an address")
    walk.add_argument("--ask-seconds", type=float, default=5.0, help="wait for one answer; three missed are silence")
    walk.add_argument("--termination-log", type=Path, help="file for the summary, at most 4096 bytes")
    return parser


def _reason(error: Exception) -> str:
    return (error.strerror or "cannot be read") if isinstance(error, OSError) else str(error)


def _fail(code: int, message: str, termination_log: Path | None) -> int:
    print(f"kvgate_probe: {message}", file=sys.stderr)
    _leave(termination_log, message)
    return code


def _leave(termination_log: Path | None, text: str) -> None:
    if termination_log is None:
        return
    try:
        termination_log.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"kvgate_probe: termination log: {_reason(error)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
