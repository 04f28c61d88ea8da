"""The command line as a shell sees it: exit codes, one line of complaint, and no traceback ever."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.app.test_bad_input import one_line
from tests.app.yard import FAST, SLOW, kvgate, opened, sample, yard

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "kvgate.app"]
COMMANDS = ("demo", "lint", "evaluate", "reconcile", "crds", "version")


def run(
    *arguments: str | Path, shell: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """kvgate in a process of its own; `shell` is what follows it on a shell's line."""
    command = ["/bin/bash", "-c", f'set -o pipefail; "$@" {shell}', "bash", *COMMAND, *map(str, arguments)]
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment or {**os.environ},
    )


def run_all(*lines: tuple[tuple[str | Path, ...], str]) -> list[subprocess.CompletedProcess[str]]:
    """Several at a time: each the arguments, and what follows on the shell's line."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda line: run(*line[0], shell=line[1]), lines))


def test_without_a_command_it_shows_the_same_as_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert kvgate() == 0
    alone = capsys.readouterr().out
    assert kvgate("--help") == 0
    assert alone == capsys.readouterr().out
    assert alone.splitlines()[-1] == 'Use "kvgate [command] --help" for more information about a command.'


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    kvgate("-h")
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvgate(name, "--help") == 0
    said = capsys.readouterr().out
    assert f"Usage:\n  kvgate {name}" in said
    assert all(len(line) <= 120 for line in said.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("bogus",), 'unknown command "bogus"', id="a command that does not exist"),
        pytest.param(("demo", "--fast"), "--fast", id="a flag that does not exist"),
        pytest.param(("demo", "-o", "xml"), "xml", id="a format that does not exist"),
        pytest.param(("lint",), "FILES", id="lint without files"),
        pytest.param(("evaluate",), "--pool", id="evaluate without a pool"),
        pytest.param(("reconcile",), "-f", id="reconcile without a directory"),
        pytest.param(("lint", "{tmp}/none.yaml"), "does not exist", id="a file that is missing"),
        pytest.param(
            ("status", "--kubeconfig", "{tmp}/none"), "there is no such file", id="a kubeconfig that is missing"
        ),
        pytest.param(("lint", "{tmp}"), "is a directory", id="a directory instead of a file"),
        pytest.param(("evaluate", "--pool", "{tmp}", "--evidence", "{tmp}"), "is a directory", id="a pool that is one"),
        pytest.param(("reconcile", "-f", "{tmp}/none"), "does not exist", id="a directory that is missing"),
        pytest.param(("reconcile", "-f", "{tmp}/file"), "is a file", id="a file instead of a directory"),
        pytest.param(("reconcile", "-f", "{tmp}/empty"), "holds no InferencePool", id="a directory without a pool"),
        pytest.param(("version", "now"), "now", id="an argument too many"),
        pytest.param(("crds", "--out", "{tmp}/file/in"), "cannot be written", id="a place for CRDs that is none"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert kvgate(*(argument.format(tmp=tmp_path) for argument in arguments)) == 2
    assert said in one_line(capsys)


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert kvgate("version") == 0
    assert capsys.readouterr().out.startswith("kvgate 0.")


def test_the_crds_go_to_a_pipe_or_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvgate("crds") == 0
    piped = list(yaml.safe_load_all(capsys.readouterr().out))
    assert kvgate("crds", "--out", tmp_path / "new" / "crds") == 0
    written = [yaml.safe_load(path.read_text()) for path in sorted((tmp_path / "new" / "crds").iterdir())]
    assert {document["metadata"]["name"] for document in piped} == {d["metadata"]["name"] for d in written}


def test_lint_finds_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(sample("pool.yaml").replace("ttftBudget: 2s", 'ttftBudget: "2"'))
    assert kvgate("lint", bad) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"{bad}: spec.criteria.disaggregation.ttftBudget")
    assert said.err == ""


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        pytest.param("kind: InferencePool\n", 1, "f.yaml: apiVersion: must be kvgate.dev/v1alpha1", id="one of ours"),
        pytest.param("kind: Deployment\n", 0, "", id="another's, which is passed over"),
        pytest.param("kind: [InferencePool]\n", 0, "", id="no kind at all, which is nobody's"),
    ],
)
def test_lint_misses_an_api_version_in_our_kinds_alone(
    written: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.yaml").write_text(written)
    assert kvgate("lint", tmp_path / "f.yaml") == code
    told = capsys.readouterr()
    out = told.out.strip()
    assert out.endswith(said)
    assert bool(out) == bool(said)
    nothing = f"kvgate: note: nothing was checked: no document of kvgate.dev in {tmp_path / 'f.yaml'}\n"
    assert told.err == ("" if said else nothing)


def test_lint_opens_a_list_as_kubectl_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = yaml.safe_load(sample("pool.yaml")), yaml.safe_load(sample("pool.yaml"))
    bad["spec"]["workload"]["prompts"] = []
    listed = tmp_path / "list.yaml"
    listed.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [good, bad]}))
    assert kvgate("lint", listed) == 1
    assert "spec.workload.prompts" in capsys.readouterr().out


def test_lint_reads_what_it_can_and_says_what_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "good.yaml").write_text(sample("pool.yaml"))
    assert kvgate("lint", tmp_path / "list.yaml", tmp_path / "good.yaml") == 1
    assert "is a list" in capsys.readouterr().out


def test_a_pool_that_passes_exits_0_and_one_that_does_not_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened(tmp_path / "fast")
    yard(tmp_path / "slow", SLOW).settle()
    assert kvgate("reconcile", "-f", tmp_path / "fast") == 0
    assert kvgate("reconcile", "-f", tmp_path / "slow") == 1
    assert capsys.readouterr().err == ""


def test_brackets_in_a_name_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = yard(tmp_path, SLOW)
    pool = tmp_path / "pool.yaml"
    pool.write_text(pool.read_text().replace("name: Qwen/Qwen3-0.6B", 'name: "a[/b][red]:smile:"'))
    made.settle()
    assert kvgate("reconcile", "-f", tmp_path) == 1
    assert "a[/b][red]:smile:" in capsys.readouterr().out


def test_foreign_words_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = yard(tmp_path, FAST)
    made.approve(approver="a\x1b[31mb\u202ec\nd")
    assert kvgate("reconcile", "-f", tmp_path) == 0
    assert "by a?[31mb?c?d" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("crds",), ("reconcile", "-f", "{tmp}")])
def test_an_output_without_room_is_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    yard(tmp_path, SLOW).settle()
    done = run(*(word.format(tmp=tmp_path) for word in arguments), shell=">/dev/full")
    assert (done.returncode, done.stderr) == (2, "kvgate: error: stdout cannot be written (No space left on device)\n")


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    done = run("crds", shell="| head -1")
    assert (done.stdout, done.stderr) == ("---\n", "")


def test_a_reader_that_never_came_gets_no_traceback(tmp_path: Path) -> None:
    made, again = tmp_path / "one", tmp_path / "two"
    yard(made, SLOW).settle()
    shutil.copytree(made, again)
    reading = (("crds",), ("reconcile", "-f", made), ("reconcile", "-f", again, "-o", "json"))
    for done in run_all(*((arguments, "| true") for arguments in reading)):
        assert done.stderr == "", done.args


@pytest.mark.parametrize("arguments", [("crds",), ("version",), ("bogus",), ("reconcile", "-f", "{tmp}")])
def test_closed_streams_are_no_traceback(arguments: tuple[str, ...], tmp_path: Path) -> None:
    yard(tmp_path / "one", SLOW).settle()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    one, two = (tuple(word.format(tmp=tmp_path / name) for word in arguments) for name in ("one", "two"))
    without_output, without_errors = run_all((one, ">&-"), (two, "2>&-"))
    assert "Traceback" not in without_output.stderr
    assert "Traceback" not in without_errors.stdout


def test_a_terminal_without_arrows_gets_question_marks(tmp_path: Path) -> None:
    yard(tmp_path, SLOW).settle()
    plain = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    done = run("reconcile", "-f", tmp_path, environment=plain)
    assert (done.returncode, done.stderr) == (1, "")
    assert "prefill-1?decode-1" in done.stdout


def test_tables_are_aligned_and_carry_no_colour_where_no_terminal_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yard(tmp_path, FAST).settle()
    kvgate("reconcile", "-f", tmp_path)
    shown = capsys.readouterr().out
    assert "CONDITION" in shown
    assert "\x1b" not in shown
    assert not [line for line in shown.splitlines() if line != line.rstrip()]


def test_nothing_of_a_message_is_lost_where_no_terminal_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yard(tmp_path, SLOW).settle()
    kvgate("reconcile", "-f", tmp_path)
    shown = " ".join(capsys.readouterr().out.split())
    assert "TTFTBudgetExceeded" in shown
    assert "a faster path, a larger budget or shorter prompts would change that" in shown


def test_ctrl_c_is_130_and_one_line(tmp_path: Path) -> None:
    """A FIFO without a writer keeps kvgate reading until it is interrupted."""
    fifo = tmp_path / "settings.yaml"
    os.mkfifo(fifo)
    yard(tmp_path / "pools", SLOW).settle()
    with subprocess.Popen(
        [*COMMAND, "reconcile", "-f", tmp_path / "pools", "--settings", fifo], stderr=subprocess.PIPE, text=True
    ) as process:
        writer = os.open(fifo, os.O_WRONLY)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        os.close(writer)
    assert (process.returncode, said.strip()) == (130, "kvgate: error: stopped")


@pytest.mark.parametrize("flags", [(), ("--context", "prod")], ids=["no flag", "a context of it"])
def test_a_kubeconfig_that_the_environment_names_and_nobody_wrote_is_said_to_be_missing(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    assert kvgate("status", *flags) == 2
    assert f"{tmp_path / 'gone'}: there is no such file" in one_line(capsys)
