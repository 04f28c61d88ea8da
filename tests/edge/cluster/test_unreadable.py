"""A status that an older CRD admitted and that cannot be read: told at the pool, once, and nothing else is touched."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kvgate.edge.cluster.client import EVENTS, POOLS, Client, Document, Resource
from kvgate.edge.cluster.refusals import Refused
from kvgate.edge.cluster.unreadable import Unreadable
from kvgate.edge.errors import EdgeError, StatusUnreadableError, WriteConflictError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WHY = "InferencePool serving/qwen3: status.lastSweepAt: year 0 is out of range; kubectl edit --subresource=status"
APPROVED = {"type": "Approved", "status": "True", "reason": "Approved", "lastTransitionTime": "2026-01-01T00:00:00Z"}


class Server(Client):
    """Keeps what is written, as the API server does where the CRD admits it, or answers with a fault."""

    def __init__(self, answers: EdgeError | None = None) -> None:
        self.answers, self.kept, self.events = answers, list[Document](), list[Document]()

    def replace(self, resource: Resource, namespace: str, body: Document, subresource: str = "") -> Document:
        assert (resource, namespace, subresource) == (POOLS, "serving", "status")
        if self.answers is not None:
            raise self.answers
        self.kept.append(body)
        return body

    def create(self, resource: Resource, namespace: str, body: Document) -> Document:
        assert (resource, namespace) == (EVENTS, "serving")
        self.events.append(body)
        return body


def pool(*conditions: Document) -> Document:
    metadata = {"name": "qwen3", "namespace": "serving", "uid": "u", "resourceVersion": "7"}
    status = {"lastSweepAt": "0000-01-01T00:00:00Z", "conditions": list(conditions)}
    return {"metadata": metadata, "spec": {"mode": "Enforce"}, "status": status}


def test_ready_says_which_field_and_the_rest_of_the_status_stays() -> None:
    server = Server()
    told = Unreadable(server, lambda: NOW, "kvgate-0")
    told.tell(StatusUnreadableError(WHY, pool(APPROVED)))
    (kept,) = server.kept
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "StatusUnreadable",
        "message": WHY,
        "lastTransitionTime": "2026-03-01T00:00:00Z",
    }
    assert kept == pool(APPROVED, ready), "with the version that was read"
    told.tell(StatusUnreadableError(WHY, kept))
    assert (len(server.kept), server.events) == (1, []), "what stands there is not written again"


def test_where_the_condition_is_refused_one_event_says_it() -> None:
    server = Server(Refused("422: status.lastSweepAt in body should match"))
    told = Unreadable(server, lambda: NOW, "kvgate-0")
    for _ in range(3):
        told.tell(StatusUnreadableError(WHY, pool()))
    (event,) = server.events
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "StatusUnreadable", WHY)
    regarding = event["regarding"]
    assert isinstance(regarding, dict)
    assert (regarding["name"], regarding["uid"]) == ("qwen3", "u")


def test_a_pool_that_was_written_meanwhile_is_looked_at_again() -> None:
    told = Unreadable(Server(WriteConflictError("changed")), lambda: NOW, "kvgate-0")
    with pytest.raises(WriteConflictError):
        told.tell(StatusUnreadableError(WHY, pool()))
