"""A deployment as the judgement sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvgate.api.words import Capability, Outcome
from kvgate.core.target import FabricClass, Switch, TargetProblem, TargetView
from kvgate.dynamo.shape import read_target
from kvgate.dynamo.view import block_tokens, kv_dtype, placement, view
from kvgate.dynamo.words import Role, RouterMode
from tests.dynamo.support import Node, drop_env, part, pod, sample, set_env, target_of, words

MODE = "DYN_VLLM_DISAGGREGATION_MODE"


def seen(*changes: Callable[[Node], object]) -> TargetView:
    found = view(target_of(changed(*changes)))
    assert isinstance(found, TargetView)
    return found


def changed(*changes: Callable[[Node], object]) -> Node:
    document = sample()
    for change in changes:
        change(document)
    return document


def split(document: Node) -> None:
    set_env(document, "DecodeWorker", MODE, "decode")
    set_env(document, "PrefillWorker", MODE, "prefill")


def half(document: Node) -> None:
    set_env(document, "DecodeWorker", MODE, "decode")


def silent(document: Node) -> None:
    for name in ("DecodeWorker", "PrefillWorker"):
        drop_env(document, name, MODE)


def args(name: str, *more: str) -> Callable[[Node], object]:
    return lambda document: words(document, name).extend(more)


def replicas(name: str, count: object) -> Callable[[Node], object]:
    return lambda document: part(document, name).update(replicas=count)


def test_the_sample_can_be_split_by_two_values() -> None:
    toggle = seen().toggles[Capability.DISAGGREGATION]
    assert (toggle.switch, toggle.refusal, toggle.conflict) == (Switch.OFF, None, "")
    assert {(step.component, step.env, step.to) for step in toggle.steps} == {
        ("DecodeWorker", MODE, "decode"),
        ("PrefillWorker", MODE, "prefill"),
    }


def test_the_baseline_is_what_stands_there_and_the_off_values_what_would() -> None:
    toggle = seen().toggles[Capability.DISAGGREGATION]
    assert {(entry.env, entry.value, entry.present) for entry in toggle.baseline} == {(MODE, "agg", True)}
    assert {entry.value for entry in toggle.off_values} == {"agg"}


def stands(capability: Capability, value: str) -> Switch:
    """How the sample stands with this value at every entry of the capability."""

    def write(document: Node) -> None:
        for step in seen().toggles[capability].steps:
            set_env(document, step.component, step.env, value)

    return seen(write).toggles[capability].switch


@pytest.mark.parametrize("capability", [Capability.ROUTING, Capability.DISAGGREGATION])
def test_exactly_the_off_words_switch_off(capability: Capability) -> None:
    """An encoder is not split either, but no component that kvgate switches was one before."""
    every = {*RouterMode, *Role, "pd", "", "Round-Robin", "agg; exec evil"} - {Role.ENCODE}
    assert {word for word in every if stands(capability, word) is Switch.OFF} == seen().toggles[capability].off_words


@pytest.mark.parametrize(
    ("change", "switch"),
    [
        pytest.param(lambda document: None, Switch.OFF, id="both aggregated"),
        pytest.param(split, Switch.ON, id="both split"),
        pytest.param(half, Switch.MIXED, id="one of two"),
        pytest.param(silent, Switch.OFF, id="neither says anything"),
    ],
)
def test_where_the_split_stands(change: Callable[[Node], object], switch: Switch) -> None:
    assert seen(change).toggles[Capability.DISAGGREGATION].switch is switch


def test_the_steps_are_the_whole_enabled_state_also_when_it_holds() -> None:
    assert seen(split).toggles[Capability.DISAGGREGATION].steps == seen().toggles[Capability.DISAGGREGATION].steps


def test_our_own_patch_does_not_change_the_projection() -> None:
    off, on = (seen(change).toggles[Capability.DISAGGREGATION] for change in (lambda document: None, split))
    assert on.projection == off.projection


def test_another_image_changes_the_projection() -> None:
    def upgrade(document: Node) -> None:
        args("DecodeWorker", "--enforce-eager")(document)

    before, after = (seen(change).toggles[Capability.DISAGGREGATION] for change in (lambda document: None, upgrade))
    assert before.projection != after.projection


def test_roles_in_the_args_are_a_refusal_that_says_what_to_do() -> None:
    toggle = seen(args("DecodeWorker", "--disaggregation-mode", "decode")).toggles[Capability.DISAGGREGATION]
    assert toggle.refusal is not None
    assert toggle.refusal.outcome is Outcome.ERROR
    assert toggle.steps == ()
    assert ": " in toggle.refusal.message


def test_one_replica_each_is_a_remark_that_a_person_may_accept() -> None:
    findings = seen().toggles[Capability.DISAGGREGATION].findings
    assert {(finding.outcome, finding.reason) for finding in findings} == {(Outcome.INCONCLUSIVE, "ReducedCapacity")}


@pytest.mark.parametrize(
    ("change", "prefill", "decode"),
    [
        pytest.param(lambda document: None, 1, 1, id="one of each"),
        pytest.param(replicas("DecodeWorker", 3), 1, 3, id="three decode workers"),
        pytest.param(replicas("DecodeWorker", "many"), 1, None, id="a count that cannot be read is not zero"),
    ],
)
def test_worker_pods(change: Callable[[Node], object], prefill: int | None, decode: int | None) -> None:
    found = seen(change)
    assert (found.prefill_pods, found.decode_pods) == (prefill, decode)


def test_tcp_is_what_workers_use_unless_they_ask_for_more() -> None:
    assert seen().fabric_class is FabricClass.TCP


@pytest.mark.parametrize(
    ("change", "ranks"),
    [
        pytest.param(lambda document: None, 1, id="none named"),
        pytest.param(args("DecodeWorker", "--tensor-parallel-size", "4"), 4, id="the decode worker's"),
        pytest.param(args("PrefillWorker", "--tensor-parallel-size", "4"), 1, id="not the prefill worker's"),
    ],
)
def test_ranks_that_pull_the_cache(change: Callable[[Node], object], ranks: int) -> None:
    assert (seen(change).decode_tensor_parallel or 1) == ranks


@pytest.mark.parametrize("change", [lambda document: None, split], ids=["joined", "split"])
def test_nodes_that_the_workers_ask_for(change: Callable[[Node], object]) -> None:
    target = target_of(changed(change))
    assert placement(target, Role.PREFILL) == {"pool": "prefill"}
    assert placement(target, Role.DECODE) == {"pool": "decode"}


def test_workers_that_ask_for_no_node_ask_for_none() -> None:
    def anywhere(document: Node) -> None:
        spec = pod(document, "DecodeWorker")["spec"]
        assert isinstance(spec, dict)
        del spec["nodeSelector"]

    assert placement(target_of(changed(anywhere)), Role.DECODE) == {}


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        pytest.param(lambda document: None, 16, id="both say 16"),
        pytest.param(args("DecodeWorker", "--block-size", "32"), None, id="they disagree"),
    ],
)
def test_block_tokens(change: Callable[[Node], object], tokens: int | None) -> None:
    assert block_tokens(target_of(changed(change))) == tokens


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        pytest.param((), "", id="none named"),
        pytest.param((args("DecodeWorker", "--kv-cache-dtype", "auto"),), "", id="auto"),
        pytest.param((args("DecodeWorker", "--kv-cache-dtype", "fp8"),), "", id="one of two"),
        pytest.param(
            tuple(args(name, "--kv-cache-dtype", "fp8") for name in ("DecodeWorker", "PrefillWorker")), "fp8", id="both"
        ),
    ],
)
def test_kv_dtype(changes: tuple[Callable[[Node], object], ...], dtype: str) -> None:
    assert kv_dtype(target_of(changed(*changes))) == dtype


@pytest.mark.parametrize("document", [{}, {"kind": "DynamoGraphDeployment"}, {"kind": "Pod"}, sample() | {"spec": []}])
def test_what_is_no_deployment_stays_a_problem_with_its_remedy(document: Node) -> None:
    found = view(read_target(document))
    assert isinstance(found, TargetProblem)
    assert found.reason
    assert ": " in found.message
