"""What one endpoint published while it was listened to: its counts, and the word that says what is the matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kvgate_probe.kvevents_payload import Batch, Event, EventKind, Hashes, Malformed, Wire, decode

_LAST_SEQUENCE = 2**64 - 1
"""Ends a replay, and numbers no batch."""


class State(StrEnum):
    """What is the matter with an endpoint, gravest first."""

    NOT_REACHABLE = "NotReachable"
    NOT_ZMQ = "NotZMQ"
    NOTHING = "PublishesNothing"
    GARBAGE = "PublishesGarbage"
    OTHER_BLOCK_SIZE = "OtherBlockSize"
    BYTES = "HashesAreBytes"
    FILTERED = "FilteredOnly"
    FLOWS = "Flows"


class Link(StrEnum):
    """How far the connection came."""

    NONE = "none"
    TCP = "tcp"
    ZMQ = "zmq"


@dataclass
class Sequences:
    """Numbers of batches, by rank: each rank counts for itself, though they share a socket."""

    last: dict[int | None, int] = field(default_factory=dict)
    late: bool = False
    lost: int = 0
    repeated: int = 0
    resets: int = 0

    def add(self, rank: int | None, number: int) -> None:
        """A first number above 0 is a late join and no loss; one that falls to 0 is a restart, another a repeat."""
        before = self.last.get(rank)
        if before is None:
            self.late = self.late or number > 0
        elif number == 0 and before > 0:
            self.resets += 1
        elif number <= before:
            self.repeated += 1
            return
        else:
            self.lost += number - before - 1
        self.last[rank] = number


@dataclass
class Tally:
    """All that came from one endpoint."""

    rank: int | None = None
    link: Link = Link.NONE
    messages: int = 0
    wires: set[Wire] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    malformed: Counter[str] = field(default_factory=Counter)
    events: Counter[EventKind] = field(default_factory=Counter)
    named_by: Counter[Hashes] = field(default_factory=Counter)
    block_tokens: Counter[int] = field(default_factory=Counter)
    blocks: int = 0
    filtered: int = 0
    other_tiers: int = 0
    sequences: Sequences = field(default_factory=Sequences)

    def add(self, frames: Sequence[bytes]) -> None:
        """One message as it came."""
        self.messages += 1
        read = decode(frames)
        if isinstance(read, Malformed):
            self.malformed[read.why] += 1
            return
        self._batch(read)

    def _batch(self, batch: Batch) -> None:
        self.wires.add(batch.wire)
        self.topics.add(batch.topic)
        if batch.sequence != _LAST_SEQUENCE:
            self.sequences.add(self.rank if batch.rank is None else batch.rank, batch.sequence)
        for event in batch.events:
            self._event(event)

    def _event(self, event: Event) -> None:
        if event.kind is EventKind.STORED and event.filtered:
            self.filtered += 1
            return
        self.events[event.kind] += 1
        if event.kind is EventKind.STORED:
            self.blocks += event.blocks
            self.named_by[event.named_by] += 1
            self.other_tiers += not event.device
            if event.block_tokens is not None:
                self.block_tokens[event.block_tokens] += 1

    @property
    def stored(self) -> int:
        return self.events[EventKind.STORED]

    def state(self, wanted_block_tokens: int | None) -> State:
        """The word for it, where blocks of that many tokens are wanted."""
        if self.link is not Link.ZMQ:
            return State.NOT_ZMQ if self.link is Link.TCP else State.NOT_REACHABLE
        if self.malformed and not self.wires:
            return State.GARBAGE
        if not self.stored:
            return State.FILTERED if self.filtered else State.NOTHING
        if wanted_block_tokens is not None and set(self.block_tokens) - {wanted_block_tokens}:
            return State.OTHER_BLOCK_SIZE
        return State.BYTES if set(self.named_by) - {Hashes.NUMBERS, Hashes.NONE} else State.FLOWS

    def said(self, wanted_block_tokens: int | None, seconds: float) -> str:
        """One sentence for a person: what, the number, and who must act."""
        return self._told(wanted_block_tokens, seconds)[self.state(wanted_block_tokens)]

    def _told(self, wanted_block_tokens: int | None, seconds: float) -> dict[State, str]:
        sizes = ", ".join(str(size) for size in sorted(self.block_tokens)[:4])
        why = next(iter(self.malformed), "")
        nobody = "nobody binds there, or a NetworkPolicy is between"
        idle = "an idle engine publishes nothing either, so listen again under new prompts"
        return {
            State.NOT_REACHABLE: f"no connection within {seconds:g} s: {nobody}; the deployer must look",
            State.NOT_ZMQ: "what listens there does not speak ZMQ; the deployer must correct the port",
            State.NOTHING: f"connected, and no stored event in {seconds:g} s, {self.messages} messages in all; {idle}",
            State.GARBAGE: f"{self.messages} messages, and no batch of KV events ({why}); the deployer must look",
            State.OTHER_BLOCK_SIZE: f"blocks of {sizes} tokens, wanted {wanted_block_tokens}; "
            "the deployer must give engine and router one block size",
            State.BYTES: "blocks are named by bytes, and Dynamo's relay takes numbers of 64 bits; "
            "the deployer must choose another hash for the engine",
            State.FILTERED: f"{self.filtered} stored events, all of kinds of attention that no router indexes",
            State.FLOWS: f"{self.stored} stored events of {self.blocks} blocks",
        }
