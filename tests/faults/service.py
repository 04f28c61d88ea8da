"""The operator as a process of its own before the doubtful API server, in one namespace and with a Lease there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.cluster.access import write_kubeconfig
from tests.e2e.running import Operator
from tests.edge.cluster.yard import IMAGE, Yard


def operator(yard: Yard, address: str, directory: Path) -> Operator:
    """One that was not started yet."""
    kubeconfig, settings = directory / "kubeconfig", directory / "settings.yaml"
    write_kubeconfig(kubeconfig, address, yard.access.authority, yard.access.token)
    settings.write_text(yaml.safe_dump({"probe": {"image": IMAGE}, "logLevel": "Debug"}), encoding="utf-8")
    options = (f"--namespace={yard.namespace}", f"--lease-namespace={yard.namespace}")
    return Operator(kubeconfig, settings, directory / "operator.log", options=options)


@contextmanager
def serving(yard: Yard, address: str, directory: Path) -> Iterator[Operator]:
    made = operator(yard, address, directory)
    made.start()
    try:
        yield made
    finally:
        made.stop()
