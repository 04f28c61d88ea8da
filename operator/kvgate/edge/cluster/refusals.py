"""What the API server answers when it will not, as errors that say who must act."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kvgate.dynamo.document import at, mappings, shown, text
from kvgate.edge.errors import EdgeError, WriteConflictError

_WEBHOOK = re.compile(r"admission webhook .{1,253} denied the request")
_MANAGER = re.compile(r'conflict with "([^"]+)"')


class ClusterError(EdgeError):
    """The API server did not do what was asked."""


class NotFound(ClusterError):  # noqa: N818 - the words of Kubernetes
    """There is no such object."""


class Conflict(ClusterError, WriteConflictError):  # noqa: N818
    """The object is another one, or another version, than the one that was read: look again."""


class AlreadyExists(ClusterError):  # noqa: N818
    """The name is taken."""


class HeldByOthers(ClusterError):  # noqa: N818
    """Other field managers hold what was to be written; `managers` are they."""

    def __init__(self, message: str, managers: tuple[str, ...]) -> None:
        super().__init__(message)
        self.managers = managers


class Forbidden(ClusterError):  # noqa: N818
    """The operator's ServiceAccount may not, or a policy or quota denies it."""


class Refused(ClusterError):  # noqa: N818
    """The API server finds the document wrong."""


class Unavailable(ClusterError):  # noqa: N818
    """The API server gave no answer, or not in time: ask again."""


def refusal(status: int, body: str, what: str) -> ClusterError:
    """The error for an answer of this HTTP status to `what`; nothing of the body is repeated but managers' names."""
    answer = _answer(body)
    reason = text(answer.get("reason"))
    managers = _managers(answer)
    if managers:
        held = ", ".join(shown(name) for name in managers)
        return HeldByOthers(f"{what}: the field is held by {held}", managers)
    if reason == "AlreadyExists":
        return AlreadyExists(f"{what}: the name is taken")
    if status == 403 or _by_admission(answer):
        return Forbidden(f"{what}: {_denied(answer)}")
    if status == 422 and not answer.get("details", {}) and text(answer.get("message")).startswith(_NOT_AS_READ):
        return Conflict(f"{what}: it was changed since it was read")
    if status in _REFUSED:
        return Refused(f"{what}: the API server refuses the document (status {status}{_fields(answer)})")
    kind, why = _KINDS.get(status, (Unavailable, f"the API server answers with status {status}; it is asked again"))
    return kind(f"{what}: {why}")


_NOT_AS_READ = "the server rejected our request due to an error in our request"
"""What it says, without details, of a JSON patch whose test fails or whose path is not there."""
_REFUSED = frozenset({400, 413, 415, 422})
_KINDS: dict[int, tuple[type[ClusterError], str]] = {
    401: (Forbidden, "the API server does not know our credentials; check the operator's ServiceAccount"),
    404: (NotFound, "there is none"),
    409: (Conflict, "it was changed or replaced since it was read"),
}


def _answer(body: str) -> Mapping[str, Any]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _managers(answer: Mapping[str, Any]) -> tuple[str, ...]:
    causes = mappings(at(answer, "details", "causes"))
    told = (text(cause.get("message")) for cause in causes if cause.get("reason") == "FieldManagerConflict")
    return tuple(sorted({found.group(1) for found in map(_MANAGER.search, told) if found}))


def _by_admission(answer: Mapping[str, Any]) -> bool:
    """A policy or webhook chooses its own status: a policy that names no reason answers 422."""
    said = text(answer.get("message"))
    return "ValidatingAdmissionPolicy" in said or _WEBHOOK.search(said) is not None


def _denied(answer: Mapping[str, Any]) -> str:
    said = text(answer.get("message"))
    if any(cause.get("reason") == "NamespaceTerminating" for cause in mappings(at(answer, "details", "causes"))):
        return "the namespace is being deleted, and nothing new can be made in it"
    if "exceeded quota" in said:
        return "a ResourceQuota of the namespace is used up; raise it or free some of it"
    if "violates PodSecurity" in said:
        return "the namespace's Pod Security level forbids it; allow it in the namespace or change the probe"
    if "ValidatingAdmissionPolicy" in said:
        return "an admission policy denies it for now; it is tried again; ask who set the policy if it stays"
    if _WEBHOOK.search(said):
        return "an admission webhook denies it; ask who runs the webhook to admit it"
    return "forbidden; give the operator's ServiceAccount the permission, or ask who set the policy"


def _fields(answer: Mapping[str, Any]) -> str:
    named = sorted({text(cause.get("field")) for cause in mappings(at(answer, "details", "causes"))} - {""})
    return f"; {', '.join(shown(name) for name in named[:5])}" if named else ""
