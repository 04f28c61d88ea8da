"""The routing A/B beside real users' traffic: what is watched of them is theirs alone, and a rise of it ends the A/B.

The API server and the Job controller are real, and so are frontends, router, mock workers and the load generator. The
kubelet is played: it runs the load's command with the plan that the API server holds, its addresses exchanged for those
of the processes here, and hands out what it printed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from kvgate.core.steps import CollectBenchmark
from kvgate_bench.pages import ACTIVE, CAPACITY
from kvgate_bench.wire import Plan, encode_plan
from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.dynamo_real.test_metrics import SCRAPES_SECONDS, scraping
from tests.dynamo_real.test_routing_ab import ROOMY, Ground, plan_on
from tests.dynamo_stage import model
from tests.dynamo_stage.load import SteadyLoad
from tests.dynamo_stage.specs import Frontend, RouterMode
from tests.dynamo_stage.stage import RunningFrontend, Stage
from tests.edge.cluster.conftest import load_kinds
from tests.edge.cluster.test_benchmarks import end, ground, pod_of_job, reasons, started, turn
from tests.edge.cluster.test_reading_workers import WORKERS_CRD
from tests.edge.cluster.yard import Yard, make_yard

pytestmark = pytest.mark.dynamo
LIVE = Frontend(RouterMode.KV, prefix=False)
LOOK_SECONDS, PAGE_SECONDS = 2.0, 4.0
"""Between two looks of the generator at users, and the longest that one takes: what it may need to see a rise."""
MARGIN_SECONDS = 10.0
"""For a loaded machine, and for the generator's last line."""
FEW_BLOCKS = 4096


def generator(folder: Path, plan: Plan) -> subprocess.Popen[str]:
    """The load as its container runs it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(encode_plan(plan))
    words = (sys.executable, "-m", "kvgate_bench", "run", "--plan", str(folder / "plan.json"))
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def answered(frontend: RunningFrontend) -> float:
    return frontend.door.scrape().total("dynamo_frontend_requests_total")


def test_what_is_watched_of_users_holds_no_request_of_an_ab_on_their_own_workers(stage: Stage, tmp_path: Path) -> None:
    """The A/B's frontends count under the same names and labels; what keeps them apart is that nobody scrapes them."""
    front = stage.frontend("live", LIVE)
    plan = plan_on(stage, Ground())
    stage.until_ready(front)
    with scraping(tmp_path / "prometheus", front) as (watched, _):
        time.sleep(SCRAPES_SECONDS)
        switched = datetime.now(UTC)
        load = generator(tmp_path / "load", plan)
        with SteadyLoad(front.door, 4.0, max_tokens=2) as users:
            out, _ = load.communicate(timeout=150)
        assert load.returncode == 0, out[-2000:]
        time.sleep(SCRAPES_SECONDS)
        since = watched.switched(switched - timedelta(seconds=1)).seen().since_change
    shadows = [stage.running[name] for name in ("kv", "round-robin")]
    assert all(isinstance(shadow, RunningFrontend) for shadow in shadows)
    sent = sum(answered(shadow) for shadow in shadows if isinstance(shadow, RunningFrontend))
    assert sent >= 2 * plan.blocks * plan.requests_per_run
    assert not users.failed(), users.told()
    assert since is not None
    asked = sum(one.answer.prompt_tokens for one in users.so_far())
    assert since.requests == pytest.approx(len(users.so_far()), rel=0.25)
    assert since.prompt_tokens == pytest.approx(asked, rel=0.25)
    assert since.prompt_tokens < sent * min(plan.prompts) / 4
    assert since.failed == 0


@pytest.fixture
def yard(control_plane: Access) -> Iterator[Yard]:
    load_kinds(control_plane)
    control_plane.apply(yaml.safe_load(WORKERS_CRD.read_text(encoding="utf-8")))
    eventually(lambda: control_plane.kubectl("get", "dwm", "-A").returncode == 0, 30)
    made = make_yard(control_plane)
    made.ground = ground(made, '{"vocab_size": 2560}')
    yield made
    control_plane.kubectl("delete", "namespace", made.namespace, "--wait=false")
    control_plane.kubectl("delete", "node", *made.nodes, "--wait=false")


def long_prompt(number: int) -> str:
    """Some 4,000 tokens that no other request shares: a sixteenth of a worker's cache."""
    return f"{number:06d} " + "the quick brown fox jumps over the lazy dog " * 100


def utilization(front: RunningFrontend) -> float:
    page = front.door.scrape()
    active = [sample.value for sample in page.samples(ACTIVE)]
    capacity = max((sample.value for sample in page.samples(CAPACITY)), default=0.0)
    return max(active, default=0.0) / capacity if capacity else 0.0


@pytest.mark.api
@pytest.mark.timeout(400)
def test_traffic_that_rises_ends_the_ab_within_its_bound_and_nothing_passes(
    stage: Stage, yard: Yard, tmp_path: Path
) -> None:
    made = started(yard)
    front = stage.frontend("live", LIVE)
    small = replace(ROOMY, blocks=FEW_BLOCKS)
    changes = {"blocks": 8, "requests_per_run": 60, "requests_per_second": 4.0, "prompts": (320,), "workers": 2}
    here = plan_on(stage, Ground(worker=small, workers=2, changes=changes))
    stage.until_ready(front)
    plan = replace(here, run_id=made.run_id, pool_uid=made.pool_uid, live=(front.door.base,), model=model.NAME)
    limit = plan.most_live_utilization

    load = generator(tmp_path / "load", plan)
    try:
        with SteadyLoad(front.door, 1.0, max_tokens=2):
            kv = stage.running["kv"]
            assert isinstance(kv, RunningFrontend)
            under_way = "the A/B to be under way"
            stage.until(lambda: load.poll() is not None or answered(kv) >= 5, under_way, front, seconds=150)
            assert load.poll() is None, load.communicate()[0]
            assert utilization(front) < limit
            with SteadyLoad(front.door, 10.0, max_tokens=1500, prompt=long_prompt):
                stage.until(lambda: utilization(front) > limit, "users to fill a worker's cache", front, seconds=60)
                rose = time.monotonic()
                out, _ = load.communicate(timeout=60)
                took = time.monotonic() - rose
    finally:
        load.kill()
    assert took <= LOOK_SECONDS + PAGE_SECONDS + MARGIN_SECONDS

    pod = pod_of_job(yard)
    yard.client.prints[pod] = out
    end(yard, pod)
    [step] = turn(yard)
    assert isinstance(step, CollectBenchmark)
    for _ in range(2):
        turn(yard)
    pool, world = yard.observe()
    [kept] = world.benchmarks
    assert "the deployment's busiest worker is at" in kept.experiment.aborted
    assert "above 50%" in kept.experiment.aborted
    assert "BenchmarkAborted" in reasons(yard)
    assert not pool.status.permitted
    assert pool.status.benchmark is None
    assert yard.names("jobs") == []
    gone = [item for item in yard.get("pods")["items"] if item["metadata"]["name"] == pod]
    assert not gone or gone[0]["metadata"].get("deletionTimestamp")
