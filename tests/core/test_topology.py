"""Where labels put nodes, and so paths."""

from __future__ import annotations

import pytest

from kvgate.core.evidence import NodeIdentity
from kvgate.core.topology import KEYS, Places, located, places
from tests.core.cases import path

RACK, ZONE, REGION = (f"topology.kubernetes.io/{what}" for what in ("rack", "zone", "region"))
FLEET = Places(
    {
        "a": {RACK: "r1", ZONE: "z1", REGION: "e"},
        "b": {RACK: "r1", ZONE: "z1", REGION: "e"},
        "c": {RACK: "r2", ZONE: "z1", REGION: "e"},
        "d": {RACK: "r3", ZONE: "z2", REGION: "e"},
        "e": {RACK: "r4", ZONE: "z3", REGION: "w"},
        "f": {ZONE: "z1"},
    }
)


@pytest.mark.parametrize(
    ("between", "stratum"),
    [
        pytest.param("a→b", "same rack", id="the narrowest that both share"),
        pytest.param("a→c", "same zone", id="another rack of the zone"),
        pytest.param("a→d", "same region", id="another zone of the region"),
        pytest.param("a→e", "other region", id="nothing shared, by the widest"),
        pytest.param("a→f", "same zone", id="only what both tell"),
        pytest.param("f→e", "other zone", id="the widest that both tell"),
        pytest.param("a→g", "unlabelled", id="a node that tells nothing"),
    ],
)
def test_the_class_of_a_path(between: str, stratum: str) -> None:
    assert FLEET.stratum(path(between)) == stratum


def test_the_links_that_a_path_shares_with_others() -> None:
    assert [str(crossing) for crossing in FLEET.crossings(path("a→c"))] == [
        "from rack r1 to rack r2",
        "out of rack r1",
        "into rack r2",
    ]
    assert list(FLEET.crossings(path("a→b"))) == []
    assert list(FLEET.crossings(path("a→g"))) == []


def test_only_labels_that_tell_places_are_kept_narrowest_first() -> None:
    labels = {ZONE: "z1", "app": "x", RACK: "r1", REGION: ""}
    assert located(labels) == ((RACK, "r1"), (ZONE, "z1"))
    assert list(KEYS).index(RACK) < list(KEYS).index(ZONE)
    assert places((NodeIdentity("a", labels=located(labels)),)).stratum(path("a→a")) == "same node"
