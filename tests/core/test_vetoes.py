"""What health tools leave on nodes, and whether it speaks against them."""

from __future__ import annotations

import dataclasses

import pytest

from kvgate.api.words import Capability, Outcome
from kvgate.core import evidence_criteria as criteria
from kvgate.core.verdicts import judge
from kvgate.core.vetoes import KNOWN, Sign, Signal, Told, Veto, vetoes
from tests.core.cases import case, nodes

CORDON = "sagemaker.amazonaws.com/node-health-status"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(Told(), [], id="a node that nobody speaks of"),
        pytest.param(
            Told(labels={"autopilot.ibm.com/gpuhealth": "EVICT"}),
            ["autopilot set label autopilot.ibm.com/gpuhealth=EVICT"],
            id="autopilot wants its pods away",
        ),
        pytest.param(Told(labels={"autopilot.ibm.com/gpuhealth": "PASS"}), [], id="autopilot's checks passed"),
        pytest.param(Told(labels={"autopilot.ibm.com/gpuhealth": "WARN"}), [], id="a mere warning does not count"),
        pytest.param(
            Told(labels={"dgxc.nvidia.com/nvsentinel-state": "quarantined"}),
            ["NVSentinel set label dgxc.nvidia.com/nvsentinel-state=quarantined"],
            id="NVSentinel holds it in quarantine",
        ),
        pytest.param(
            Told(labels={"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}), [], id="NVSentinel repaired it"
        ),
        pytest.param(
            Told(conditions={"NVCRECertFailed": "True"}),
            ["NVSentinel set condition NVCRECertFailed=True"],
            id="its certification failed",
        ),
        pytest.param(Told(conditions={"NVCRECertFailed": "False"}), [], id="its certification did not fail"),
        pytest.param(Told(conditions={"NVCRECertFailed": "Unknown"}), [], id="its certification is not known"),
        pytest.param(
            Told(taints={"aiinfra/nccl-healthcheck": ("suspect",)}),
            ["Cluster Health Scanner set taint aiinfra/nccl-healthcheck=suspect"],
            id="the scanner suspects it",
        ),
        pytest.param(
            Told(taints={CORDON: ("Unschedulable",)}, labels={CORDON: "UnschedulablePendingReboot"}),
            [
                f"HyperPod set label {CORDON}=UnschedulablePendingReboot",
                f"HyperPod set taint {CORDON}=Unschedulable",
            ],
            id="HyperPod says it twice",
        ),
        pytest.param(Told(labels={CORDON: "Schedulable"}), [], id="HyperPod has nothing against it"),
        pytest.param(
            Told(conditions={"KernelDeadlock": "True", "Ready": "True", "MemoryPressure": "True"}),
            ["node problem detector set condition KernelDeadlock=True"],
            id="a deadlocked kernel, beside conditions of the kubelet's own",
        ),
    ],
)
def test_the_words_of_the_known_tools(told: Told, expected: list[str]) -> None:
    found = vetoes("n1", told)
    assert [f"{veto.tool} set {veto.word}" for veto in found] == expected
    assert all(veto.node == "n1" and veto.remedy for veto in found)


def test_another_tool_may_be_named_and_a_known_one_left_out() -> None:
    rack = Signal("rackwatch", Sign.LABEL, "example.com/rack", ("hot",), "call the data hall")
    told = Told(labels={"example.com/rack": "HOT", "autopilot.ibm.com/gpuhealth": "EVICT"})
    signals = (*(signal for signal in KNOWN if signal.tool != "autopilot"), rack)
    assert [veto.tool for veto in vetoes("n1", told, signals)] == ["rackwatch"]


def test_a_signal_without_values_takes_any_and_needs_the_key() -> None:
    any_value = Signal("x", Sign.TAINT, "example.com/sick", (), "heal it")
    assert vetoes("n1", Told(), (any_value,)) == ()
    assert len(vetoes("n1", Told(taints={"example.com/sick": ("", "very")}), (any_value,))) == 2


VETO = Veto("d1", "autopilot", "label autopilot.ibm.com/gpuhealth=EVICT", "cordon and repair the node")


def test_a_veto_holds_what_would_pass_and_says_node_tool_word_and_remedy() -> None:
    vetoed = case(on=dataclasses.replace(nodes(), vetoes=(VETO,)))
    finding = criteria.nodes_healthy(vetoed)
    assert (finding.outcome, finding.reason) == (Outcome.UNKNOWN, "NodeVetoed")
    for part in ("node d1", "autopilot", "gpuhealth=EVICT", "cordon and repair", "nodeHealth.ignore"):
        assert part in finding.message
    assert judge(case(), Capability.DISAGGREGATION).outcome is Outcome.PASS
    assert judge(vetoed, Capability.DISAGGREGATION).decisive == finding


def test_a_veto_is_no_fail() -> None:
    vetoed = case(on=dataclasses.replace(nodes(), vetoes=(VETO,)))
    assert judge(vetoed, Capability.DISAGGREGATION).outcome is not Outcome.FAIL
