"""What a command line says, and when it can't be read."""

from __future__ import annotations

import pytest

from kvgate.dynamo.argv import read_command_line


@pytest.mark.parametrize(
    ("command", "args", "module"),
    [
        pytest.param(("python3", "-m", "dynamo.vllm"), (), "dynamo.vllm", id="all of it in the command"),
        pytest.param(("python3",), ("-m", "dynamo.frontend"), "dynamo.frontend", id="the module in the args"),
        pytest.param((), ("python3", "-m", "dynamo.trtllm"), "dynamo.trtllm", id="the args start with python"),
        pytest.param(("bash", "-c"), ("exec python3 -m dynamo.vllm --tp 2",), "dynamo.vllm", id="a shell string"),
        pytest.param(("/bin/sh", "-lc", "cd /x; python3 -m dynamo.vllm;"), (), "dynamo.vllm", id="a longer one"),
        pytest.param(("sleep",), ("inf",), "", id="no module of Dynamo"),
        pytest.param((), (), "", id="nothing at all"),
    ],
)
def test_the_module_is_found_wherever_it_stands(command: tuple[str, ...], args: tuple[str, ...], module: str) -> None:
    assert read_command_line(command, args).module == module


@pytest.mark.parametrize(
    ("args", "value", "places"),
    [
        pytest.param(("--router-mode", "kv"), "kv", ("args[0]", "args[1]"), id="two words"),
        pytest.param(("--router-mode=kv",), "kv", ("args[0]",), id="one word with an equals sign"),
        pytest.param(("--router_mode", "kv"), "kv", ("args[0]", "args[1]"), id="underscores"),
        pytest.param(
            ("--router-mode", "kv", "--router-mode", "random"), "random", ("args[2]", "args[3]"), id="the last wins"
        ),
        pytest.param(("--router-mode", "--verbose"), "", ("args[0]",), id="no value before the next flag"),
        pytest.param(("--router-m", "kv"), "kv", ("args[0]", "args[1]"), id="an abbreviation that argparse takes"),
    ],
)
def test_a_gated_flag_is_found_with_its_place(args: tuple[str, ...], value: str, places: tuple[str, ...]) -> None:
    flag = read_command_line((), args).gated_flag("--router-mode")
    assert flag is not None
    assert (flag.value, flag.places) == (value, places)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(("--router-temperature", "0.5"), id="another flag of the same family"),
        pytest.param(("--model", "router-mode"), id="the name as a value"),
        pytest.param((), id="no args"),
    ],
)
def test_other_words_are_no_router_mode(args: tuple[str, ...]) -> None:
    assert read_command_line((), args).gated_flag("--router-mode") is None


@pytest.mark.parametrize(
    ("command", "args", "opaque"),
    [
        pytest.param(("/workload/launch.sh",), (), True, id="a launcher hides the flags"),
        pytest.param(
            ("sh", "-c", "python3 -m dynamo.vllm $EXTRA"), (), True, id="a bare shell expansion may hide them"
        ),
        pytest.param(("python3", "-m", "dynamo.vllm"), ("$(EXTRA)",), True, id="so may one of Kubernetes"),
        pytest.param(("python3", "-m", "dynamo.vllm"), ("--model", "$(MODEL)"), False, id="a value may be expanded"),
        pytest.param(("python3", "-m", "dynamo.vllm"), ("--model", "m"), False, id="plain words hide nothing"),
        pytest.param((), (), False, id="no command leaves the operator's default"),
    ],
)
def test_a_hidden_command_line_is_told_from_a_plain_one(
    command: tuple[str, ...], args: tuple[str, ...], opaque: bool
) -> None:
    assert read_command_line(command, args).opaque is opaque


def test_a_shell_string_with_an_open_quote_is_still_read() -> None:
    line = read_command_line(("sh", "-c", "python3 -m dynamo.vllm --model 'x"), ())
    assert (line.in_shell, line.module) == (True, "dynamo.vllm")


def test_a_variable_set_in_a_shell_string_is_seen() -> None:
    line = read_command_line(("sh", "-c", "DYN_ROUTER_MODE=kv python3 -m dynamo.frontend"), ())
    assert line.assigns("DYN_ROUTER_MODE")
    assert not line.assigns("DYN_ROUTER")
