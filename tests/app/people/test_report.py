"""`kubectl kvgate report` against a real API server, as somebody who may read kvgate's kinds alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kvgate.core.evidence import Path as Way
from kvgate.probe.jobs import POOL_UID
from tests.app.people.conftest import Bench
from tests.app.report import saved
from tests.app.test_bad_input import one_line
from tests.app.yard import kvgate

pytestmark = pytest.mark.api


def test_a_viewer_reports_on_what_the_cluster_keeps(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access, namespace = bench.yard.access, bench.yard.namespace
    out, viewer = tmp_path / "report.html", ("--kubeconfig", str(bench.as_viewer()), "-n", namespace)
    assert kvgate("report", "qwen3", *viewer, "-o", out) == 2
    assert "it has no FabricReport yet" in one_line(capsys)

    uid = str(access.get("kvpool", "qwen3", "-n", namespace)["metadata"]["uid"])
    swept = dataclasses.replace(saved.evidence({Way("n1", "n2"): 2.5e8, Way("n2", "n1"): saved.GONE}), pool_uid=uid)
    for one in saved.reports(swept, labels={POOL_UID: uid}):
        one["metadata"]["namespace"] = namespace
        path = tmp_path / "one.json"
        path.write_text(json.dumps(one))
        access.kubectl("apply", "-f", str(path), check=True)

    assert kvgate("report", "qwen3", *viewer, "-o", out) == 0
    page = out.read_text(encoding="utf-8")
    assert "you may not see the cluster&#x27;s nodes" in page
    assert "n1→n2: 250.0 MB/s" in page
    assert kvgate("report", "none", *viewer, "-o", out) == 2
    assert "there is none" in one_line(capsys)
