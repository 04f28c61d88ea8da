"""The API server as a judge of documents: what it answers to a create or an update that is not carried out."""

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client

from kvgate.api.complaints import Complaint
from kvgate.api.crds import KINDS
from kvgate.api.wire import GROUP, VERSION
from tests.api.documents import Document

_PLURALS = {kind.kind: kind.plural for kind in KINDS}
_UNKNOWN = re.compile(r'unknown field "([^"]*)"')
NAMESPACE = "default"


class Server:
    """One API server that knows our kinds."""

    def __init__(self, connection: client.ApiClient) -> None:
        self._objects = client.CustomObjectsApi(connection)

    def judge(self, document: Document, old: Document | None = None) -> tuple[Complaint, ...]:
        """What is wrong with the document, as a new object or as a change of `old`; empty when it is accepted."""
        try:
            if old is None:
                self.create(document, dry_run="All")
            else:
                with self.stored(old) as kept:
                    self._replace(document, kept)
        except client.ApiException as refusal:
            return tuple(_complaints(refusal))
        return ()

    def create(self, document: Document, **options: Any) -> Document:
        return _body(
            self._objects.create_namespaced_custom_object(
                *self._where(document), document, field_validation="Strict", **options
            )
        )

    @contextmanager
    def stored(self, document: Document) -> Iterator[Document]:
        """The document as a real object under a name of its own."""
        name = f"t-{secrets.token_hex(4)}"
        kept = self.create(document | {"metadata": {"name": name}})
        try:
            yield self.read(kept)
        finally:
            self._objects.delete_namespaced_custom_object(*self._where(document), name)

    def read(self, document: Document) -> Document:
        return _body(self._objects.get_namespaced_custom_object(*self._where(document), document["metadata"]["name"]))

    def write_status(self, document: Document) -> Document:
        return _body(
            self._objects.replace_namespaced_custom_object_status(
                *self._where(document), document["metadata"]["name"], document, field_validation="Strict"
            )
        )

    def _replace(self, document: Document, kept: Document) -> None:
        metadata = {key: kept["metadata"][key] for key in ("name", "resourceVersion")}
        self._objects.replace_namespaced_custom_object(
            *self._where(document),
            metadata["name"],
            document | {"metadata": metadata},
            dry_run="All",
            field_validation="Strict",
        )

    @staticmethod
    def _where(document: Document) -> tuple[str, str, str, str]:
        return GROUP, VERSION, NAMESPACE, _PLURALS[document["kind"]]


def _body(answer: object) -> Document:
    assert isinstance(answer, dict)
    return answer


def _complaints(refusal: client.ApiException) -> Iterator[Complaint]:
    assert refusal.status in {400, 422}, refusal.body
    answer = json.loads(refusal.body or "")
    for name in _UNKNOWN.findall(answer["message"]):
        yield Complaint(name, f'unknown field "{name}"')
    for cause in answer.get("details", {}).get("causes", ()):
        yield Complaint(cause.get("field", ""), cause["message"])
