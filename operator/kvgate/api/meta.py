"""The part of Kubernetes' metadata that kvgate looks at; the rest is tolerated."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from kvgate.api.wire import ObjectName, Wire


class Meta(Wire):
    """The part of Kubernetes' metadata that kvgate looks at."""

    name: ObjectName
    namespace: Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
