"""The audit trail in the log: one line for each decision about a capability, once it stands in the status."""

from __future__ import annotations

import logging

from kvgate.app.operator.logs import say
from kvgate.app.ring import Turn

MESSAGE = "decided"


def audited(turn: Turn) -> None:
    """One line for each capability of which something was decided anew, and one for each deed that was recorded."""
    for one in turn.decision.audit:
        say(
            logging.INFO,
            MESSAGE,
            pool=turn.pool.key,
            uid=turn.pool.uid,
            capability=one.capability.value,
            outcome=one.outcome,
            decisive=one.decisive,
            held_by=one.held_by,
            enabled=one.enabled,
            plan_hash=one.plan_hash,
            approval=one.approval,
            actor=one.actor,
            operation=one.operation,
            inputs=list(one.inputs),
            findings=list(one.findings),
            patch=list(one.patch),
        )
    known = turn.pool.status.history
    for entry in turn.decision.status.history:
        if entry not in known:
            told = entry.model_dump(mode="json", by_alias=True)
            say(logging.INFO, "done", pool=turn.pool.key, uid=turn.pool.uid, **told)
