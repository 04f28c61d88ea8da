"""External KV storage is its owner's to switch: the gate says whether it may be on, and tells when it is on without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.api.words import ConditionType
from kvgate.core.target import Switch, TargetView, Toggle
from kvgate.core.world import World
from tests.core.worlds import STORAGE, Scene, approval, entry, told

DECLARED = {"reloadVersusRecompute": {"storageThroughput": "100GB/s", "prefillTokensPerSecond": 20000}}
WORDS = ["DataResidency", "RetentionAndEviction", "TenantPlacement"]
STORE = "Worker: LMCache's remote store (LMCACHE_REMOTE_URL)"


class Stored(Scene):
    """A scene whose workers name a store where storage is on."""

    @property
    def world(self) -> World:
        found = super().world
        assert isinstance(found.target, TargetView)
        on = self.toggles[STORAGE].switch is Switch.ON
        return replace(found, target=replace(found.target, stores=(STORE,) if on else ()))


def gated(switch: Switch = Switch.OFF, **spec: object) -> Stored:
    """A pool that gates storage alone, with an approval that attests three things."""
    criteria = {"routing": None, "disaggregation": None, "kvStorage": {**DECLARED, "attestations": WORDS}}
    return Stored().asking(criteria=criteria, **spec).but(toggles={STORAGE: Toggle(switch)})


def switched(scene: Stored, switch: Switch) -> Stored:
    return scene.but(toggles={STORAGE: Toggle(switch)})


def permitted(**fields: object) -> Stored:
    """The plan is proposed, and a person accepts that its numbers are declared and attests what is asked."""
    proposed = gated().after()
    wire = {"attestations": WORDS, "acceptInconclusive": ["Declared"], **fields}
    return proposed.but(approvals=(approval(proposed, STORAGE, **wire),)).after()


def enabled(scene: Stored) -> tuple[str, str]:
    return told(scene.decide().status, ConditionType.KV_STORAGE_ENABLED)


def ready(scene: Stored) -> tuple[str, str]:
    return told(scene.decide().status, ConditionType.READY)


def test_what_is_on_without_a_permission_is_told_by_the_line_that_turns_it_on() -> None:
    on = gated(Switch.ON)
    assert enabled(on) == ("Unknown", "EnabledOutsideGate")
    assert ready(on) == ("False", "EnabledOutsideGate")
    said = next(c for c in on.decide().status.conditions if c.type == ConditionType.READY)
    assert STORE in said.message
    assert on.decide().patches == ()


@pytest.mark.parametrize("missing", WORDS)
def test_each_attestation_is_needed(missing: str) -> None:
    lacking = permitted(attestations=[word for word in WORDS if word != missing])
    assert lacking.decide().status.permitted == ()
    assert entry(lacking.decide().status, STORAGE).approval.state == "AttestationsMissing"
    assert enabled(switched(lacking, Switch.ON)) == ("Unknown", "EnabledOutsideGate")


def test_what_is_switched_on_while_permitted_is_kept_on_record_and_stays_ours_though_the_approval_expires() -> None:
    allowed = permitted()
    assert allowed.status.permitted == (STORAGE,)
    assert enabled(allowed) == ("False", "HeldByAdviceOnly")
    on = switched(allowed, Switch.ON).after()
    assert [(held.action, held.reason) for held in on.status.history] == [("Adopted", "EnabledWhilePermitted")]
    assert enabled(on) == ("Unknown", "AwaitingVerification")
    assert ready(on) == ("True", "Enabled")
    later = on.after().later(days=31).after()
    assert entry(later.status, STORAGE).approval.state == "Expired"
    assert len(later.status.history) == 1
    assert enabled(later) == ("Unknown", "AwaitingVerification")


def test_what_was_switched_off_needs_a_permission_to_come_back() -> None:
    gone = switched(switched(permitted(), Switch.ON).after(), Switch.OFF).after().later(days=31).after()
    assert gone.status.permitted == ()
    assert enabled(switched(gone, Switch.ON)) == ("Unknown", "EnabledOutsideGate")


def test_an_approval_that_is_deleted_takes_along_what_it_accepted_and_nothing_is_patched() -> None:
    on = switched(permitted(), Switch.ON).after()
    revoked = on.but(approvals=())
    assert ready(revoked) == ("False", "EvidenceLost")
    assert revoked.decide().patches == ()
    still = revoked.asking(rollback__onApprovalLost="Revert").but(generation=revoked.generation)
    assert still.decide().patches == ()


def test_to_take_over_what_is_on_takes_no_storage_past_the_gate() -> None:
    on = gated(Switch.ON, enforcement__adopt=True)
    for _ in range(3):
        assert enabled(on) == ("Unknown", "EnabledOutsideGate")
        on = on.after()


def test_what_cannot_be_read_stays_as_it_was_last_seen() -> None:
    on = switched(permitted(), Switch.ON).after()
    assert entry(switched(on, Switch.UNREADABLE).after().status, STORAGE).enabled is True
    assert enabled(gated(Switch.UNREADABLE)) == ("Unknown", "NotObserved")
