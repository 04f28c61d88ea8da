"""A Lease of coordination.k8s.io: read, created and replaced, never on a version other than the one that was read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from kvgate.dynamo.document import at, text
from kvgate.edge.cluster.client import Client, Document, Resource
from kvgate.edge.cluster.refusals import AlreadyExists, NotFound
from kvgate.edge.errors import WriteConflictError

LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")


@dataclass(frozen=True)
class LeaseRecord:
    """A Lease as read: an empty holder has let it go. `version` is the resourceVersion, to write on no other."""

    holder: str
    duration_seconds: float
    transitions: int
    version: str = ""
    acquired_at: str = ""


class Leases:
    """One Lease by name. Every call ends within 5 s. Raises EdgeError when one could not be made, which is a
    WriteConflictError when the Lease was written since it was read, or made by another first."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    def read(self) -> LeaseRecord | None:
        """None when there is no such Lease."""
        try:
            return _record(self._client.get(LEASES, self._namespace, self._name))
        except NotFound:
            return None

    def create(self, record: LeaseRecord, now: datetime) -> LeaseRecord:
        try:
            return _record(self._client.create(LEASES, self._namespace, self._document(record, now)))
        except AlreadyExists as error:
            raise WriteConflictError(str(error)) from error

    def replace(self, record: LeaseRecord, now: datetime) -> LeaseRecord:
        return _record(self._client.replace(LEASES, self._namespace, self._document(record, now)))

    def _document(self, record: LeaseRecord, now: datetime) -> Document:
        version = {"resourceVersion": record.version} if record.version else {}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace, **version},
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": round(record.duration_seconds),
                "leaseTransitions": record.transitions,
                "acquireTime": record.acquired_at or micro_time(now),
                "renewTime": micro_time(now),
            },
        }


def micro_time(moment: datetime) -> str:
    """As metav1.MicroTime is read: always six digits behind the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _record(document: Document) -> LeaseRecord:
    return LeaseRecord(
        holder=text(at(document, "spec", "holderIdentity")),
        duration_seconds=float(_number(at(document, "spec", "leaseDurationSeconds"))),
        transitions=_number(at(document, "spec", "leaseTransitions")),
        version=text(at(document, "metadata", "resourceVersion")),
        acquired_at=text(at(document, "spec", "acquireTime")),
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
