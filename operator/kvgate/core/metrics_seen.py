"""What a Prometheus told of a deployment's frontends: requests over a time, and readiness; or why it told nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kvgate.core.serving import OwnRequests


@dataclass(frozen=True)
class Served:
    """Requests that ended within `seconds` before `until`, as all frontends count them.

    `failed` are those that the deployment did not serve; those that the client spoilt or gave up are in neither number.
    `ttft_seconds` is the sum over the `first_tokens` requests that came to a first token.
    """

    until: datetime
    seconds: float
    requests: float
    failed: float
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    ttft_seconds: float = 0.0
    first_tokens: float = 0.0

    @property
    def failed_share(self) -> float:
        return self.failed / self.requests if self.requests > 0 else 0.0

    @property
    def cached_share(self) -> float | None:
        """Cached prompt tokens over all prompt tokens; None while no prompt was counted."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens > 0 else None

    @property
    def mean_ttft_seconds(self) -> float | None:
        return self.ttft_seconds / self.first_tokens if self.first_tokens > 0 else None

    def without(self, own: Iterable[OwnRequests]) -> Served:
        """The same without our own prompts of that time; never below zero."""
        since = self.until - timedelta(seconds=self.seconds)
        ours = [one for one in own if since <= one.ended_at <= self.until]
        failed = max(self.failed - sum(one.failed for one in ours), 0.0)
        return Served(
            until=self.until,
            seconds=self.seconds,
            requests=max(self.requests - sum(one.requests for one in ours), failed),
            failed=failed,
            prompt_tokens=max(self.prompt_tokens - sum(one.prompt_tokens for one in ours), 0.0),
            cached_tokens=max(self.cached_tokens - sum(one.cached_tokens for one in ours), 0.0),
            ttft_seconds=max(self.ttft_seconds - sum(one.ttft_seconds for one in ours), 0.0),
            first_tokens=max(self.first_tokens - sum(one.first_tokens for one in ours), 0.0),
        )


@dataclass(frozen=True)
class Unseen:
    """Why no number is known, which is not zero: the names that were tried, and who must act."""

    message: str


@dataclass(frozen=True)
class MetricsSeen:
    """The last look. `asked_at` is None while nobody has been asked yet.

    `lately` is the last hour, or the last day where an hour held too few requests; `since_change` counts from
    `changed_at`, the last switch that the pool's history tells. `unready_since` is when the model was first seen
    unready behind some frontend that is unready still.
    """

    asked_at: datetime | None = None
    unseen: Unseen | None = None
    lately: Served | None = None
    changed_at: datetime | None = None
    since_change: Served | None = None
    unready_since: datetime | None = None
