"""Whenever the operator's process is killed with SIGKILL, and whatever fails besides, a pool comes to the same end.

`make faults` plays twenty of these lives, `make test` one.
"""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import pytest

from kvgate.app.operator.cluster import AGENT
from tests.cluster.waiting import eventually
from tests.edge.cluster.yard import Yard, beating
from tests.faults.doubtful import doubtful, doubts
from tests.faults.ends import CHANGES, GONE_SECONDS, OFF, ON, assert_on, assert_proven_first, disturb, left
from tests.faults.served import moments, served

pytestmark = [pytest.mark.api, pytest.mark.timeout(480)]

LIVES = max(1, int(os.environ.get("KVGATE_FAULT_SEEDS", "0")) // 10)
READS_IN_DOUBT = 1000
"""A process reads much before it does anything."""
KILLED_BEFORE, KILLED_AFTER = 4, 2
"""How often while it is switched on, and while it is deleted; the plan of faults has deaths of its own."""
LONGEST_LIFE_SECONDS = 8.0
"""It takes two of them to come up."""
SOON_SECONDS = 1.5
"""Within these a pool that is deleted is switched back."""


@pytest.mark.parametrize("seed", range(LIVES))
def test_whenever_its_process_is_killed_a_life_ends_as_one_without_faults(
    seed: int, yard: Yard, tmp_path: Path
) -> None:
    yard.pool(**CHANGES)
    draw, plan, began = random.Random(seed), doubts(seed, READS_IN_DOUBT), yard.access.audit_mark()
    with (
        beating(yard.access, yard.nodes),
        doubtful(yard.access, plan, partial(disturb, yard), log=partial(printed_by, yard)) as proxy,
        served(yard, proxy, tmp_path) as life,
    ):
        before = life.generation()
        assert life.modes() == OFF
        life.left = moments(draw, KILLED_BEFORE, LONGEST_LIFE_SECONDS)
        life.start()
        life.until(lambda: life.modes() == ON and not life.is_doomed)
        life.come_to_rest()
        assert life.generation() == before + 1, life.story()
        assert_on(life)
        yard.kubectl("delete", "kvpool", "qwen3", "--wait=false")
        life.doom(*moments(draw, 1, SOON_SECONDS), *moments(draw, KILLED_AFTER - 1, LONGEST_LIFE_SECONDS))
        life.until(lambda: life.gone and not life.is_doomed)
    assert life.deaths >= KILLED_BEFORE + KILLED_AFTER
    assert life.modes() == OFF, life.story()
    assert life.generation() == before + 2, life.story()
    assert life.faults == [], life.story()
    assert [line for line in life.operator.lines() if "traceback" in line] == []
    assert_proven_first(life.writes(began), AGENT)
    eventually(lambda: left(yard) == [], GONE_SECONDS)


def printed_by(yard: Yard, pod: str) -> str:
    """What no kubelet tells here."""
    return yard.client.prints.get(pod, "")
