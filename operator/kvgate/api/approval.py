"""GateApproval: a person's word for one plan."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvgate.api.report import PoolRef
from kvgate.api.wire import Cel, Name, Text, Time, Wire, Word
from kvgate.api.words import Capability


class SeenEvidence(Wire):
    """What the approver looked at."""

    report: Annotated[str, Field(max_length=253)] = ""
    """Name of the FabricReport or BenchmarkReport."""
    judged_bytes_per_second: Annotated[int, Field(ge=0, le=1 << 50)] | None = None
    """The number that the approver saw."""


class ApprovalSpec(Wire):
    """Who approves what, until when; immutable."""

    pool_ref: PoolRef
    capability: Capability
    plan_hash: Annotated[str, Field(max_length=128, pattern=r"^v1:sha256:[0-9a-f]{64}$")]
    """Copied from status.capabilities[].planHash of the pool."""
    approver: Name
    """Who approves: the requesting user."""
    attestations: Annotated[tuple[Word, ...], Field(max_length=32)] = ()
    """What this person vouches for; must hold all that the criteria ask."""
    accept_inconclusive: Annotated[tuple[Word, ...], Field(max_length=32)] = ()
    """Reasons of Inconclusive findings that this person accepts; never a Fail or an Error."""
    evidence: SeenEvidence | None = None
    reason: Text = ""
    """Free text."""
    expires_at: Time
    """Bounds enabling, not staying enabled; at most 90 days after creation."""


APPROVAL_RULES = (Cel("self == oldSelf", "an approval is immutable: delete it and write a new one"),)
