"""A sweep on this host: nodes are network namespaces, or this host's own loopback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path as FilePath

from kvgate.api.words import LinkTool
from kvgate.core.evidence import Evidence
from kvgate.core.steps import Measure
from kvgate.core.world import Pool
from kvgate.edge.errors import MeasureError
from kvgate.edge.localjobs import Host, Progress, run_walkers
from kvgate.edge.nodes import LOOPBACK, NETWORK_NAMESPACE, NodeView
from kvgate.edge.objects import Objects
from kvgate.edge.observe import label_keys, placed
from kvgate.probe.asked import further_steps
from kvgate.probe.identities import identified, tools
from kvgate.probe.plan import LinkTest, SweepPlan, plan_phases
from kvgate.probe.results import Setting, read_logs
from kvgate_probe.ib_tool import IbReadBw
from kvgate_probe.seats import companion_of
from kvgate_probe.wire import DATA_PORTS, Step

_START_SECONDS = 60.0
_ROUND_SECONDS = 20.0
_PORTS_PER_NODE = DATA_PORTS + 1
NAMESPACES = FilePath("/run/netns")

Watch = Callable[[Pool], AbstractContextManager[Progress]]
"""What shows a sweep at work, for as long as it is."""


class LocalSweep:
    """Measures the paths of a pool between the namespaces that play its nodes."""

    def __init__(self, clock: Callable[[], datetime], watch: Watch) -> None:
        self._clock = clock
        self._watch = watch

    def __call__(self, pool: Pool, objects: Objects, step: Measure) -> Evidence:
        """The evidence of one sweep. Raises MeasureError when a node is not played by this host."""
        _check_device(pool)
        by_name = {node.identity.name: node for node in objects.nodes}
        names = sorted({name for path in step.paths for name in (path.source, path.destination)})
        nodes = [_playable(name, by_name.get(name)) for name in names]
        plan = _plan(pool, step, nodes)
        hosts = _hosts(nodes, pool.spec.fabric.probe.port, frozenset(plan.schedule.nodes))
        limit = plan.seconds + _START_SECONDS + _ROUND_SECONDS * len(plan.schedule.rounds)
        allowed = min(limit, pool.spec.fabric.schedule.sweep_timeout.seconds)
        began_at = self._clock()
        with self._watch(pool) as progress:
            walked = run_walkers(plan.schedule, hosts, allowed, progress)
        received_at = self._clock().replace(microsecond=0)
        addresses = {host.node: frozenset({host.address}) for host in hosts}
        loopback = any(node.loopback for node in nodes)
        setting = Setting(received_at, addresses, loopback=loopback, began_at=began_at)
        read = read_logs(plan.schedule, walked.logs, setting)
        return Evidence(
            run_id=step.run_id,
            pool_uid=pool.uid,
            planned=plan.paths,
            samples=read.samples,
            measured_at=received_at,
            in_use=step.in_use,
            nodes=identified((placed(node, label_keys(pool.spec)) for node in nodes), read.interfaces),
            tools=tools(read.samples),
            problems=(*walked.problems, *read.problems),
        )


def _check_device(pool: Pool) -> None:
    """Raises MeasureError where RDMA is to be measured on a host that cannot."""
    probe = pool.spec.fabric.probe
    if probe.link.tool is not LinkTool.IB_READ_BW:
        return
    problem = IbReadBw(Step(probe.link.tool.value, probe.link.streams, probe.link.duration.seconds)).problem()
    if problem is not None:
        what = f"pool {pool.key}: fabric.probe.link.tool is {probe.link.tool}, and on this host {problem.message}"
        raise MeasureError(f"{what}; its owner must set iperf3, or measure where the device is")


def _playable(name: str, node: NodeView | None) -> NodeView:
    played = (node.namespace, node.companion) if node is not None else ()
    if missing := next((space for space in played if space and not (NAMESPACES / space).exists()), ""):
        what = f"node {name} is played by network namespace {missing}, which does not exist on this host"
        raise MeasureError(f"{what}: make it with ip netns add, or correct the Node's annotation")
    if node is not None and (node.loopback or (node.namespace and node.addresses)):
        return node
    what = f"node {name} is not played by this host: annotate its Node manifest with {NETWORK_NAMESPACE}"
    raise MeasureError(f'{what} and give it an InternalIP, or with {LOOPBACK}: "true"')


def _plan(pool: Pool, step: Measure, nodes: Sequence[NodeView]) -> SweepPlan:
    probe = pool.spec.fabric.probe
    paces = [node.paced_bytes_per_second for node in nodes if node.paced_bytes_per_second is not None]
    test = LinkTest(
        duration_seconds=probe.link.duration.seconds,
        streams=probe.link.streams,
        port=probe.port,
        tool=probe.link.tool.value,
        paced_bits_per_second=round(min(paces) * 8) if paces else None,
        further=further_steps(probe, step.descriptor_bytes),
    )
    return plan_phases(step, pool.uid, test, probe.phases)


def _hosts(nodes: Sequence[NodeView], port: int, walkers: frozenset[str]) -> tuple[Host, ...]:
    """Namespaces all use the pool's port; on one loopback each node has ports of its own."""
    seconds = tuple(
        Host(companion_of(node.identity.name), node.addresses[1], port, node.companion)
        for node in nodes
        if companion_of(node.identity.name) in walkers
    )
    return seconds + tuple(
        Host(node.identity.name, "127.0.0.1", port + number * _PORTS_PER_NODE)
        if node.loopback
        else Host(node.identity.name, node.addresses[0], port, node.namespace)
        for number, node in enumerate(nodes)
    )
