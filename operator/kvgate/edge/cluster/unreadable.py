"""Tells at the pool itself that its status cannot be read: by its Ready condition, else by an Event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from kvgate.core.kstatus import status_unreadable
from kvgate.dynamo.document import at, mapping, mappings, text
from kvgate.edge.cluster import writing
from kvgate.edge.cluster.client import POOLS, Client, Document
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.errors import EdgeError, StatusUnreadableError, WriteConflictError


@dataclass
class Unreadable:
    """What was told of which pool, so that nothing is told twice."""

    client: Client
    clock: Callable[[], datetime]
    instance: str

    def __post_init__(self) -> None:
        self._posted: dict[str, str] = {}

    def tell(self, error: StatusUnreadableError) -> None:
        """Raises what the API server answers where neither can be written. All else of the status stays as it is."""
        uid, said = text(at(error.body, "metadata", "uid")), str(error)
        if _ready(error.body) == ("False", status_unreadable(said).reason, status_unreadable(said).message):
            return
        namespace = text(at(error.body, "metadata", "namespace"))
        try:
            self.client.replace(POOLS, namespace, self._with_condition(error), "status")
        except (WriteConflictError, Unavailable):
            raise
        except EdgeError:
            if self._posted.get(uid) != said:
                news = ("Warning", status_unreadable(said).reason, said)
                writing.tell_of(self.client, error.body, (news,), self.clock(), self.instance)
                self._posted[uid] = said

    def _with_condition(self, error: StatusUnreadableError) -> Document:
        said = status_unreadable(str(error))
        condition = {
            "type": "Ready",
            "status": said.status.value,
            "reason": said.reason,
            "message": said.message,
            "lastTransitionTime": self.clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        kept = [held for held in mappings(at(error.body, "status", "conditions")) if held.get("type") != "Ready"]
        status = mapping(error.body.get("status"))
        return {**error.body, "status": {**status, "conditions": [*kept, condition]}}


def _ready(body: Document) -> tuple[str, str, str]:
    held = mappings(at(body, "status", "conditions"))
    found = next((one for one in held if one.get("type") == "Ready"), {})
    return text(found.get("status")), text(found.get("reason")), text(found.get("message"))
