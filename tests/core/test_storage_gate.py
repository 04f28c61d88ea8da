"""External KV storage is its owner's to switch: the gate says whether it may be on, and tells when it is on without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kvgate.api.words import ConditionType
from kvgate.core.target import Switch, TargetView, Toggle
from kvgate.core.world import World
from tests.core.worlds import STORAGE, Scene, approval, entry, told

DECLARED = {"reloadVersusRecompute": {"storageThroughput": "100GB/s", "prefillTokensPerSecond": 20000}}
WORDS = ["DataResidency", "RetentionAndEviction", "TenantPlacement"]
ASKS: Mapping[str, Mapping[str, object]] = {
    "says nothing": {},
    "names the three": {"attestations": WORDS},
    "needs no approval by itself": {"approval": "NotRequired"},
}
"""Of a pool; the numbers are declared in each, so that somebody must accept them anyway."""
STORE = "Worker: LMCache's remote store (LMCACHE_REMOTE_URL)"


class Stored(Scene):
    """A scene whose workers name a store where storage is on."""

    @property
    def world(self) -> World:
        found = super().world
        assert isinstance(found.target, TargetView)
        on = self.toggles[STORAGE].switch is Switch.ON
        return replace(found, target=replace(found.target, stores=(STORE,) if on else ()))


def gated(switch: Switch = Switch.OFF, asks: Mapping[str, object] = {}, **spec: object) -> Stored:
    """A pool that gates storage alone."""
    criteria = {"routing": None, "disaggregation": None, "kvStorage": {**DECLARED, **asks}}
    return Stored().asking(criteria=criteria, **spec).but(toggles={STORAGE: Toggle(switch)})


def switched(scene: Stored, switch: Switch) -> Stored:
    return scene.but(toggles={STORAGE: Toggle(switch)})


def permitted(asks: Mapping[str, object] = {}, **fields: object) -> Stored:
    """The plan is proposed, and a person accepts that its numbers are declared and attests what is asked."""
    proposed = gated(asks=asks).after()
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


@pytest.mark.parametrize("asks", ASKS.values(), ids=[f"of a pool that {words}" for words in ASKS])
@pytest.mark.parametrize("missing", WORDS)
def test_each_attestation_is_needed(missing: str, asks: Mapping[str, object]) -> None:
    lacking = permitted(asks, attestations=[word for word in WORDS if word != missing])
    assert permitted(asks).decide().status.permitted == (STORAGE,)
    assert lacking.decide().status.permitted == ()
    needed = asks.get("approval", "Required") == "Required"
    assert entry(lacking.decide().status, STORAGE).approval.state == (
        "AttestationsMissing" if needed else "NotRequired"
    )
    assert enabled(switched(lacking, Switch.ON)) == ("Unknown", "EnabledOutsideGate")


def test_only_a_pool_that_says_so_asks_for_other_words_or_for_none() -> None:
    assert permitted({"attestations": []}, attestations=[]).decide().status.permitted == (STORAGE,)
    assert permitted({"attestations": ["Encrypted"]}).decide().status.permitted == ()
    assert permitted({"attestations": ["Encrypted"]}, attestations=["Encrypted"]).decide().status.permitted == (
        STORAGE,
    )


def test_what_is_asked_for_is_part_of_the_plan() -> None:
    def hashed(*words: str) -> str:
        return entry(gated(asks={"attestations": words}).after().status, STORAGE).plan_hash

    assert hashed(*WORDS) == entry(gated().after().status, STORAGE).plan_hash
    assert len({hashed(*WORDS), hashed(*WORDS[:2]), hashed()}) == 3


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
