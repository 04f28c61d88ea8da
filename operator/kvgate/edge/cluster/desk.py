"""What a person does with pools at the API server, as the user of a kubeconfig: look, approve, ask, suspend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from kvgate.api.approval import ApprovalSpec
from kvgate.api.objects import GateApproval, read_approval
from kvgate.api.wire import API_VERSION
from kvgate.core.world import Pool
from kvgate.dynamo.document import at, mapping, text
from kvgate.edge.cluster.client import (
    APPROVALS,
    CORE_EVENTS,
    POOLS,
    REPORTS,
    Client,
    Document,
    Query,
    Resource,
)
from kvgate.edge.cluster.reading import source_of, stored_pool, target_of
from kvgate.edge.cluster.refusals import Forbidden, NotFound, Unavailable
from kvgate.edge.connection import CALL_SECONDS
from kvgate.edge.errors import EdgeError
from kvgate.edge.objects import Source, completed
from kvgate.edge.observe import MEASURE_REQUESTED_AT, pool_of

_WHO_AM_I = Resource("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
READER, EDITOR, APPROVER, NETWORK = "kvgate-viewer", "kvgate-pool-editor", "kvgate-approver", "kvgate-network"
"""Cluster roles: what a person who may not is to ask for."""
_STEM = 40


@dataclass(frozen=True)
class PoolEvent:
    """One Kubernetes Event about a pool."""

    at: str
    type: str
    reason: str
    message: str


class Desk:
    """One cluster as one person. All methods raise EdgeError with a line for that person."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def pools(self, namespace: str) -> tuple[Pool, ...]:
        """Those of a namespace, or of the whole cluster where it is empty; by namespace and name."""
        where = f"namespace {namespace}" if namespace else "the whole cluster"
        with as_person(f"the pools of {where}", READER):
            found = self._client.list(POOLS, namespace)
        return tuple(_pool(body) for body in found)

    def pool(self, namespace: str, name: str) -> Pool:
        with as_person(f"InferencePool {namespace}/{name}", READER):
            return _pool(self._client.get(POOLS, namespace, name))

    def target(self, pool: Pool) -> Source | None:
        """The deployment that the pool names; None where there is none."""
        name = pool.spec.target_ref.name
        with as_person(f"DynamoGraphDeployment {pool.namespace}/{name}", "that reads DynamoGraphDeployments"):
            found = target_of(self._client, pool.namespace, name)
        return source_of(found[0]) if found else None

    def approvals(self, pool: Pool) -> tuple[GateApproval, ...]:
        """Those of this pool, newest first."""
        with as_person(f"the approvals of namespace {pool.namespace}", READER):
            bodies = self._client.list(APPROVALS, pool.namespace)
        read = (read_approval(completed(source_of(body))) for body in bodies)
        mine = [one for one in read if isinstance(one, GateApproval) and one.spec.pool_ref.uid == pool.uid]
        return tuple(sorted(mine, key=lambda one: str(one.metadata.creation_timestamp), reverse=True))

    def fabric_class(self, pool: Pool) -> str:
        """What the vendor or the network team declares of the fabric in the report that the status names."""
        report = pool.status.fabric.report if pool.status.fabric else ""
        if not report:
            return ""
        with as_person(f"FabricReport {pool.namespace}/{report}", READER):
            try:
                return text(at(self._client.get(REPORTS, pool.namespace, report), "spec", "fabricClass"))
            except NotFound:
                return ""

    def events(self, pool: Pool) -> tuple[PoolEvent, ...]:
        """What Kubernetes still keeps of the Events about this pool, oldest first; an hour by default."""
        asked = Query(fields=f"involvedObject.uid={pool.uid}")
        with as_person(f"the Events of namespace {pool.namespace}", "view"):
            found = self._client.list(CORE_EVENTS, pool.namespace, asked)
        return tuple(sorted((_event(body) for body in found), key=lambda event: event.at))

    def me(self) -> str:
        """The user name by which the API server knows the person."""
        body = {"apiVersion": _WHO_AM_I.api_version, "kind": _WHO_AM_I.kind, "metadata": {}}
        with as_person("who you are", "system:basic-user"):
            answer = self._client.create(_WHO_AM_I, "", body)
        return text(at(answer, "status", "userInfo", "username"))

    def approve(self, namespace: str, spec: ApprovalSpec) -> str:
        """Create the approval and return its name."""
        stem = f"{spec.pool_ref.name[:_STEM].rstrip('-.')}-{spec.capability.lower()}-"
        body = {
            "apiVersion": API_VERSION,
            "kind": "GateApproval",
            "metadata": {"generateName": stem, "namespace": namespace},
            "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        with as_person(f"a GateApproval in namespace {namespace}", APPROVER):
            return text(at(self._client.create(APPROVALS, namespace, body), "metadata", "name"))

    def ask_for_sweep(self, pool: Pool, now: datetime) -> str:
        """Set the annotation that asks for a sweep at once; returns its value."""
        stamp = now.isoformat(timespec="microseconds")
        self._change(pool, {"metadata": {"uid": pool.uid, "annotations": {MEASURE_REQUESTED_AT: stamp}}}, NETWORK)
        return stamp

    def set_suspended(self, pool: Pool, *, suspended: bool) -> None:
        self._change(pool, {"metadata": {"uid": pool.uid}, "spec": {"suspend": suspended}}, EDITOR)

    def _change(self, pool: Pool, patch: Document, role: str) -> None:
        with as_person(f"InferencePool {pool.key}", role):
            self._client.merge(POOLS, pool.namespace, pool.name, patch)


@contextmanager
def as_person(what: str, role: str) -> Iterator[None]:
    """Errors as they concern a person at a shell, who asks again by hand and may lack a role."""
    try:
        yield
    except Unavailable as error:
        raise EdgeError(f"{what}: the API server gave no usable answer within {CALL_SECONDS:.0f} s") from error
    except NotFound as error:
        raise EdgeError(f"{what}: there is none") from error
    except Forbidden as error:
        if "admission policy" in str(error):
            raise EdgeError(f"{what}: an admission policy denies it") from error
        raise EdgeError(f"{what}: you may not; ask whoever runs the cluster for the role {role}") from error


def _pool(body: Document) -> Pool:
    metadata = body.get("metadata") or {}
    return pool_of(stored_pool(body, f"{metadata.get('namespace')}/{metadata.get('name')}"))


def _event(body: Mapping[str, object]) -> PoolEvent:
    times = (body.get("eventTime"), body.get("lastTimestamp"), at(mapping(body.get("metadata")), "creationTimestamp"))
    when = next((text(value) for value in times if value), "")
    return PoolEvent(when, text(body.get("type")), text(body.get("reason")), text(body.get("message")))
