"""What every measuring tool looks like to the walker: one end serves, the other starts the test, both leave a text.

A tool's text is handed on as it is: numbers are read from it by the operator alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvgate_probe.budget import Allowance
from kvgate_probe.peers import Address
from kvgate_probe.wire import Load, Role, Trouble


@dataclass(frozen=True)
class Ran:
    """What one end has after a test: the tool's text, or the trouble.

    Of the end that started it also how long the test was meant to be, and the payload that the source sent in how many
    seconds. `good` is whether the text speaks of a whole test. `set_up_seconds` is from the start of the tool to its
    first measured transfer, None where the tool does not tell.
    """

    document: str = ""
    trouble: Trouble | None = None
    message: str = ""
    attempts: int = 1
    seconds: float | None = None
    sent_bytes: int | None = None
    sent_seconds: float = 0.0
    failed: bool = False
    set_up_seconds: float | None = None
    load: Load | None = None

    @property
    def good(self) -> bool:
        return self.trouble is None and bool(self.document) and not self.failed


class Serving(Protocol):
    """A server that waits for one test."""

    @property
    def port(self) -> int: ...

    async def ended(self, seconds: float) -> bool: ...

    async def stop(self) -> Ran: ...


class Tool(Protocol):
    """One tool at one end. Bytes always flow from the source to the destination; `starter` is the end that connects:
    the source where it pushes, the destination where it reads."""

    @property
    def starter(self) -> Role: ...

    def problem(self) -> Ran | None:
        """Why no test at all can run on this host."""

    async def serve(self, control_port: int, allowance: Allowance, local_address: str) -> Serving | Ran:
        """Listens on one of the DATA_PORTS ports after the control port. `local_address` is the one that this host
        sends from to its partner, "" where it is not known."""

    async def run(self, address: Address, allowance: Allowance) -> Ran:
        """One whole test against a server that listens at `address`."""
