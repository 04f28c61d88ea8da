"""`kvgate demo`: two pools over two real links, one held and one opened, without a cluster."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from pathlib import Path

import yaml
from rich.console import Console

from kvgate.api.words import Capability
from kvgate.app.output import Format, Report, print_reports
from kvgate.app.reconcile import reconcile_directory
from kvgate.app.ring import Clock
from kvgate.edge.errors import EdgeError
from kvgate.edge.lab import USER_NAMESPACE, KernelRefusedError, LabNode, lab, require, user_namespaces_work
from kvgate.edge.nodes import LOOPBACK, NETWORK_NAMESPACE, PACED

PACED_NOTE = "Instead: loopback, paced by iperf3. It is paced, not a link."
_ACCEPTED = ["ReducedCapacity"]


@dataclass(frozen=True)
class Link:
    """One of the two links, and what must become of the pool on it."""

    name: str
    bits_per_second: int
    opens: bool

    @property
    def nodes(self) -> tuple[str, str]:
        return f"{self.name}-prefill", f"{self.name}-decode"


LINKS = (Link("slow", 1_000_000_000, opens=False), Link("fast", 2_500_000_000, opens=True))


def run(keep: Path | None, form: Format, console: Console, errors: Console, clock: Clock) -> bool:
    """True when the slow pool is held and the fast one opened. Raises EdgeError when the demo cannot be set up."""
    require(("iperf3",))
    _enter_user_namespace()
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvgate-demo-")))
        nodes = stack.enter_context(_nodes(errors))
        untouched = _lay_out(folder, nodes)
        tell = teller(form, console)
        tell("First turn: measure both links, judge both pools.")
        reports = reconcile_directory(folder, lambda _: None, clock, errors)
        tell("An approver reads the plan hash and writes a GateApproval for each pool whose criteria pass.")
        _approve(folder, reports, clock)
        reports = reconcile_directory(folder, lambda _: None, clock, errors)
        print_reports(sorted(reports, key=_in_order), form, console)
        ends = [_as_expected(folder, link, reports, untouched) for link in LINKS]
        for link, ended in zip(LINKS, ends, strict=True):
            tell(_ending(link, ended=ended))
        if not all(ends) and (starved := starved_pools(reports)):
            what = f"This machine was too busy to measure {', '.join(starved)}: a probe did not get its processor"
            errors.print(f"{what}. Run the demo again while little else runs here.", soft_wrap=True)
        if keep:
            tell(f"Everything stands in {keep}: read it, change it, and run kvgate reconcile -f {keep}")
        return all(ends)


def _in_order(report: Report) -> int:
    return [link.name for link in LINKS].index(report.pool.name)


def teller(form: Format, console: Console) -> Callable[[str], None]:
    """Says things between the tables; nothing where a program reads."""
    return (lambda text: console.print(f"\n{text}")) if form is Format.TABLE else (lambda _: None)


def _enter_user_namespace() -> None:
    """Linux without root: start again as root of a user namespace, where links can be made and shaped."""
    if platform.system() != "Linux" or os.geteuid() == 0 or not user_namespaces_work():
        return
    command = in_user_namespace(sys.argv[1:])
    os.execvp(command[0], command)  # noqa: S606


def in_user_namespace(arguments: Sequence[str]) -> list[str]:
    """The command that runs kvgate as root of a user namespace; /run is its own, for ip keeps namespaces there."""
    inner = 'mount -t tmpfs tmpfs /run && exec "$@"'
    return [*USER_NAMESPACE, "sh", "-c", inner, "sh", sys.executable, "-m", "kvgate.app", *arguments]


@contextmanager
def _nodes(errors: Console) -> Iterator[tuple[LabNode, ...]]:
    """Nodes on shaped links, or none where links can't be made."""
    rates = {node: link.bits_per_second for link in LINKS for node in link.nodes}
    with ExitStack() as stack:
        refusal = "this system has no network namespaces"
        nodes: tuple[LabNode, ...] = ()
        if platform.system() == "Linux":
            try:
                nodes, refusal = stack.enter_context(lab(rates)), ""
            except KernelRefusedError as error:
                refusal = str(error)
        if refusal:
            errors.print(f"No links can be made here ({refusal}). {PACED_NOTE}", soft_wrap=True)
        yield nodes


