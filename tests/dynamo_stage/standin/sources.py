"""Where the stand-in finds DynamoGraphDeployments: a real API server, or objects held in memory."""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.dynamo_stage.standin.controller import ChangedError
from tests.dynamo_stage.standin.graph import GROUP, PLURAL, VERSION, Document

MANAGER = "manager"


@dataclass
class ApiSource:
    """The graphs of one namespace of an API server with the real CRD, written whole, as the operator writes them."""

    api: client.ApiClient
    namespace: str

    def graphs(self) -> Sequence[Document]:
        found: Document = self._custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)
        held: list[Document] = found["items"]
        return [one for one in held if "deletionTimestamp" not in one["metadata"]]

    def update(self, document: Document) -> None:
        self._write(self._custom.replace_namespaced_custom_object, document)

    def update_status(self, document: Document) -> None:
        self._write(self._custom.replace_namespaced_custom_object_status, document)

    @property
    def _custom(self) -> Any:
        return client.CustomObjectsApi(self.api)

    def _write(self, write: Callable[..., object], document: Document) -> None:
        name = document["metadata"]["name"]
        try:
            write(GROUP, VERSION, self.namespace, PLURAL, name, document, field_manager=MANAGER)
        except ApiException as error:
            if error.status in {404, 409}:
                raise ChangedError(name) from error
            raise


@dataclass
class MemorySource:
    """Objects that a test writes itself, with uid, generation and resourceVersion as an API server keeps them."""

    held: dict[tuple[str, str], Document] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _version: int = 0

    def graphs(self) -> Sequence[Document]:
        with self.lock:
            return copy.deepcopy(list(self.held.values()))

    def get(self, name: str, namespace: str = "default") -> Document:
        with self.lock:
            return copy.deepcopy(self.held[namespace, name])

    def apply(self, document: Document) -> Document:
        """Create the object, or replace its spec; returns it as it is held now."""
        with self.lock:
            made = copy.deepcopy(document)
            key = made["metadata"].setdefault("namespace", "default"), made["metadata"]["name"]
            before = self.held.get(key)
            if before is None:
                made["metadata"] |= {"uid": str(uuid.uuid4()), "generation": 1}
            else:
                changed = before["spec"] != made["spec"]
                generation = before["metadata"]["generation"] + int(changed)
                made = {**before, "spec": made["spec"], "metadata": {**before["metadata"], "generation": generation}}
            return self._hold(key, made)

    def patch(self, name: str, change: Callable[[Document], None], namespace: str = "default") -> Document:
        """Apply what `change` makes of the object's spec."""
        document = self.get(name, namespace)
        change(document["spec"])
        return self.apply(document)

    def delete(self, name: str, namespace: str = "default") -> None:
        with self.lock:
            del self.held[namespace, name]

    def update(self, document: Document) -> None:
        self._replace(document, ("metadata",))

    def update_status(self, document: Document) -> None:
        self._replace(document, ("status",))

    def _replace(self, document: Document, parts: tuple[str, ...]) -> None:
        key = document["metadata"]["namespace"], document["metadata"]["name"]
        with self.lock:
            before = self.held.get(key)
            if before is None or before["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
                raise ChangedError(key[1])
            self._hold(key, {**before, **{part: document[part] for part in parts}})

    def _hold(self, key: tuple[str, str], document: Document) -> Document:
        self._version += 1
        document["metadata"] = {**document["metadata"], "resourceVersion": str(self._version)}
        self.held[key] = document
        return copy.deepcopy(document)
