"""What a node that does not come up tells of itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import harness, processes
from tests.cluster.network import Plug
from tests.cluster.nodes import Node
from tests.cluster.processes import this_process
from tests.cluster.waiting import eventually

ENDED = "kubelet ended with status 1 after start 1 of 5"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """One of which both programs have said something."""
    state = tmp_path / "n1"
    state.mkdir()
    (state / "containerd.log").write_text("booted\n")
    (state / "kubelet.log").write_text("Failed to start ContainerManager\n")
    (tmp_path / "n1.log").write_text(f"unpacking...{ENDED}; its log ends:\nFailed\n")
    return Node("n1", Plug(*[""] * len(Plug.__dataclass_fields__)), this_process(), state, ())


def test_a_node_that_ended_says_which_program_ended_and_shows_the_logs_of_both(node: Node) -> None:
    dead = replace(node, process=replace(node.process, start_ticks=node.process.start_ticks + 1))

    with pytest.raises(RuntimeError) as raised:
        harness._wait([dead], lambda _: False)

    told = str(raised.value)
    assert "n1 ended before it was ready" in told
    assert ENDED in told
    assert "containerd.log ends:\nbooted" in told
    assert "kubelet.log ends:\nFailed to start ContainerManager" in told


@pytest.mark.parametrize(("command", "told"), [("exit 3", " with status 3"), ("kill -9 $$", " by signal 9")])
def test_a_program_that_ended_is_told_with_how_it_ended(tmp_path: Path, command: str, told: str) -> None:
    process = processes.start(["bash", "-c", command], tmp_path / "n1.log", {})
    eventually(lambda: not process.runs())

    assert processes.ending(process) == told
    assert processes.ending(process) == ""


def test_each_restart_of_a_program_is_told_apart_from_what_else_the_node_says(node: Node) -> None:
    assert node.restarts() == [ENDED]
