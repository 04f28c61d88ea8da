"""Label selectors and ports: the few shapes that specs share with Kubernetes itself."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kvgate.api.wire import Cel, Wire

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(Wire):
    """One entry of matchExpressions."""

    key: LabelKey
    """Label key."""
    operator: SelectorOperator
    """How the label's value is compared."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=64)] = ()
    """Values for In and NotIn."""


VALUES_FIT_OPERATOR = Cel(
    "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
    "In and NotIn need values; Exists and DoesNotExist take none",
)


class LabelSelector(Wire):
    """A label selector that must not be empty: an empty one would match every node."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=32)] | None = None
    """Labels that a node must have, with these values."""
    match_expressions: Annotated[tuple[Annotated[Requirement, VALUES_FIT_OPERATOR], ...], Field(max_length=32)] = ()
    """Further conditions; all must hold."""


NodeSelector = Annotated[
    LabelSelector,
    Cel(
        "(has(self.matchLabels) && size(self.matchLabels) > 0) || "
        "(has(self.matchExpressions) && size(self.matchExpressions) > 0)",
        "must name at least one label: an empty selector would match every node",
    ),
]
