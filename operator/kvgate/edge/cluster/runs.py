"""A run of ours in a namespace: its objects are made once, found again after a death, and known as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from kvgate.core.runs import JobState, RunningJob
from kvgate.dynamo.document import at, text
from kvgate.edge.cluster.client import JOBS, PODS, Client, Document, Query, Resource
from kvgate.edge.cluster.refusals import AlreadyExists, Forbidden, NotFound, Refused
from kvgate.edge.cluster.walkers import has_ended, is_of_run
from kvgate.edge.errors import MeasureError
from kvgate.probe.jobs import POOL_UID, RUN, Owner

T = TypeVar("T")
NO_IMAGE = "the operator's settings name no probe image: its administrator must set probe.image"


def of_run(owner: Owner, run_id: str) -> Query:
    """What carries the labels of this pool's run; whether it is ours, `is_of_run` tells."""
    return Query(labels=f"{POOL_UID}={owner.uid},{RUN}={run_id}")


def make(
    client: Client, kind: Resource, manifest: Mapping[str, object], made: T, kept: Callable[[], T | None], what: str
) -> T:
    """`made`, or what `kept` finds that an earlier attempt at this run left behind. Raises MeasureError where the API
    server refuses it, and where an object of its name is not of this pool's `what`."""
    namespace, name = text(at(manifest, "metadata", "namespace")), text(at(manifest, "metadata", "name"))
    try:
        client.create(kind, namespace, manifest)
    except AlreadyExists:
        found = kept()
        if found is None:
            taken = f"{kind.kind} {namespace}/{name} is not of this pool's {what} and has its name: delete it"
            raise MeasureError(taken) from None
        return found
    except (Forbidden, Refused) as error:
        raise MeasureError(str(error)) from error
    return made


def job_of(client: Client, owner: Owner, run_id: str, name: str) -> Document | None:
    """The one Job of a run; one that is being deleted counts as gone."""
    try:
        found = client.get(JOBS, owner.namespace, name)
    except NotFound:
        return None
    gone = at(found, "metadata", "deletionTimestamp") is not None
    return found if is_of_run(found, owner, run_id) and not gone else None


def pods_of(client: Client, owner: Owner, run_id: str) -> tuple[Document, ...]:
    return client.list(PODS, owner.namespace, of_run(owner, run_id))


def uid_of(job: Document) -> str:
    return text(at(job, "metadata", "uid"))


def standing(job: Document, run_id: str, trouble: str = "") -> RunningJob:
    return RunningJob(run_id, uid_of(job), JobState.ENDED if has_ended(job) else JobState.RUNNING, trouble)