def _lay_out(folder: Path, nodes: tuple[LabNode, ...]) -> dict[str, str]:
    """Write the manifests. Returns the text of each deployment, to see later whether it was touched."""
    empty_folder(folder)
    try:
        (folder / "config.yaml").write_text(sample("config.yaml"), encoding="utf-8")
        (folder / "nodes.yaml").write_text(_node_manifests(nodes), encoding="utf-8")
        deployments = {link.name: _renamed(sample("deployment.yaml"), link) for link in LINKS}
        for link in LINKS:
            (folder / f"{link.name}-deployment.yaml").write_text(deployments[link.name], encoding="utf-8")
            (folder / f"{link.name}-pool.yaml").write_text(_renamed(sample("pool.yaml"), link), encoding="utf-8")
    except OSError as error:
        raise EdgeError(f"{folder}: cannot be written ({error.strerror})") from error
    return deployments


def empty_folder(folder: Path) -> None:
    """Make the directory that a demo fills. Raises EdgeError where that is none, or something is in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise EdgeError(f"{folder}: is not empty; name a directory that the demo may fill")
    except OSError as error:
        raise EdgeError(f"{folder}: cannot be written ({error.strerror})") from error


def sample(name: str) -> str:
    return (resources.files("kvgate.app") / "samples" / name).read_text(encoding="utf-8")


def _renamed(text: str, link: Link) -> str:
    """The sample under the link's name; the model and its ConfigMap keep theirs."""
    for here in ("name: qwen3\n", "targetRef: {name: qwen3}", "link: qwen3"):
        text = text.replace(here, here.replace("qwen3", link.name))
    return text


def _node_manifests(nodes: tuple[LabNode, ...]) -> str:
    made = {node.name: node for node in nodes}
    return yaml.safe_dump_all(
        [_node(link, role, made.get(name)) for link in LINKS for name, role in zip(link.nodes, _ROLES, strict=True)],
        sort_keys=False,
    )


_ROLES = ("prefill", "decode")


def _node(link: Link, role: str, made: LabNode | None) -> dict[str, object]:
    paced = {LOOPBACK: "true", PACED: f"{link.bits_per_second // 10**6}Mbit/s"}
    played = {NETWORK_NAMESPACE: made.namespace} if made else paced
    addresses = [{"type": "InternalIP", "address": made.address}] if made else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{link.name}-{role}",
            "labels": {"link": link.name, "pool": role},
            "annotations": played,
        },
        "status": {"addresses": addresses},
    }


def _approve(folder: Path, reports: tuple[Report, ...], clock: Clock) -> None:
    """What a person would do; Inconclusive reasons are accepted by name, as a person must."""
    for report in reports:
        for entry in report.status.capabilities:
            if entry.plan_hash:
                document = _approval(report, entry.name, entry.plan_hash, clock)
                path = folder / f"{report.pool.name}-approval.yaml"
                path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def _approval(report: Report, capability: Capability, plan_hash: str, clock: Clock) -> dict[str, object]:
    pool = report.pool
    return {
        "apiVersion": "kvgate.dev/v1alpha1",
        "kind": "GateApproval",
        "metadata": {"name": f"{pool.name}-{capability.lower()}", "namespace": pool.namespace},
        "spec": {
            "poolRef": {"name": pool.name, "uid": pool.uid},
            "capability": capability.value,
            "planHash": plan_hash,
            "approver": "demo",
            "acceptInconclusive": _ACCEPTED,
            "reason": "the demo approves what it shows",
            "expiresAt": f"{clock() + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
        },
    }


def _as_expected(folder: Path, link: Link, reports: tuple[Report, ...], untouched: dict[str, str]) -> bool:
    """A pool opened passes and its deployment's file changed; a pool held did neither."""
    report = next(report for report in reports if report.pool.name == link.name)
    changed = (folder / f"{link.name}-deployment.yaml").read_text(encoding="utf-8") != untouched[link.name]
    enabled = any(entry.enabled for entry in report.status.capabilities)
    return report.passed is enabled is changed is link.opens


def starved_pools(reports: Sequence[Report]) -> tuple[str, ...]:
    """The pools whose numbers are no verdict on the link, for the machine was busy."""
    return tuple(
        report.pool.name
        for report in reports
        if any(finding.reason == "ProbeStarved" for _, finding in report.explanation.findings)
    )


def _ending(link: Link, *, ended: bool) -> str:
    expected = "opened: its deployment was patched" if link.opens else "held: its deployment was not touched"
    return f"{link.name}: {expected}" if ended else f"{link.name}: NOT as expected, which was {expected}"
