"""The power of a deployment's GPUs during an A/B, as NVIDIA's DCGM exporter tells it to a Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kvgate.core.ab.experiment import Experiment
from kvgate.core.ab.power import Efficiency, Gpu, NoPower, tokens_per_joule
from kvgate.core.world import Pool
from kvgate.edge.prometheus import ask
from kvgate.edge.promql import (
    DEPLOYMENT,
    NAMESPACE,
    LabelMatcher,
    MatchOperator,
    NoData,
    PrometheusEndpoint,
    literal,
)

POWER = "DCGM_FI_DEV_POWER_USAGE"
LABELS = (("namespace", "pod"), ("exported_namespace", "exported_pod"))
"""Of the workload, as the exporter tells them; Prometheus renames them where its own target has labels of these names
and honorLabels is off."""
LARGEST_BYTES = 8 * 1024 * 1024
MOST_PODS = 64
AFTER_SECONDS = 1.0

PowerReader = Callable[[Pool, Experiment, tuple[str, ...]], Efficiency | NoPower]
Endpoints = Callable[[str], PrometheusEndpoint | None]


def no_prometheus(_: Pool, __: Experiment, ___: tuple[str, ...]) -> Efficiency | NoPower:
    """Where nobody is to be asked there is no number and no complaint."""
    return ()


def power_reader(endpoints: Endpoints) -> PowerReader:
    """Asks the Prometheus that a pool names, at most twice and each for a few seconds; never raises for what it does.
    `endpoints` gives what the operator's settings call by a name."""

    def read(pool: Pool, experiment: Experiment, pods: tuple[str, ...]) -> Efficiency | NoPower:
        ref = pool.spec.monitor.prometheus_ref
        endpoint = endpoints(ref.name) if ref is not None else None
        timed = experiment.runs and all(0 < run.began_at < run.ended_at for run in experiment.runs)
        if endpoint is None or experiment.aborted or not timed:
            return ()
        if not 0 < len(pods) <= MOST_PODS:
            return NoPower(f"{POWER} is asked for 1 to {MOST_PODS} worker pods, there are {len(pods)}")
        found = _gpus(endpoint, pool.namespace, experiment, pods)
        read = found if isinstance(found, NoPower) else tokens_per_joule(experiment, found, pods)
        if isinstance(read, NoPower):
            where = f'{POWER} in Prometheus "{endpoint.name}" of the operator\'s settings'
            return NoPower(f"{where}, by the labels {tried()}: {read.message}; {_WHO}")
        return read

    return read


_WHO = "if it matters, the cluster's administrator must let Prometheus scrape the DCGM exporter with pod labels"


def tried() -> str:
    return " or ".join(f"{namespace} and {pod}" for namespace, pod in LABELS)


def _gpus(
    endpoint: PrometheusEndpoint, namespace: str, experiment: Experiment, pods: tuple[str, ...]
) -> tuple[Gpu, ...] | NoPower:
    began = min(run.began_at for run in experiment.runs) - AFTER_SECONDS
    ended = max(run.ended_at for run in experiment.runs) + AFTER_SECONDS
    for labels in LABELS:
        query = power_query(endpoint.matchers, namespace, pods, math.ceil(ended - began), labels)
        result = ask(endpoint, query, largest_bytes=LARGEST_BYTES, at_seconds=ended)
        found = NoPower(result.message) if isinstance(result, NoData) else read_gpus(result, labels[1])
        if isinstance(found, NoPower) or found:
            return found
    return ()


def power_query(
    matchers: Iterable[LabelMatcher], namespace: str, pods: Iterable[str], seconds: int, labels: tuple[str, str]
) -> str:
    """The samples of these pods' GPUs over the time. What the settings match beside the namespace and the deployment,
    a cluster's name say, is matched here too: the exporter knows no deployment."""
    own = (m for m in matchers if NAMESPACE not in m.value and DEPLOYMENT not in m.value)
    workload = (
        LabelMatcher(labels[0], MatchOperator.EQUAL, namespace),
        LabelMatcher(labels[1], MatchOperator.MATCHES, "|".join(map(literal, sorted(pods)))),
    )
    return f"{POWER}{{{','.join(matcher.text({}) for matcher in (*workload, *own))}}}[{seconds}s]"


def read_gpus(result: object, pod_label: str) -> tuple[Gpu, ...] | NoPower:
    """The range vector of a query; a sample that is no number is one that no GPU draws."""
    if not isinstance(result, list):
        return NoPower("the answer is no range of samples")
    try:
        return tuple(_gpu(series["metric"], series["values"], pod_label) for series in result)
    except (KeyError, TypeError, ValueError):
        return NoPower("the answer is no range of samples")


def _gpu(labels: Mapping[str, Any], values: Iterable[tuple[Any, Any]], pod_label: str) -> Gpu:
    known = str(labels.get("UUID") or f"{labels.get('instance', '')}/{labels.get('gpu', '')}")
    return Gpu(known, str(labels[pod_label]), tuple((float(at), float(watts)) for at, watts in values))
