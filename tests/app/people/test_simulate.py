"""The offline estimate says the same as the gate's own formulas, and refuses what has no unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.test_bad_input import one_line
from tests.app.yard import kvgate

ONE_PATH = ("simulate", "--throughput", "25GB/s")
Printed = pytest.CaptureFixture[str]


def row(said: str) -> list[str]:
    """The cells of the first prompt's line."""
    line = next(line for line in said.splitlines() if " tokens " in line)
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


@pytest.mark.parametrize(
    ("words", "code", "cells"),
    [
        pytest.param(
            ("--prompt", "8000"),
            0,
            ["8000 tokens", "875.00 MiB", "37 ms", "-", "200 ms", "Pass"],
            id="the samples' model",
        ),
        pytest.param(
            ("--prompt", "8000", "--kv-bytes", "2097152"),
            1,
            ["8000 tokens", "15.62 GiB", "671 ms", "-", "200 ms", "Fail"],
            id="2 MiB per token: 8,000 × 2 MiB at 25 GB/s are 671 ms, too much",
        ),
        pytest.param(
            ("--prompt", "8000", "--kv-bytes", "2097152", "--budget", "1s"),
            0,
            ["8000 tokens", "15.62 GiB", "671 ms", "-", "1.00 s", "Pass"],
            id="the same with a second of budget",
        ),
        pytest.param(
            ("--prompt", "8001", "--kv-bytes", "1048576", "--block-tokens", "64"),
            1,
            ["8001 tokens", "7.88 GiB", "338 ms", "-", "200 ms", "Fail"],
            id="whole blocks: 8,001 tokens in blocks of 64 are 8,064",
        ),
    ],
)
def test_one_prompt(words: tuple[str, ...], code: int, cells: list[str], capsys: Printed) -> None:
    assert kvgate(*ONE_PATH, *words) == code
    assert row(capsys.readouterr().out)[:6] == cells


def test_a_busy_path_adds_its_wait_and_a_full_one_has_no_end(capsys: Printed) -> None:
    half = ("simulate", "--throughput", "1GB/s", "--prompt", "1600", "--kv-bytes", "312500", "--budget", "10s")
    assert kvgate(*half, "--requests", "1") == 0
    said = capsys.readouterr().out
    assert "prefill nodes, is 50% full" in said
    assert row(said)[2:4] == ["750 ms", "250 ms"], "S = 0.5 s, and M/G/1 waits λ·S²/(2(1−ρ)) = 0.25 s"
    assert kvgate(*half, "--requests", "2") == 1
    assert "an unbounded time" in capsys.readouterr().out


def test_what_computing_anew_takes_stands_beside_it(capsys: Printed) -> None:
    assert kvgate(*ONE_PATH, "--prompt", "8000", "--kv-bytes", "100000", "--prefill-rate", "20000") == 0
    assert row(capsys.readouterr().out)[-2:] == ["400 ms", "2.0 GB/s (16.00 Gbit/s)"]


def test_a_number_that_was_given_is_said_to_be_the_flags(capsys: Printed) -> None:
    assert kvgate(*ONE_PATH, "--prompt", "8000", "--kv-bytes", "131072") == 0
    assert "KV cache 131072 B per token, as --kv-bytes says\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("simulate", "--throughput", "25", "--prompt", "8000"), "--throughput must be", id="no unit"),
        pytest.param((*ONE_PATH, "--prompt", "0"), "--prompt", id="a prompt of nothing"),
        pytest.param(
            (*ONE_PATH, "--prompt", "1", "--budget", "2"), "--budget must be a duration", id="no unit of time"
        ),
        pytest.param(
            (*ONE_PATH, "--prompt", "1", "--requests", "-1"),
            "--requests must be a decimal number above zero: for example 4 or 0.2",
            id="a rate below zero, told without the quotes that a manifest needs",
        ),
        pytest.param((*ONE_PATH, "--prompt", "1", "--model", "{file}", "--kv-bytes", "1"), "give one", id="both sizes"),
        pytest.param(
            (*ONE_PATH, "--prompt", "1", "--model", "{file}"),
            "config.json: KV bytes per token unknown: the config is a list, not a JSON object; give --kv-bytes instead",
            id="a config that is none, with the flag that helps in place of a pool's field",
        ),
    ],
)
def test_what_makes_no_estimate_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path, capsys: Printed) -> None:
    config = tmp_path / "config.json"
    config.write_text("[]")
    assert kvgate(*(word.format(file=config) for word in words)) == 2
    assert said in one_line(capsys)
