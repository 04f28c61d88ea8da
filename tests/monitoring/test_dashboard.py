"""The dashboard: Grafana's own shape, and no query that a real Prometheus, scraping a real operator, leaves empty."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.app.operator.test_shell import DEPLOYMENTS, WORKERS, sample_pool
from tests.cluster.access import Access
from tests.cluster.waiting import eventually
from tests.docs.pages import ROOT
from tests.edge.prometheus_server import end, is_ready, prometheus
from tests.ports import free_ports

DASHBOARD: dict[str, Any] = json.loads((ROOT / "charts/kvgate/dashboards/kvgate.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
QUERIES = {f"{panel['title']} {t['refId']}": t["expr"] for panel in PANELS for t in panel["targets"]}
NAMESPACE = "dashboard"
WIDTH = 24
CONFIG = """
scrape_configs:
- job_name: kvgate
  honor_labels: true
  scrape_interval: 1s
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def test_it_has_what_grafana_asks_of_a_dashboard() -> None:
    assert DASHBOARD["title"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", DASHBOARD["uid"])
    assert DASHBOARD["schemaVersion"] >= 36
    assert "id" not in DASHBOARD, "the id is the database's"
    assert {"from", "to"} == set(DASHBOARD["time"])
    assert VARIABLES["datasource"]["type"] == "datasource"


def test_grafanas_own_model_reads_all_of_it() -> None:
    """What the model does not know it drops; a query's definition is what the editor shows of a variable."""
    register_default_plugins()
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))

    assert {loss for loss in dropped(DASHBOARD, read) if not loss.endswith("/definition")} == set()


def dropped(before: object, after: object, place: str = "") -> Iterator[str]:
    """Where something was that is not there any more, or is another; what is empty need not be said again."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if value not in ({}, [], "", None, False):
                yield from dropped(value, after.get(key), f"{place}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (value, other) in enumerate(zip(before, after, strict=True)):
            yield from dropped(value, other, f"{place}[{index}]")
    elif before != after:
        yield place


def test_each_panel_is_known_to_grafana_and_has_an_id_of_its_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]

    assert len(set(ids)) == len(ids)
    assert {panel["type"] for panel in DASHBOARD["panels"]} <= {"row", "stat", "table", "timeseries"}
    assert [p["title"] for p in PANELS if not p["targets"] or not p["fieldConfig"]["defaults"]["unit"]] == []


def test_panels_lie_on_the_grid_and_none_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])):  # fmt: skip
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]


def test_each_query_has_the_chosen_prometheus_and_a_letter_of_its_own() -> None:
    for panel in PANELS:
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        assert {t["datasource"]["uid"] for t in panel["targets"]} | {panel["datasource"]["uid"]} == {"${datasource}"}


def test_each_variable_that_a_query_names_is_declared() -> None:
    named = {name for expr in QUERIES.values() for name in re.findall(r"\$\{?(\w+)", expr)}

    assert named <= set(VARIABLES)


@contextmanager
def staged(access: Access, folder: Path, port: int) -> Iterator[Path]:
    """An operator with one pool; its log."""
    log = folder / "operator.log"
    command = [sys.executable, "-m", "tests.monitoring.staged_operator", str(access.kubeconfig), NAMESPACE, str(port)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'probes'}:{ROOT}"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=output)
    try:
        yield log
    finally:
        end(process)


def asked(url: str, path: str, **words: str) -> Any:
    with urlopen(f"{url}/api/v1/{path}?{urlencode(words)}", timeout=5) as answer:
        return json.load(answer)["data"]


def page(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def instant(url: str, expr: str) -> list[dict[str, Any]]:
    chosen = expr.replace("$namespace", ".*").replace("$pool", ".*")
    found: list[dict[str, Any]] = asked(url, "query", query=chosen)["result"]
    return [series for series in found if series["value"][1] != "NaN"]


@pytest.mark.api
def test_every_query_is_answered_by_a_prometheus_that_scrapes_an_operator_and_series_go_with_their_pool(
    control_plane: Access, tmp_path: Path
) -> None:
    control_plane.load_crds(sorted((ROOT / "crds").glob("*.yaml")))
    control_plane.apply(DEPLOYMENTS, WORKERS)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.apply(sample_pool(NAMESPACE))
    port = free_ports(1)
    config = CONFIG.format(port=port)
    with staged(control_plane, tmp_path, port) as log, prometheus(tmp_path / "p", config) as (url, _):
        eventually(lambda: is_ready(url), 30)
        silent: list[str] = []

        def all_answer() -> bool:
            silent[:] = [name for name, expr in QUERIES.items() if not instant(url, expr)]
            return not silent

        try:
            eventually(all_answer, 60)
        except AssertionError as error:
            raise AssertionError(f"nothing for {silent}; {log.read_text()[-2000:]}") from error
        (on,) = instant(url, 'kvgate_capability_enabled{capability="Disaggregation"}')
        assert (on["metric"]["namespace"], on["metric"]["pool"], on["value"][1]) == (NAMESPACE, "qwen3", "1")
        for name in ("namespace", "pool"):
            assert asked(url, f"label/{name}/values", **{"match[]": "kvgate_pool_info"})
        control_plane.kubectl("delete", "inferencepools.kvgate.dev", "qwen3", "-n", NAMESPACE, "--wait=false")
        eventually(lambda: 'pool="' not in page(port), 10)
        assert "kvgate_leading 1.0" in page(port)
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
