"""Which cluster, as whom, in which namespace: the flags that kubectl has, and the desk that they lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from kvgate import __version__

if TYPE_CHECKING:
    from kvgate.edge.cluster.desk import Desk

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Place:
    """A desk at the API server, and the namespace that is meant; empty: all of them."""

    desk: Desk
    namespace: str


def cluster_flags(function: F) -> F:
    """--kubeconfig, --context and --namespace."""
    for flag in (
        click.option("--kubeconfig", default="", help="Which file. [$KUBECONFIG, else ~/.kube/config]"),
        click.option("--context", default="", help="Which context of it. [its current one]"),
        click.option("-n", "--namespace", default="", help="Which namespace. [the context's]"),
    ):
        function = flag(function)
    return function


def place(kubeconfig: str, context: str, namespace: str, *, everywhere: bool = False) -> Place:
    """Raises EdgeError where nothing says which cluster is meant."""
    from kvgate.edge.cluster.client import Client  # noqa: PLC0415  it takes longer to load than a lint to run
    from kvgate.edge.cluster.desk import Desk  # noqa: PLC0415
    from kvgate.edge.connection import login  # noqa: PLC0415

    found = login(kubeconfig, context)
    desk = Desk(Client(found.configuration, f"kubectl-kvgate/{__version__}"))
    return Place(desk, "" if everywhere else namespace or found.namespace)
