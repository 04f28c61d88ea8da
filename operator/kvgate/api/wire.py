"""The base of every model on the wire, and the markers that schemas carry beyond JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from kvgate.api.words import ConditionStatus

GROUP = "kvgate.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


def camel(name: str) -> str:
    """`min_ttft_improvement` → `minTTFTImprovement`: Kubernetes keeps acronyms in capitals."""
    return to_camel(name).replace("Ttft", "TTFT")


class Wire(BaseModel):
    """Frozen, camelCase on the wire; attribute docstrings become field descriptions."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=camel,
        populate_by_name=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True)
class Cel:
    """An `Annotated` marker, or an entry of a model's `rules`: what the API server enforces."""

    rule: str
    message: str

    def document(self) -> dict[str, str]:
        return {"rule": self.rule, "message": self.message}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return with_rules(dict(handler(core)), self)


def with_rules(schema: dict[str, Any], *rules: Cel) -> dict[str, Any]:
    """The schema with rules added after those it already has."""
    return schema | {
        "x-kubernetes-validations": [
            *schema.get("x-kubernetes-validations", ()),
            *(rule.document() for rule in rules),
        ]
    }


@dataclass(frozen=True)
class ListMap:
    """An `Annotated` marker: a list keyed by the given wire names."""

    keys: tuple[str, ...]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(handler(core)) | {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": list(self.keys),
        }


@dataclass(frozen=True)
class Calendar:
    """An `Annotated` marker: `format: date-time` admits the year 0 and offsets of days, which kvgate cannot read."""

    PATTERN: ClassVar[str] = (
        r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
    )

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(handler(core)) | {"pattern": self.PATTERN}


@dataclass(frozen=True)
class Moment:
    """An `Annotated` marker: a time by rule, not by `format: date-time`, for which the API server takes lists too."""

    RULE: ClassVar[Cel] = Cel(
        r"self.matches(r'^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
        r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$') && "
        "timestamp(self) > timestamp('2000-01-01T00:00:00Z') && timestamp(self) < timestamp('3000-01-01T00:00:00Z')",
        "must be an RFC 3339 time between the years 2000 and 3000: for example 2026-12-31T00:00:00Z",
    )

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return with_rules({"type": "string", "maxLength": 40}, self.RULE)


Name = Annotated[str, Field(min_length=1, max_length=253)]
ObjectName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""A name as Kubernetes gives it: it can hold neither a slash nor another namespace."""
Word = Annotated[str, Field(min_length=1, max_length=128)]
Text = Annotated[str, Field(max_length=32768)]
Time = Annotated[AwareDatetime, Moment()]
Stamp = Annotated[AwareDatetime, Calendar()]
"""A time that kvgate writes into a status."""


class NameRef(Wire):
    """A reference by name to an object in the same namespace."""

    name: ObjectName
    """Name of the object."""


class KeyRef(Wire):
    """One key of a ConfigMap in the same namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key within it."""


class Condition(Wire):
    """One condition, as in metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """What is said to hold or not."""
    status: ConditionStatus
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """One word, for programs."""
    message: Text = ""
    """For people: the number, the limit, the unit, and who must act."""
    observed_generation: int | None = None
    """The generation of the spec that this was judged for."""
    last_transition_time: Stamp
    """When the status last changed."""
