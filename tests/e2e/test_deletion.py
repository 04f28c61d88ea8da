"""A pool is deleted in a real cluster: what it switched on goes back where it says so, and nothing of it stays."""

from __future__ import annotations

import pytest

from tests.cluster.waiting import eventually
from tests.e2e.documents import NAMESPACE
from tests.e2e.stage import AS_BEFORE, POOL, REPORT, SPLIT, Scene, is_split, is_true, waits_for_approval

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

FINALIZER = "kvgate.dev/revert"
GONE_SECONDS = 30.0
GARBAGE_SECONDS = 90.0
"""The garbage collector looks when it likes, and a pod has its grace period."""


def enable(scene: Scene, on_delete: str) -> None:
    """Measured, approved and split; on any cluster: one that is too fast for a link's number alone as well."""
    scene.gate("600s", requests_per_second="0.001", rollback={"onDelete": {"disaggregation": on_delete}})
    seen = scene.wait_for("a plan to approve", waits_for_approval)
    scene.approve(seen, "ReducedCapacity", "EndpointUnmeasured")
    scene.wait_for("split", is_split)


def finalizers(scene: Scene) -> list[str]:
    return list(scene.access.get(POOL, scene.name, "-n", NAMESPACE)["metadata"].get("finalizers", []))


def delete(scene: Scene, *how: str) -> None:
    """By a person who waits until it is gone."""
    waiting = ("--timeout", f"{GONE_SECONDS:.0f}s")
    scene.access.kubectl("delete", POOL, scene.name, "-n", NAMESPACE, *(how or waiting), check=True)


def is_gone(scene: Scene) -> bool:
    return scene.access.kubectl("get", POOL, scene.name, "-n", NAMESPACE).returncode != 0


def remains(scene: Scene, uid: str) -> list[str]:
    """What of the pool is there still: all that it made carries its uid."""
    kinds = ",".join(("jobs", "pods", "configmaps", REPORT))
    found = scene.access.get(kinds, "-n", NAMESPACE, "-l", f"kvgate.dev/pool-uid={uid}")["items"]
    return [f"{item['kind']}/{item['metadata']['name']}" for item in found]


def uid_of(scene: Scene) -> str:
    seen = scene.stage.watch.latest(scene.key)
    assert seen is not None
    return seen.uid


def test_what_was_switched_on_goes_back_once_before_the_pool_is_gone(scene: Scene) -> None:
    enable(scene, "Revert")
    assert finalizers(scene) == [FINALIZER]
    uid, mark = uid_of(scene), scene.stage.mark()
    delete(scene)
    assert scene.modes() == AS_BEFORE
    if scene.stage.cluster is not None:
        assert scene.patches(mark) == 1
    eventually(lambda: not remains(scene, uid), GARBAGE_SECONDS)
    scene.stage.check()


def test_what_is_to_be_left_stays_and_the_pool_is_gone_at_once(scene: Scene) -> None:
    enable(scene, "Leave")
    assert finalizers(scene) == []
    uid, mark = uid_of(scene), scene.stage.mark()
    delete(scene)
    assert scene.modes() == SPLIT
    assert scene.patches(mark) == 0
    eventually(lambda: not remains(scene, uid), GARBAGE_SECONDS)
    assert scene.modes() == SPLIT


def test_the_finalizer_comes_before_the_patch_and_goes_with_what_it_protects(scene: Scene) -> None:
    enable(scene, "Revert")
    mode = '{"spec":{"mode":"Observe"}}'
    scene.access.kubectl("patch", POOL, scene.name, "-n", NAMESPACE, "--type=merge", "-p", mode, check=True)
    eventually(lambda: finalizers(scene) == [], GONE_SECONDS)
    delete(scene)
    assert scene.modes() == SPLIT


@pytest.mark.parametrize("how", ["background", "foreground"])
def test_a_pool_deleted_amid_its_sweep_leaves_no_job_pod_or_config_map(scene: Scene, how: str) -> None:
    scene.gate("600s", requests_per_second="0.001")
    scene.wait_for("its Jobs", lambda status: status.sweep is not None and bool(status.sweep.jobs))
    uid = uid_of(scene)
    assert scene.jobs()
    delete(scene, f"--cascade={how}")
    eventually(lambda: not remains(scene, uid), GARBAGE_SECONDS)
    eventually(lambda: is_gone(scene), GONE_SECONDS)
    if scene.stage.cluster is not None:
        scene.stage.wait_until_idle()


def test_a_pool_made_anew_at_once_under_its_name_begins_anew(scene: Scene) -> None:
    enable(scene, "Revert")
    old = uid_of(scene)
    delete(scene)
    scene.gate("600s", requests_per_second="0.001", rollback={"onDelete": {"disaggregation": "Revert"}})
    seen = scene.wait_for("a plan to approve", waits_for_approval)
    assert (seen.uid != old, seen.status.history, scene.modes()) == (True, (), AS_BEFORE)
    assert not is_true("Approved")(seen.status), "an approval names the pool by its uid"
