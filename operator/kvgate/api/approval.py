"""GateApproval: a person's word for one plan."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvgate.api.report import PoolRef
from kvgate.api.wire import Cel, Name, Text, Time, Wire, Word
from kvgate.api.words import Capability


class SeenEvidence(Wire):
    """What the approver looked at."""

    report: str = ""
    judged_bytes_per_second: Annotated[int, Field(ge=0)] | None = None


class ApprovalSpec(Wire):
    """Who approves what, until when; immutable."""

    pool_ref: PoolRef
    capability: Capability
    plan_hash: Annotated[str, Field(pattern=r"^v1:sha256:[0-9a-f]{64}$")]
    """Copied from status.capabilities[].planHash of the pool."""
    approver: Name
    attestations: Annotated[tuple[Word, ...], Field(max_length=32)] = ()
    accept_inconclusive: Annotated[tuple[Word, ...], Field(max_length=32)] = ()
    """Reasons of Inconclusive findings that this person accepts; never a Fail or an Error."""
    evidence: SeenEvidence | None = None
    reason: Text = ""
    expires_at: Time
    """Bounds enabling, not staying enabled; at most 90 days after creation."""


APPROVAL_RULES = (Cel("self == oldSelf", "an approval is immutable: delete it and write a new one"),)
