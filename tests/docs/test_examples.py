"""What a reader copies from a page works: objects are accepted, commands and flags exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kvgate.api.validate import is_ours, validate
from kvgate.app.cli import cli, main
from kvgate.edge.nodes import COMPANION, LOOPBACK, NETWORK_NAMESPACE, PACED, NodeView, read_node
from kvgate_probe.__main__ import _parser
from tests.docs import pages
from tests.docs.pages import ROOT, Block

WRITTEN = (*pages.PAGES, ROOT / "README.md")
BLOCKS = [block for path in WRITTEN for block in pages.blocks(path)]
YAML = [block for block in BLOCKS if block.language == "yaml"]
PROGRAMS = {
    *("kvgate", "kubectl", "make", "python3", "argocd", "flux", "git", "cd", "sudo", "jq"),
    *("helm", "docker", "kind"),
}
TYPED = [
    pytest.param(line[2:], id=f"{block}: {line[2:70]}")
    for block in BLOCKS
    if block.language == "console"
    for line in block.text.splitlines()
    if line.startswith("$ ")
]
LINT, RUNNABLE = "lint", {"lint", "evaluate", "version", "crds"}


def commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line: parts of a pipe, without redirections."""
    words = list(shlex.shlex(line, posix=True, punctuation_chars="|;><"))
    part: list[str] = []
    skip = False
    for word in shlex.split(" ".join(shlex.quote(word) for word in words)):
        if word in {"|", ";", ">"}:
            if part:
                yield part
            part, skip = [], word == ">"
        elif skip:
            skip = False
        else:
            part.append(word)
    if part:
        yield part


def of_kvgate(words: list[str]) -> click.Command | None:
    name = words[1] if len(words) > 1 else ""
    return None if name.startswith("-") else cli.commands[name]


def parsed(command: click.Command, words: list[str]) -> dict[str, Any]:
    context = click.Context(command)
    values, left, _ = command.make_parser(context).parse_args(words)
    assert left == []
    for parameter in command.params:
        value = values.get(str(parameter.name))
        assert value is not None or not parameter.required, f"{parameter.name} is required"
        if isinstance(parameter.type, click.Choice) and isinstance(value, str):
            parameter.type.convert(value, parameter, context)
    return values


def files_of(values: dict[str, Any]) -> list[Path]:
    listed = [entry for value in values.values() for entry in (value if isinstance(value, list | tuple) else [value])]
    return [ROOT / entry for entry in listed if isinstance(entry, str) and entry.endswith((".yaml", ".json"))]


@pytest.mark.parametrize("block", YAML, ids=str)
def test_every_object_of_ours_is_accepted(block: Block) -> None:
    documents = list(yaml.safe_load_all(block.text))
    assert documents
    complaints = [str(complaint) for body in documents if is_ours(body) for complaint in validate(body)]
    assert complaints == []


@pytest.mark.parametrize("block", [block for block in YAML if "\nkind: Node\n" in block.text], ids=str)
def test_every_node_can_be_played(block: Block) -> None:
    node = read_node(yaml.safe_load(block.text))
    assert isinstance(node, NodeView)
    assert node.loopback or (node.namespace and node.addresses)


@pytest.mark.parametrize("line", TYPED)
def test_every_command_exists_and_takes_its_flags(line: str) -> None:
    found = list(commands(line))
    assert found
    for words in found:
        assert words[0] in PROGRAMS
        command = of_kvgate(words) if words[0] == "kvgate" else None
        if command is not None:
            parsed(command, words[2:])
        if words[:3] == ["python3", "-m", "kvgate_probe"]:
            _parser().parse_args(words[3:])


@pytest.mark.parametrize("line", TYPED)
def test_every_command_on_files_of_this_repository_ends_well(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for words in commands(line):
        command = of_kvgate(words) if words[0] == "kvgate" else None
        if command is None or command.name not in RUNNABLE:
            continue
        files = files_of(parsed(command, words[2:]))
        if not all(path.is_file() for path in files):
            continue
        places = {str(path.relative_to(ROOT)): str(path) for path in files}
        monkeypatch.chdir(tmp_path)
        assert main([places.get(word, word) for word in words[1:]]) == 0


def test_some_commands_are_run() -> None:
    run = {words[1] for line in TYPED for words in commands(str(line.values[0])) if words[0] == "kvgate"}
    assert {"lint", "version", "crds"} <= run


def test_no_page_has_a_reader_apply_a_part_of_an_object_server_side() -> None:
    lines = [str(line.values[0]) for line in TYPED]
    assert [line for line in lines if "--server-side" in line and not line.startswith("kvgate crds |")] == []


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    bad = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        place, _, fragment = link.partition("#")
        if "://" in place:
            continue
        target = path if not place else (path.parent / place)
        known = target.exists() and (
            not fragment or fragment in map(pages.anchor, pages.headings(target.read_text(encoding="utf-8")))
        )
        if not known:
            bad.append(link)
    assert bad == []


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_no_page_cites_a_tracker_or_markets(path: Path) -> None:
    text = pages.prose(path.read_text(encoding="utf-8"))
    assert re.findall(r"(?i)\bissue \d+|(?<!\w)#\d+\b", text) == []
    assert (
        re.findall(r"(?i)\b(?:seamless|effortless|blazing|cutting-edge|world-class|powerful|leverage)\w*", text) == []
    )


def test_every_flag_of_every_command_is_in_the_table() -> None:
    named = {(row.word, flag) for row in pages.rows(pages.page("cli.md"), "command") for flag in _flags(row.cells[1])}
    known = {
        (name, option)
        for name, command in cli.commands.items()
        for parameter in command.params
        for option in (parameter.opts if isinstance(parameter, click.Option) else [_positional(parameter)])
    }
    assert named == known


def _positional(parameter: click.Parameter) -> str:
    return parameter.human_readable_name + ("..." if parameter.nargs == -1 else "")


def _flags(cell: str) -> list[str]:
    return re.findall(r"`(-{1,2}[\w-]+|[A-Z]+(?:\.\.\.)?)", cell)


def test_every_command_is_explained() -> None:
    text = pages.page("cli.md")
    assert [name for name in cli.commands if f"kvgate {name}" not in text] == []


def test_the_annotations_of_nodes_are_those_of_the_code() -> None:
    rows = pages.rows(pages.page("cli.md"), "annotation")
    assert [row.word for row in rows] == [NETWORK_NAMESPACE, COMPANION, LOOPBACK, PACED]


def test_every_message_that_the_runbook_quotes_is_one_of_the_code() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "operator").rglob("*.py"))
    quoted = [row.word for row in pages.rows(pages.page("runbook.md"), "symptom") if row.cells[0].startswith("`")]
    assert len(quoted) > 3
    assert [words for words in quoted if words.removesuffix("…") not in source] == []


def test_every_reason_that_the_runbook_sorts_by_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", pages.page("conditions.md"), re.MULTILINE))
    sorted_by = {
        word for row in pages.rows(pages.page("runbook.md"), "reason") for word in re.findall(r"\w+", row.cells[0])
    }
    assert sorted_by - explained == set()
