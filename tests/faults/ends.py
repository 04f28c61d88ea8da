"""How every life of a pool ends, whatever failed on the way."""

from __future__ import annotations

import random
import re

from kvgate.api.words import Capability, ConditionType
from tests.cluster.access import AuditEvent
from tests.core.worlds import told
from tests.edge.cluster.yard import Yard
from tests.faults.played import Played

ON, OFF = ["prefill", "decode"], ["agg", "agg"]
GONE_SECONDS = 60.0
CHANGES = {
    "mode": "Enforce",
    "enforcement": {"onConflict": "TakeOver"},
    "rollback": {"onDelete": {"disaggregation": "Revert"}},
}
"""What the pool of every life asks for."""


def assert_on(life: Played) -> None:
    """The same end whatever came before it: what is on and why, one entry of history, and evidence that is whole."""
    status = life.status
    assert status is not None
    assert [(entry.action, entry.capability) for entry in status.history] == [("Enabled", Capability.DISAGGREGATION)], (
        life.story()
    )
    assert told(status, ConditionType.FABRIC_MEASURED) == ("True", "Measured"), life.story()
    assert told(status, ConditionType.DISAGGREGATION_ACCEPTED)[0] == "True", life.story()
    assert told(status, ConditionType.DRIFTED) == ("False", "NoDrift"), life.story()
    assert told(status, ConditionType.ROLLED_BACK) == ("False", "NotRolledBack"), life.story()
    managers = [held["manager"] for held in life.yard.deployment()["metadata"]["managedFields"]]
    assert "kvgate" in " ".join(managers), managers


def assert_proven_first(writes: list[AuditEvent], agent: str) -> None:
    """By the API server's own record: evidence and a person's word came before kvgate's first write to the target."""
    first = next(n for n, e in enumerate(writes) if e.resource == "dynamographdeployments" and e.user_agent == agent)
    came_before = {e.resource for e in writes[:first]}
    assert {"fabricreports", "gateapprovals"} <= came_before, came_before


def left(yard: Yard) -> list[str]:
    """What a pool's work leaves behind; the garbage collector takes what the pool owned."""
    found = [*yard.names("jobs"), *yard.names("pods"), *yard.names("fabrep")]
    return [*found, *(name for name in yard.names("configmaps") if re.search(r"sweep|schedule|walk", name))]


def disturb(yard: Yard, path: str) -> None:
    """Somebody else writes the object that this request names, where there is one."""
    kinds = {"inferencepools": "kvpool", "dynamographdeployments": "dgd.v1beta1.nvidia.com"}
    match = re.search(r"/(inferencepools|dynamographdeployments)/([^/?]+)", path)
    if match:
        word = f"touched={random.randrange(10**9)}"
        yard.access.kubectl("annotate", kinds[match[1]], match[2], "-n", yard.namespace, "--overwrite", word)
