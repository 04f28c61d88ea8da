"""The cluster's ground as the settings allow it: which probes may run, and which Prometheus is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from kvgate import __version__
from kvgate.app.operator.calls import Calls
from kvgate.app.operator.leadership import NotLeadingError
from kvgate.app.operator.main import OperatorOptions, run_operator
from kvgate.app.operator.meters import Meters
from kvgate.app.operator.observed import ObservedRates
from kvgate.app.settings import Settings
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.ground import ClusterGround
from kvgate.edge.cluster.sweeps import ProbePolicy
from kvgate.edge.connection import credentials
from kvgate.edge.metrics import MetricsLooks, PrometheusReaders
from kvgate.edge.power import power_reader
from kvgate.edge.verifier import Verifier

AGENT = f"kvgate/{__version__}"


def serve(options: OperatorOptions) -> int:
    """Run the operator on the cluster that the options name. Raises EdgeError when it cannot begin."""
    meters = Meters(_now)
    calls = Calls(time.monotonic, meters.called)

    def make_ground(settings: Callable[[], Settings], instance: str, require: Callable[[], None]) -> ClusterGround:
        """A step of many writes may outlast the Lease that it was begun under, so each of them asks."""
        client = Client(credentials(options.kubeconfig), AGENT, require, calls.begun)
        return cluster_ground(client, settings, instance, options.namespaces, require)

    client = Client(credentials(options.kubeconfig), AGENT, observer=calls.begun)
    return run_operator(options, client, make_ground, meters, calls)


def cluster_ground(
    client: Client,
    settings: Callable[[], Settings],
    instance: str,
    namespaces: Sequence[str] = (),
    require: Callable[[], None] = lambda: None,
) -> ClusterGround:
    """The ground of the operator that is called `instance`; the settings are asked anew at each look, and `require`
    before each prompt."""
    metrics = MetricsLooks(lambda name: settings().endpoint(name), _now)
    power = power_reader(lambda name: settings().endpoint(name))
    prometheus = PrometheusReaders(ObservedRates(settings, time.monotonic), metrics, power)
    verifier = Verifier(_now, leads=lambda: _leads(require))
    return ClusterGround(
        client,
        lambda: probe_policy(settings()),
        _now,
        prometheus,
        instance,
        namespaces=namespaces,
        verifier=verifier,
    )


def _leads(require: Callable[[], None]) -> bool:
    try:
        require()
    except NotLeadingError:
        return False
    return True


def probe_policy(settings: Settings) -> ProbePolicy:
    probe = settings.probe
    return ProbePolicy(
        image=probe.image or "",
        allowed_nodes=probe.allowed_node_selector,
        signals=settings.node_health.signals,
        allow_host_network=probe.allow_host_network,
        capabilities=tuple(capability.value for capability in probe.allowed_capabilities),
        most_sweeps=probe.max_concurrent_sweeps,
        least_interval=probe.min_interval.delta,
        most_bytes=probe.max_bytes_per_sweep.bytes if probe.max_bytes_per_sweep else None,
    )


def _now() -> datetime:
    return datetime.now(UTC)
