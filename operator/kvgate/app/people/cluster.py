"""Which cluster, as whom, in which namespace: the flags that kubectl has, and the desk that they lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING

import click

from kvgate import __version__

if TYPE_CHECKING:
    from kvgate.edge.cluster.client import Client
    from kvgate.edge.cluster.desk import Desk


@dataclass(frozen=True)
class Place:
    """A desk at the API server, what it asks with, and the namespace that is meant; empty: all of them."""

    desk: Desk
    client: Client
    namespace: str


@dataclass(frozen=True)
class Cluster:
    """What the flags say; empty where one is left out."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""

    def place(self, *, everywhere: bool = False) -> Place:
        """Raises EdgeError where nothing says which cluster is meant."""
        from kvgate.edge.cluster.client import Client  # noqa: PLC0415  it takes longer to load than a lint to run
        from kvgate.edge.cluster.desk import Desk  # noqa: PLC0415
        from kvgate.edge.connection import login  # noqa: PLC0415

        found = login(self.kubeconfig, self.context)
        client = Client(found.configuration, f"kubectl-kvgate/{__version__}")
        return Place(Desk(client), client, "" if everywhere else self.namespace or found.namespace)


def cluster_flags(function: Callable[..., int]) -> Callable[..., int]:
    """Adds --kubeconfig, --context and --namespace, and hands them over as `cluster`."""

    @wraps(function)
    def told(*arguments: object, kubeconfig: str, context: str, namespace: str, **named: object) -> int:
        return function(*arguments, cluster=Cluster(kubeconfig, context, namespace), **named)

    for flag in (
        click.option("--kubeconfig", default="", help="Which file. [$KUBECONFIG, else ~/.kube/config]"),
        click.option("--context", default="", help="Which context of it. [its current one]"),
        click.option("-n", "--namespace", default="", help="Which namespace. [the context's]"),
    ):
        told = flag(told)
    return told
