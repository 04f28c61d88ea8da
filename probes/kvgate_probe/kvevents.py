"""`python3 -m kvgate_probe.kvevents`: listens to the KV events of each worker, and says one JSON line of each.

It subscribes and never publishes or asks for anything: serving does not notice it. Exit codes: 0 listened (whatever was
heard), 1 could not listen, 2 usage or an unreadable plan.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message

from kvgate_probe.fields import WireError
from kvgate_probe.kvevents_payload import MOST_BYTES, EventKind
from kvgate_probe.kvevents_tally import Link, State, Tally
from kvgate_probe.kvevents_wire import Endpoint, Plan, decode_plan

CANNOT_LISTEN, USAGE = 1, 2
MOST_WAITING = 10_000
HANDSHAKE_MILLISECONDS = 5000
POLL_MILLISECONDS = 100


class Listener:
    """One subscription, to every topic: a topic that nobody expects is to be seen too."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.tally = Tally(endpoint.rank)
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.IPV6, 1)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVHWM, MOST_WAITING)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MILLISECONDS)
        self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        self.monitor = self.socket.get_monitor_socket()
        self.socket.connect(endpoint.address)

    def read(self) -> None:
        """What waits at the socket now, up to a bound: another listener has its turn too."""
        for _ in range(MOST_WAITING):
            try:
                self.tally.add(self.socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return

    def notice(self) -> None:
        """How far the connection came."""
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.tally.link = Link.ZMQ
            elif event == zmq.EVENT_CONNECTED and self.tally.link is Link.NONE:
                self.tally.link = Link.TCP

    def close(self) -> None:
        self.socket.disable_monitor()
        self.socket.close(0)


def listen(plan: Plan) -> tuple[Listener, ...]:
    """Listens until each endpoint gave a stored event, or the time is over. Raises zmq.ZMQError."""
    with zmq.Context() as context:
        listeners = tuple(Listener(context, endpoint) for endpoint in plan.endpoints)
        try:
            _listen(listeners, time.monotonic() + plan.seconds)
        finally:
            for listener in listeners:
                listener.close()
    return listeners


def _listen(listeners: tuple[Listener, ...], until: float) -> None:
    poller = zmq.Poller()
    for listener in listeners:
        poller.register(listener.socket, zmq.POLLIN)
        poller.register(listener.monitor, zmq.POLLIN)
    while time.monotonic() < until and not all(listener.tally.stored for listener in listeners):
        ready = dict(poller.poll(POLL_MILLISECONDS))
        for listener in listeners:
            if listener.monitor in ready:
                listener.notice()
            if listener.socket in ready:
                listener.read()


def line(plan: Plan, listener: Listener) -> str:
    """What is told of one endpoint."""
    tally = listener.tally
    return json.dumps(
        {
            "runID": plan.run_id,
            "worker": listener.endpoint.worker,
            "address": listener.endpoint.address,
            "rank": listener.endpoint.rank,
            "state": tally.state(plan.block_tokens),
            "message": tally.said(plan.block_tokens, plan.seconds),
            "messages": tally.messages,
            "malformed": sum(tally.malformed.values()),
            "stored": tally.stored,
            "removed": tally.events[EventKind.REMOVED],
            "cleared": tally.events[EventKind.CLEARED],
            "unknown": tally.events[EventKind.UNKNOWN],
            "filtered": tally.filtered,
            "otherTiers": tally.other_tiers,
            "blocks": tally.blocks,
            "blockTokens": sorted(tally.block_tokens)[:16],
            "topics": sorted(tally.topics)[:16],
            "wires": sorted(tally.wires),
            "ranks": sorted(rank for rank in tally.sequences.last if rank is not None)[:64],
            "late": tally.sequences.late,
            "lost": tally.sequences.lost,
            "repeated": tally.sequences.repeated,
            "resets": tally.sequences.resets,
        }
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kvgate_probe.kvevents", description="Listens to workers' KV events.")
    parser.add_argument("--plan", type=Path, required=True, help="file with the plan, JSON")
    options = parser.parse_args(arguments)
    try:
        plan = decode_plan(options.plan.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, WireError) as error:
        return _fail(USAGE, f"plan: {error.strerror if isinstance(error, OSError) else error}")
    try:
        listeners = listen(plan)
    except zmq.ZMQError as error:
        return _fail(CANNOT_LISTEN, f"cannot listen: {error}")
    for listener in listeners:
        print(line(plan, listener), flush=True)
    good = sum(listener.tally.state(plan.block_tokens) is State.FLOWS for listener in listeners)
    print(f"{good} of {len(listeners)} endpoints publish KV events", file=sys.stderr)
    return 0


def _fail(code: int, message: str) -> int:
    print(f"kvgate_probe.kvevents: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
