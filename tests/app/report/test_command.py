"""`kvgate report` writes a whole file or none, and says in one line why."""

from __future__ import annotations

import csv
import io
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kvgate.core.evidence import Path as Way
from tests.app.report import saved
from tests.app.test_bad_input import one_line
from tests.app.yard import kvgate

GRID = saved.grid(3)


def documents() -> list[dict[str, object]]:
    return [saved.pool(), *saved.reports(saved.evidence(GRID))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return saved.save(tmp_path, documents())


def test_csv_has_a_row_per_path(file: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert kvgate("report", file, "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsysbinary.readouterr().out.decode(), newline="")))
    told = {Way(row["from"], row["to"]): row for row in rows}
    assert set(told) == set(GRID)
    for way, rate in GRID.items():
        assert told[way]["bytesPerSecond"] == (str(rate) if isinstance(rate, float) else "")
    assert [told[way]["reach"] for way in list(GRID)[:4]] == ["Unreachable", "Failed", "Unmeasured", "Measured"]
    assert told[next(iter(GRID))]["failure"] == "NoRoute"


def test_no_cell_of_csv_is_a_formula(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    swept = saved.evidence({Way("=1+1", "@x"): 1e8})
    assert kvgate("report", saved.save(tmp_path, saved.reports(swept)), "--format", "csv") == 0
    [row] = csv.DictReader(io.StringIO(capsysbinary.readouterr().out.decode(), newline=""))
    assert (row["from"], row["to"]) == ("'=1+1", "'@x")


def test_json_lines_hold_evidence_paths_and_samples(file: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert kvgate("report", file, "--format", "jsonl") == 0
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    kinds = [line["kind"] for line in lines]
    tested = [rate for rate in GRID.values() if rate is not None]
    assert kinds == ["Evidence"] + ["Path"] * len(GRID) + ["Sample"] * len(tested)
    assert lines[0]["run"] == saved.RUN
    assert lines[0]["nodes"][0]["name"] == "p0"
    sample = lines[-1]
    assert (sample["from"], sample["to"], sample["tool"], sample["layer"]) == ("p2", "d2", "iperf3", "link")
    assert sample["bytesPerSecond"] == GRID[Way("p2", "d2")]


def test_yaml_as_kubectl_prints_it_is_read_too(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "saved.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": documents()}), encoding="utf-8")
    assert kvgate("report", path, "--format", "csv") == 0
    assert capsysbinary.readouterr().out.count(b"\n") == 1 + len(GRID)


def altered() -> list[dict[str, object]]:
    pool, shard, index = documents()
    shard["spec"]["data"] = "AAAA"  # type: ignore[index]
    return [pool, shard, index]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["{tmp}/none.json"], "can't be read", id="a file that is not there"),
        pytest.param(["{tmp}/empty.json"], "holds neither an InferencePool nor a FabricReport", id="nothing of ours"),
        pytest.param(["{tmp}/broken.json"], "no YAML", id="neither JSON nor YAML"),
        pytest.param(["{tmp}/pool.json"], "there is no evidence", id="a pool without reports"),
        pytest.param(["{tmp}/shards.json"], "no index with measuredAt", id="shards without their index"),
        pytest.param(["{tmp}/altered.json"], "was altered", id="a shard that was edited"),
        pytest.param(["{tmp}/saved.json", "qwen3"], "can't be mixed", id="a file and a pool"),
        pytest.param(["{tmp}/saved.json", "-o", "{tmp}/no/such/r.html"], "cannot be written", id="no such directory"),
        pytest.param(["{tmp}/saved.json", "--format", "pdf"], "pdf", id="an unknown format"),
        pytest.param([], "Missing argument", id="no words"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_no_file(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, shard, index = documents()
    saved.save(tmp_path, [pool, shard, index])
    saved.save(tmp_path, [], "empty.json")
    saved.save(tmp_path, [pool], "pool.json")
    saved.save(tmp_path, [shard], "shards.json")
    saved.save(tmp_path, altered(), "altered.json")
    (tmp_path / "broken.json").write_text('{"apiVersion": [')
    before = set(tmp_path.iterdir())
    out = () if "-o" in words else ("-o", str(tmp_path / "report.html"))
    assert kvgate("report", *(word.format(tmp=tmp_path) for word in words), *out) == 2
    assert said in one_line(capsys)
    assert set(tmp_path.iterdir()) == before


def without_matplotlib(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command where matplotlib cannot be imported, as where the extra was not installed."""
    code = "import sys; sys.modules['matplotlib'] = None; from kvgate.app.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_without_matplotlib_the_page_is_refused_and_csv_is_not(file: Path, tmp_path: Path) -> None:
    ended = without_matplotlib("report", file, "-o", tmp_path / "report.html")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'kvgate[report]'" in ended.stderr
    assert without_matplotlib("report", file, "--format", "csv", "-o", tmp_path / "report.csv").returncode == 0


def test_a_file_that_is_replaced_keeps_its_mode_and_nothing_stays_beside_it(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.csv"
    out.write_text("old")
    out.chmod(0o640)
    assert kvgate("report", file, "--format", "csv", "-o", out) == 0
    assert out.read_text().startswith("namespace,pool,run")
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert set(tmp_path.iterdir()) == {file, out}


def test_a_pool_that_the_reports_do_not_name_is_left_out_and_named(tmp_path: Path) -> None:
    other = saved.pool()
    other["metadata"] |= {"name": "llama", "uid": "2b9a4f0a-0f3e-5b6e-8a54-3f0f6a1c2d77"}
    both = saved.save(tmp_path, [other, *documents()])
    out = tmp_path / "report.html"
    assert kvgate("report", both, "-o", out) == 0
    page = out.read_text()
    assert "serving/qwen3" in page
    assert "InferencePool serving/llama: its FabricReports are not in the files" in page
