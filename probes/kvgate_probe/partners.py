"""What a walker knows of each partner, and when it may call one silent."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate_probe.control import Standing, State
from kvgate_probe.wire import Trouble


@dataclass(frozen=True)
class Patience:
    """A partner is silent after `asks` unanswered questions over `asks` times `ask_seconds` seconds."""

    ask_seconds: float = 5.0
    asks: int = 3
    poll_seconds: float = 0.1
    watch_seconds: float = 1.0
    address_seconds: float = 120.0

    @property
    def silence_seconds(self) -> float:
        return self.ask_seconds * self.asks


@dataclass
class Partner:
    """The last word of one partner, and since when it has owed an answer."""

    node: str
    position: int = -1
    state: State = State.WALKING
    port: int | None = None
    run: str = ""
    settled: Trouble | None = None
    seconds: float | None = None
    most_bytes: int | None = None
    stranger: Trouble | None = None
    heard_at: float | None = None
    owed_since: float | None = None
    unanswered: int = 0

    @property
    def gone(self) -> bool:
        return self.state is not State.WALKING

    def hear(self, standing: Standing, now: float) -> None:
        """Takes the partner's word; one that said good-bye is never taken for a walking one by an older word."""
        self.heard_at, self.stranger, self.owed_since, self.unanswered = now, None, None, 0
        if self.gone and standing.state is State.WALKING:
            return
        self.position, self.port, self.state = standing.position, standing.port, standing.state
        self.run, self.settled = standing.run, standing.settled
        self.seconds, self.most_bytes = standing.seconds, standing.most_bytes

    def miss(self, asked_at: float, stranger: Trouble | None = None) -> None:
        """Counts a question that went unanswered, or was answered by a stranger, who is remembered when gone."""
        self.stranger = stranger or self.stranger
        self.owed_since = asked_at if self.owed_since is None else self.owed_since
        self.unanswered += 1

    def miss_unasked(self, now: float, patience: Patience) -> None:
        """Counts the silence of a partner that asked us before and that we have no address to ask at."""
        if self.heard_at is not None and now - self.heard_at >= patience.ask_seconds:
            self.miss(self.heard_at)

    def silent(self, now: float, patience: Patience) -> bool:
        if self.gone or self.owed_since is None or self.unanswered < patience.asks:
            return False
        return now - self.owed_since >= patience.silence_seconds
