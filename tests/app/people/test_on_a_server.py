"""`kubectl kvgate` against a real API server: what it reads, what it writes, and as whom."""

from __future__ import annotations

import pytest

from kvgate.api.words import ApprovalState
from tests.app.people.conftest import SLOW, Bench
from tests.app.test_bad_input import one_line
from tests.app.yard import kvgate

pytestmark = pytest.mark.api

Printed = pytest.CaptureFixture[str]
APPROVE = ("approve", "qwen3", "--capability", "Disaggregation", "--reason", "CHG-4711")


def test_a_plan_is_seen_explained_approved_and_revoked(bench: Bench, capsys: Printed) -> None:
    """One story, as an approver lives it: each step looks at what the one before left."""
    assert kvgate(*bench.kvgate(*APPROVE)) == 2
    assert "has not judged this spec yet" in one_line(capsys)

    assert bench.turn(SLOW) is ApprovalState.MISSING
    assert kvgate(*bench.kvgate(*APPROVE)) == 2
    assert "no plan of Disaggregation waits for an approval: TTFTBudgetExceeded" in one_line(capsys)
    assert kvgate(*bench.kvgate("status", "qwen3")) == 1
    said = capsys.readouterr().out
    assert "TTFTBudgetExceeded" in said
    assert "owner: A faster path" in said

    assert bench.turn() is ApprovalState.MISSING
    assert kvgate(*bench.kvgate("status")) == 1
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split()[:5] == ["qwen3", "Enforce", "-", "held", "-"]
    assert "ReducedCapacity" in line
    assert kvgate(*bench.kvgate("status", "qwen3")) == 1
    assert "approve -n" in capsys.readouterr().out.splitlines()[-1]
    assert kvgate(*bench.kvgate(*APPROVE)) == 2
    assert "accept each reason by name: --accept ReducedCapacity" in one_line(capsys)
    accepting = (*APPROVE, "--accept", "ReducedCapacity")
    assert kvgate(*bench.kvgate(*accepting)) == 2
    assert "give --yes" in capsys.readouterr().err

    assert kvgate(*bench.kvgate(*accepting, "--yes", "--expires", "1d")) == 0
    said = capsys.readouterr().out
    changes = [line.split() for line in said.splitlines() if line.startswith(("+ ", "- "))]
    assert ["+", "value:", "decode"] in changes
    assert ["-", "value:", "agg"] in changes
    assert "3000 tokens within 2s" in said
    (made,) = bench.yard.access.get("gapp", "-n", bench.yard.namespace)["items"]
    assert made["spec"]["approver"] == bench.me()
    assert bench.turn() is ApprovalState.VALID
    assert kvgate(*bench.kvgate(*accepting, "--yes")) == 2
    assert f"it is Valid by {bench.me()}" in one_line(capsys)

    bench.yard.kubectl("delete", "gapp", "--all")
    assert bench.turn() is ApprovalState.MISSING


def test_a_sweep_is_asked_for_by_annotation(bench: Bench, capsys: Printed) -> None:
    assert kvgate(*bench.kvgate("measure", "qwen3")) == 0
    pool, _ = bench.observe()
    assert pool.measure_requested_at
    assert pool.measure_requested_at in capsys.readouterr().out


def test_a_pool_is_suspended_and_resumed_and_no_more_than_once(bench: Bench, capsys: Printed) -> None:
    for command, suspended, said in (
        ("suspend", True, "suspended"),
        ("suspend", True, "was suspended already"),
        ("resume", False, "resumed"),
        ("resume", False, "was not suspended already"),
    ):
        assert kvgate(*bench.kvgate(command, "qwen3")) == 0
        assert bench.observe()[0].spec.suspend is suspended
        assert capsys.readouterr().out.strip().endswith(said)


def test_who_may_only_look_is_told_which_role_is_missing(bench: Bench, capsys: Printed) -> None:
    viewer = bench.as_viewer()
    assert kvgate("status", "-A", "--kubeconfig", str(viewer)) == 2
    assert "the whole cluster: you may not; ask whoever runs the cluster for the role kvgate-viewer" in one_line(capsys)
    flags = ("--kubeconfig", str(viewer), "-n", bench.yard.namespace)
    assert kvgate("status", *flags) == 1
    assert "qwen3" in capsys.readouterr().out
    for command, role in (("measure", "kvgate-network"), ("suspend", "kvgate-pool-editor")):
        assert kvgate(command, "qwen3", *flags) == 2
        assert f"the role {role}" in one_line(capsys)


def test_a_pool_that_is_not_there_and_a_server_that_does_not_answer(bench: Bench, capsys: Printed) -> None:
    assert kvgate(*bench.kvgate("status", "qwen4")) == 2
    assert one_line(capsys).endswith("qwen4: there is none\n")
    dead = bench.dead_end()
    assert kvgate("status", "--kubeconfig", str(dead)) == 2
    assert "the API server gave no usable answer within 5 s" in one_line(capsys)
    assert kvgate("status", "--kubeconfig", str(dead), "--context", "prod") == 2
    assert "holds no context of that name" in one_line(capsys)
