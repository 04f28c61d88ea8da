"""What runs beside a test in a thread of its own, from the start of a `with` block to its end."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, Self

TURN_SECONDS = 0.2


@dataclass
class Beside:
    """`run` goes on until `stop` is set, at the end of the block, and is waited for."""

    title: ClassVar[str]
    stop: threading.Event = field(default_factory=threading.Event, init=False)
    thread: threading.Thread | None = field(default=None, init=False)

    def run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.run, name=self.title)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        if self.thread is not None:
            self.thread.join()


@dataclass
class Turning(Beside):
    """Takes turns. What a turn raises is told at the end of the block: the block fails with it, or has it as a note."""

    faults: list[str] = field(default_factory=list, init=False)

    def turn(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        while not self.stop.wait(TURN_SECONDS):
            try:
                self.turn()
            except Exception:  # noqa: BLE001  the test that owns this thread is told at its end
                self.faults.append(traceback.format_exc())

    def last(self) -> None:
        """What is done once no more turns are taken."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.last()
        if error is not None:
            error.add_note("\n".join(self.faults[-1:]))
        assert error is not None or not self.faults, "\n".join(self.faults)
