"""Completion of the command line: for kvgate in bash and zsh, and for kubectl, which asks a program of its own name."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from kvgate.app.helping import Command
from kvgate.app.people.cluster import Cluster
from kvgate.edge.errors import EdgeError

PROGRAM, VARIABLE = "kvgate", "_KVGATE_COMPLETE"
NO_FILES = ":4"
"""What kubectl reads as: these are all, do not offer files as well."""


@click.command(
    cls=Command,
    examples=("source <(kvgate completion bash)", 'kvgate completion zsh > "${fpath[1]}/_kvgate"'),
)
@click.argument("shell", type=click.Choice(["bash", "zsh"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete kvgate.

    kubectl completes `kubectl kvgate` by itself where its own completion is on and kubectl_complete-kvgate is in PATH.
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"this version of click completes no {shell}")
    click.echo(found(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source())


def pool_names(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """The pools of the namespace that the line means so far; none where the cluster cannot be asked."""
    said = {name: str(context.params.get(name) or "") for name in ("kubeconfig", "context", "namespace")}
    try:
        at = Cluster(**said).place()
        names = [pool.name for pool in at.desk.pools(at.namespace)]
    except EdgeError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def for_kubectl(cli: click.Group, words: list[str]) -> list[str]:
    """What may stand in the place of the last word, as kubectl reads it."""
    *before, begun = words or [""]
    items = ShellComplete(cli, {}, PROGRAM, VARIABLE).get_completions(before, begun)
    told = (f"{item.value}\t{item.help}" if item.help else str(item.value) for item in items if item.type == "plain")
    return [*told, NO_FILES]


def run_for_kubectl() -> None:
    """The console script kubectl_complete-kvgate."""
    from kvgate.app.cli import cli  # noqa: PLC0415  the group imports this module

    sys.stdout.write("".join(f"{line}\n" for line in for_kubectl(cli, sys.argv[1:])))
