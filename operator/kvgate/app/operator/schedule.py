"""Which keys are due when, each once, and never one that is worked on: the queue's rules, without clock or lock."""

from __future__ import annotations

import heapq


class Schedule:
    """Times are seconds on whatever clock the caller reads; they only have to come from the same one."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._rests: dict[str, float] = {}
        self._taken: set[str] = set()
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """How many keys wait, due or not, those that must run once more after their present turn included."""
        return len(self._due)

    def add(self, key: str, due: float) -> None:
        """The earliest time that was asked for wins, but no key is due before its rest is over."""
        due = max(due, self._rests.get(key, due))
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        if key not in self._taken:
            heapq.heappush(self._heap, (due, key))

    def take(self, now: float) -> str | None:
        """The key that has been due the longest; it is not given out again before `done`."""
        due = self.next_due()
        if due is None or due > now:
            return None
        _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._rests.pop(key, None)
        self._taken.add(key)
        return key

    def done(self, key: str, rest_until: float) -> None:
        """What was added for the key meanwhile is due now, or once it has rested."""
        self._taken.discard(key)
        self._rests[key] = rest_until
        if key in self._due:
            due = self._due.pop(key)
            self.add(key, due)

    def next_due(self) -> float | None:
        """When the next free key is due; None when nothing waits."""
        while self._heap and not self._stands(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def forget_rests(self, now: float) -> None:
        """Drop the rests that are over, so that keys that never come back take no room."""
        self._rests = {key: until for key, until in self._rests.items() if until > now}

    def _stands(self, due: float, key: str) -> bool:
        return key not in self._taken and self._due.get(key) == due
