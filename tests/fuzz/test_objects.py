"""Spoilt objects are refused or borne by a real API server and the ring; KVGATE_FUZZ_OBJECTS says how many."""

from __future__ import annotations

import os

import pytest

from benchmarks.tables import publish
from tests.edge.cluster.yard import Yard
from tests.fuzz.objects import JUDGED, REFUSED, TOLD, fuzz

pytestmark = [pytest.mark.api, pytest.mark.timeout(1200)]

ASKED = os.environ.get("KVGATE_FUZZ_OBJECTS", "")
OBJECTS = int(ASKED or 150)


def test_a_spoilt_object_is_refused_with_a_message_or_borne_by_one_look(yard: Yard) -> None:
    seen = fuzz(yard, 20261130, OBJECTS)
    if ASKED:
        rows = [
            (kind, str(fates.total()), *(str(fates[fate]) for fate in (REFUSED, JUDGED, TOLD, "crashed")),
             f"{seen.seconds[kind]:.1f}")
            for kind, fates in sorted(seen.fates.items())
        ]  # fmt: skip
        publish(
            "fuzz-objects",
            "Spoilt objects before a real API server",
            f"{seen.objects:,} objects, each a good one with one to three places replaced, dropped or added. The "
            "server refuses one with a message, or the operator looks once: observe, decide, write the status. An "
            "error that the operator tells in words of its own is no crash. Limit: no crash.",
            ("kind", "objects", REFUSED, JUDGED, TOLD, "crashes", "seconds"),
            rows,
        )
    assert not seen.crashes, "\n".join(seen.crashes[:5])
    assert all(fates.total() > fates[REFUSED] for fates in seen.fates.values()), "a kind was never let in"
