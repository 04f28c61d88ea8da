"""What a cluster's health tools say against a node: read from its conditions, taints and labels, never invented."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Sign(StrEnum):
    """Where a tool leaves its word on a node."""

    CONDITION = "Condition"
    TAINT = "Taint"
    LABEL = "Label"


@dataclass(frozen=True)
class Signal:
    """A word of one tool that speaks against a node: this key with one of these values, any value where none is named.

    `remedy` says who lifts it and how.
    """

    tool: str
    sign: Sign
    key: str
    values: tuple[str, ...]
    remedy: str


@dataclass(frozen=True)
class Told:
    """What stands on a node. Of conditions the status by type, of taints the values by key, of labels the value."""

    conditions: Mapping[str, str] = field(default_factory=dict)
    taints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def of(self, signal: Signal) -> tuple[str, ...]:
        """The values that stand under the signal's key."""
        if signal.sign is Sign.TAINT:
            return self.taints.get(signal.key, ())
        found = (self.conditions if signal.sign is Sign.CONDITION else self.labels).get(signal.key)
        return () if found is None else (found,)


@dataclass(frozen=True, order=True)
class Veto:
    """One tool's word against one node, as it stands there: `node a: autopilot, label k=EVICT`."""

    node: str
    tool: str
    word: str
    remedy: str

    def __str__(self) -> str:
        return f"node {self.node}: {self.tool} set {self.word}; {self.remedy}"


_AUTOPILOT = "autopilot clears it once its checks pass, or cordon and repair the node"
_SENTINEL = "NVSentinel lifts it after its remediation; see its health event of the node"
_SCANNER = "run the health check again after a repair, or take taint and label off"
_HYPERPOD = "SageMaker HyperPod reboots or replaces the node; wait, or see its deep health check"
_DETECTOR = "repair what the condition's message names; node problem detector clears it"

KNOWN = (
    Signal("autopilot", Sign.LABEL, "autopilot.ibm.com/gpuhealth", ("EVICT", "ERR", "TESTING"), _AUTOPILOT),
    Signal("autopilot", Sign.TAINT, "autopilot.ibm.com/gpuhealth", ("EVICT", "TESTING"), _AUTOPILOT),
    Signal(
        "NVSentinel",
        Sign.LABEL,
        "dgxc.nvidia.com/nvsentinel-state",
        ("quarantined", "draining", "drain-succeeded", "drain-failed", "remediating", "remediation-failed"),
        _SENTINEL,
    ),
    Signal("NVSentinel", Sign.CONDITION, "NVCRECertFailed", ("True",), _SENTINEL),
    Signal("NVSentinel", Sign.TAINT, "nvsentinel.dgxc.nvidia.com/nvcre-cert-failed", (), _SENTINEL),
    Signal("Cluster Health Scanner", Sign.TAINT, "aiinfra/nccl-healthcheck", ("suspect", "failed"), _SCANNER),
    Signal(
        "Cluster Health Scanner",
        Sign.LABEL,
        "aiinfra/nccl-healthcheck-result",
        ("fail", "fail_baseline_miss"),
        _SCANNER,
    ),
    Signal(
        "Cluster Health Scanner",
        Sign.LABEL,
        "aiinfra/neper-healthcheck-result",
        ("fail", "fail_baseline_miss"),
        _SCANNER,
    ),
    Signal(
        "Cluster Health Scanner", Sign.LABEL, "aiinfra/gpu-healthcheck-result", ("fail", "fail_baseline_miss"), _SCANNER
    ),
    Signal(
        "HyperPod",
        Sign.LABEL,
        "sagemaker.amazonaws.com/node-health-status",
        ("Unschedulable", "UnschedulablePendingReplacement", "UnschedulablePendingReboot"),
        _HYPERPOD,
    ),
    Signal("HyperPod", Sign.TAINT, "sagemaker.amazonaws.com/node-health-status", (), _HYPERPOD),
    Signal(
        "HyperPod",
        Sign.LABEL,
        "sagemaker.amazonaws.com/deep-health-check-status",
        ("Failed", "InProgress"),
        _HYPERPOD,
    ),
    *(
        Signal("node problem detector", Sign.CONDITION, kind, ("True",), _DETECTOR)
        for kind in (
            "KernelDeadlock",
            "ReadonlyFilesystem",
            "FrequentUnregisterNetDevice",
            "FrequentKubeletRestart",
            "FrequentContainerdRestart",
            "XfsShutdown",
        )
    ),
)
"""What the tools that are known set, with values that say that pods should not be there; not those that only warn."""


def vetoes(node: str, told: Told, signals: Iterable[Signal] = KNOWN) -> tuple[Veto, ...]:
    """Every word against this node, in order of the signals."""
    return tuple(
        Veto(node, signal.tool, f"{signal.sign.lower()} {signal.key}={value}", signal.remedy)
        for signal in signals
        for value in _matching(signal, told)
    )


def _matching(signal: Signal, told: Told) -> Iterator[str]:
    wanted = {value.casefold() for value in signal.values}
    return (value for value in told.of(signal) if not wanted or value.casefold() in wanted)
