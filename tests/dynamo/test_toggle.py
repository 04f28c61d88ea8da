"""Which manifests can be switched, by which steps, and what each of the others is told to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from kvgate.api.words import Capability
from kvgate.dynamo.steps import NotToggleable, RefusalReason, Step, Steps
from kvgate.dynamo.toggle import observed_state, plan_steps
from kvgate.dynamo.words import SwitchState
from tests.dynamo.support import (
    EXAMPLES,
    VLLM,
    Node,
    alpha,
    beta,
    component,
    container,
    drop_env,
    load,
    main,
    part,
    pod,
    sample,
    set_env,
    target_of,
    words,
)

ROUTING, SPLIT = Capability.ROUTING, Capability.DISAGGREGATION
ROUTER_ENV, SPLIT_ENV = "DYN_ROUTER_MODE", "DYN_VLLM_DISAGGREGATION_MODE"
Edit = Callable[[Node], object]


def planned(document: object, capability: Capability, free_gpus: int | None = None) -> Steps:
    steps = plan_steps(target_of(document), capability, free_gpus)
    assert isinstance(steps, Steps), steps
    return steps


def refused(document: object, capability: Capability) -> NotToggleable:
    answer = plan_steps(target_of(document), capability)
    assert isinstance(answer, NotToggleable), answer
    assert answer.reason is RefusalReason.TARGET_NOT_TOGGLEABLE
    return answer


def edited(*edits: Edit) -> Node:
    document = sample()
    for edit in edits:
        edit(document)
    return document


def test_the_samples_routing_is_one_value_of_the_frontend() -> None:
    steps = planned(sample(), ROUTING)
    assert steps.on == (Step("Frontend", ROUTER_ENV, "kv"),)
    assert steps.off == (Step("Frontend", ROUTER_ENV, "round-robin"),)
    assert steps.state is SwitchState.OFF
    assert steps.remarks == ()


def test_the_samples_split_is_one_value_of_each_worker() -> None:
    steps = planned(sample(), SPLIT)
    assert steps.on == (Step("DecodeWorker", SPLIT_ENV, "decode"), Step("PrefillWorker", SPLIT_ENV, "prefill"))
    assert steps.off == (Step("DecodeWorker", SPLIT_ENV, "agg"), Step("PrefillWorker", SPLIT_ENV, "agg"))
    assert steps.state is SwitchState.OFF


def test_the_steps_stay_the_same_when_they_already_hold() -> None:
    switched = edited(
        lambda dgd: set_env(dgd, "DecodeWorker", SPLIT_ENV, "decode"),
        lambda dgd: set_env(dgd, "PrefillWorker", SPLIT_ENV, "prefill"),
    )
    assert planned(switched, SPLIT).on == planned(sample(), SPLIT).on
    assert planned(switched, SPLIT).state is SwitchState.ON


def test_storage_has_no_steps_of_ours() -> None:
    assert planned(sample(), Capability.KV_STORAGE).on == ()


@pytest.mark.parametrize(
    ("edits", "capability", "state"),
    [
        pytest.param(
            [lambda d: set_env(d, "DecodeWorker", SPLIT_ENV, "decode")], SPLIT, SwitchState.MIXED, id="one side only"
        ),
        pytest.param(
            [lambda d: drop_env(d, "DecodeWorker", SPLIT_ENV), lambda d: drop_env(d, "PrefillWorker", SPLIT_ENV)],
            SPLIT,
            SwitchState.OFF,
            id="no mode at all is aggregated, whatever the types say",
        ),
        pytest.param(
            [lambda d: set_env(d, "DecodeWorker", SPLIT_ENV, "pd")], SPLIT, SwitchState.OFF, id="pd is aggregated too"
        ),
        pytest.param([lambda d: set_env(d, "Frontend", ROUTER_ENV, "kv")], ROUTING, SwitchState.ON, id="kv"),
        pytest.param(
            [lambda d: drop_env(d, "Frontend", ROUTER_ENV)], ROUTING, SwitchState.OFF, id="no mode is round-robin"
        ),
        pytest.param(
            [lambda d: set_env(d, "Frontend", ROUTER_ENV, "least-loaded")],
            ROUTING,
            SwitchState.OFF,
            id="another mode is off",
        ),
    ],
)
def test_how_the_switch_stands(edits: list[Edit], capability: Capability, state: SwitchState) -> None:
    document = edited(*edits)
    assert planned(document, capability).state is state
    assert observed_state(target_of(document), capability) is state


@pytest.mark.parametrize(
    ("example", "capability", "state"),
    [
        pytest.param("vllm-1.5.0/disagg.yaml", SPLIT, SwitchState.ON, id="split by args is on"),
        pytest.param("vllm-1.5.0/agg.yaml", SPLIT, SwitchState.OFF, id="one aggregated worker is off"),
        pytest.param("mocker-1.5.0/agg.yaml", SPLIT, SwitchState.OFF, id="a lone worker of type decode is off"),
        pytest.param("vllm-1.0.0/disagg_router.yaml", SPLIT, SwitchState.ON, id="v1alpha1 split is on"),
        pytest.param("vllm-1.5.0/agg_router_kv_approx.yaml", ROUTING, SwitchState.ON, id="approximate kv is on"),
    ],
)
def test_what_cannot_be_switched_is_still_seen(example: str, capability: Capability, state: SwitchState) -> None:
    assert observed_state(target_of(load(EXAMPLES / example)), capability) is state


def test_a_split_with_an_aggregated_bystander_is_mixed() -> None:
    roles = ("prefill", "decode", "agg")
    workers = (component(role, "worker", main(command=VLLM, args=["--disaggregation-mode", role])) for role in roles)
    assert observed_state(target_of(beta(*workers)), SPLIT) is SwitchState.MIXED


def test_two_frontends_that_route_differently_are_mixed() -> None:
    document = beta(
        component("a", "frontend", main(env=[{"name": ROUTER_ENV, "value": "kv"}])), component("b", "frontend")
    )
    steps = planned(document, ROUTING)
    assert steps.state is SwitchState.MIXED
    assert [step.component for step in steps.on] == ["a", "b"]


def recreate(document: Node) -> None:
    pod(document, "DecodeWorker")["metadata"] = {"annotations": {"nvidia.com/deployment-strategy": "Recreate"}}


def product(document: Node) -> None:
    spec = cast("Node", pod(document, "DecodeWorker")["spec"])
    spec["nodeSelector"] = {"nvidia.com/gpu.product": "H200"}


def no_surge(document: Node) -> None:
    prefix = "nvidia.com/deployment-rolling-update-max-"
    pod(document, "DecodeWorker")["metadata"] = {"annotations": {f"{prefix}surge": "0", f"{prefix}unavailable": "1"}}


def unannotated(document: Node) -> None:
    document["metadata"] = {"name": "qwen3"}


def shell(script: str) -> Edit:
    return lambda dgd: container(dgd, "Frontend").update(command=["sh", "-c", script], args=[])


ROUTING_REFUSALS = [
    pytest.param(
        lambda d: container(d, "Frontend").update(
            command=["python3"], args=["-m", "dynamo.frontend", "--router-mode", "random"]
        ),
        "overrides DYN_ROUTER_MODE",
        "remove '--router-mode random' from args[2], args[3] and set DYN_ROUTER_MODE=random in "
        "spec.components[name=Frontend].podTemplate.spec.containers[name=main].env",
        id="the mode in args",
    ),
    pytest.param(
        shell("python3 -m dynamo.frontend --router-mode kv"),
        "a shell string",
        "from command[2]",
        id="the mode in a shell string",
    ),
    pytest.param(
        shell("DYN_ROUTER_MODE=kv exec python3 -m dynamo.frontend"),
        "in a shell string",
        "take DYN_ROUTER_MODE= out of the shell string",
        id="the variable set in a shell string",
    ),
    pytest.param(
        lambda d: container(d, "Frontend").update(command=["/start.sh"]),
        "cannot be determined",
        "with its flags in args",
        id="a launcher",
    ),
    pytest.param(
        lambda d: set_env(d, "PrefillWorker", ROUTER_ENV, "kv"),
        "PrefillWorker advertises a router mode",
        "remove DYN_ROUTER_MODE from spec.components[name=PrefillWorker]",
        id="a worker advertises one by env",
    ),
    pytest.param(
        lambda d: words(d, "PrefillWorker").extend(["--router-mode", "kv"]),
        "PrefillWorker advertises a router mode",
        "remove --router-mode from args[8], args[9]",
        id="a worker advertises one by flag",
    ),
    pytest.param(
        lambda d: cast("Node", d["spec"]).update(env=[{"name": ROUTER_ENV, "value": "kv"}]),
        "for every component",
        "move DYN_ROUTER_MODE from spec.env to spec.components[name=Frontend]",
        id="the graph's own env",
    ),
    pytest.param(
        lambda d: set_env(d, "Frontend", ROUTER_ENV, None, valueFrom={"configMapKeyRef": {"name": "c", "key": "k"}}),
        "set by valueFrom",
        "a plain value",
        id="valueFrom",
    ),
    pytest.param(
        lambda d: container(d, "Frontend").update(env={ROUTER_ENV: "kv"}),
        "The env of Frontend is no list",
        "as a list of name and value",
        id="an env that is no list",
    ),
    pytest.param(
        lambda d: set_env(d, "Frontend", ROUTER_ENV, "$(MODE)"), "an expansion", "a plain value", id="an expansion"
    ),
    pytest.param(
        lambda d: cast("list[Node]", container(d, "Frontend")["env"]).append({"name": ROUTER_ENV, "value": "kv"}),
        "2 times",
        "keep one entry",
        id="the entry twice",
    ),
    pytest.param(
        lambda d: container(d, "Frontend").update(name="frontend"),
        "no container main",
        "add the container main",
        id="no main",
    ),
]


@pytest.mark.parametrize(("edit", "message", "remedy"), ROUTING_REFUSALS)
def test_routing_is_refused_with_the_field_and_the_remedy(edit: Edit, message: str, remedy: str) -> None:
    document = sample()
    edit(document)
    answer = refused(document, ROUTING)
    assert message in answer.message
    assert remedy in answer.remedy
    assert len(answer.blockers) == 1


SPLIT_REFUSALS = [
    pytest.param(
        lambda d: words(d, "DecodeWorker").extend(["--disaggregation-mode", "agg"]),
        "DecodeWorker sets '--disaggregation-mode agg' in args[8], args[9]",
        "remove '--disaggregation-mode agg' from args[8], args[9] and set DYN_VLLM_DISAGGREGATION_MODE=agg in "
        "spec.components[name=DecodeWorker].podTemplate.spec.containers[name=main].env",
        id="the role in args",
    ),
    pytest.param(
        lambda d: container(d, "DecodeWorker").update(args=words(d, "DecodeWorker")[:4]),
        "no readable --kv-transfer-config",
        "add --kv-transfer-config",
        id="no KV transfer",
    ),
    pytest.param(
        lambda d: words(d, "DecodeWorker").__setitem__(5, "{broken"),
        "no readable --kv-transfer-config",
        "add --kv-transfer-config",
        id="a KV transfer that is no JSON",
    ),
    pytest.param(
        lambda d: set_env(d, "DecodeWorker", SPLIT_ENV, None, valueFrom={"fieldRef": {"fieldPath": "x"}}),
        "set by valueFrom",
        "a plain value",
        id="valueFrom",
    ),
    pytest.param(
        lambda d: set_env(d, "Frontend", "DYN_MIGRATION_LIMIT", "0"),
        "migration limit of Frontend is 0",
        "set DYN_MIGRATION_LIMIT=3 in spec.components[name=Frontend]",
        id="requests that would not migrate",
    ),
    pytest.param(
        lambda d: drop_env(d, "Frontend", "DYN_MIGRATION_LIMIT"),
        "migration limit of Frontend is 0",
        "set DYN_MIGRATION_LIMIT=3",
        id="the migration limit's default is 0",
    ),
    pytest.param(
        lambda d: part(d, "Frontend").update(runtimeVersionOverride="1.4.9"),
        "Frontend runs Dynamo 1.4.9",
        "Dynamo 1.5.0 or later",
        id="a Dynamo that is too old",
    ),
    pytest.param(
        unannotated, "whether Grove runs them is not said", 'nvidia.com/enable-grove: "false"', id="perhaps Grove"
    ),
    pytest.param(
        recreate, "is recreated on a change", "remove the annotation", id="pods that end before new ones start"
    ),
    pytest.param(
        lambda d: part(d, "PrefillWorker").update(replicas=0),
        "PrefillWorker has 0 replicas",
        "at least 1 replica",
        id="an empty side",
    ),
    pytest.param(
        lambda d: part(d, "PrefillWorker").update(replicas=0, scalingAdapter={}),
        "PrefillWorker has 0 replicas",
        "scale its DynamoGraphDeploymentScalingAdapter",
        id="an empty side that an adapter owns",
    ),
    pytest.param(
        lambda d: part(d, "DecodeWorker").update(multinode={"nodeCount": 2}),
        "roll in place",
        "2 replicas each",
        id="workers of several nodes",
    ),
    pytest.param(
        lambda d: container(d, "DecodeWorker").update(image="vllm-runtime:1.5.2"),
        "differ in image",
        "equal in image",
        id="twins of another image",
    ),
    pytest.param(
        lambda d: words(d, "DecodeWorker").__setitem__(3, "32"),
        "differ in block size",
        "equal in block size",
        id="twins of another block size",
    ),
    pytest.param(
        lambda d: words(d, "DecodeWorker").extend(["--tensor-parallel-size", "2"]),
        "differ in tensor parallelism",
        "equal in",
        id="twins of another parallelism",
    ),
    pytest.param(
        lambda d: words(d, "DecodeWorker").extend(["--max-model-len", "4096"]),
        "differ in max-model-len",
        "equal in",
        id="twins of another length",
    ),
    pytest.param(
        lambda d: words(d, "DecodeWorker").extend(["--kv-cache-dtype", "fp8"]),
        "differ in KV cache dtype",
        "equal in",
        id="twins of another cache dtype",
    ),
    pytest.param(
        lambda d: container(d, "DecodeWorker").update(resources={"limits": {"nvidia.com/gpu": "2"}}),
        "differ in resources",
        "equal in",
        id="twins of other resources",
    ),
    pytest.param(product, "differ in GPU product", "equal in", id="twins on another GPU"),
    pytest.param(
        lambda d: container(d, "DecodeWorker").update(command=["/launch.sh"]),
        "cannot be determined",
        "flags in args",
        id="a launcher",
    ),
    pytest.param(
        lambda d: container(d, "DecodeWorker").update(command=["python3", "-m", "dynamo.sglang"]),
        "runs sglang",
        "dynamo.vllm",
        id="another engine",
    ),
    pytest.param(
        lambda d: set_env(d, "DecodeWorker", SPLIT_ENV, "prefill"),
        "DecodeWorker stands for decode",
        "to decode or agg",
        id="a role that contradicts the type",
    ),
    pytest.param(
        lambda d: (
            part(d, "DecodeWorker").update(type="worker", name="A"),
            part(d, "PrefillWorker").update(type="worker", name="B"),
        ),
        "Which of A and B does prefill is not said",
        "type: prefill",
        id="workers that nothing tells apart",
    ),
    pytest.param(
        lambda d: cast("list[Node]", cast("Node", d["spec"])["components"]).append(component("More")),
        "has 3 worker components",
        "two equal worker components",
        id="a third worker",
    ),
]


@pytest.mark.parametrize(("edit", "message", "remedy"), SPLIT_REFUSALS)
def test_the_split_is_refused_with_the_field_and_the_remedy(edit: Edit, message: str, remedy: str) -> None:
    document = sample()
    edit(document)
    answer = refused(document, SPLIT)
    assert message in answer.message
    assert remedy in answer.remedy


def test_plain_worker_types_are_told_apart_by_their_names() -> None:
    document = edited(
        lambda d: part(d, "DecodeWorker").update(type="worker"),
        lambda d: part(d, "PrefillWorker").update(type="worker"),
    )
    assert planned(document, SPLIT).on == planned(sample(), SPLIT).on


def test_on_grove_two_replicas_of_each_worker_may_be_switched() -> None:
    document = edited(
        unannotated,
        lambda d: part(d, "DecodeWorker").update(replicas=2),
        lambda d: part(d, "PrefillWorker").update(replicas=2),
    )
    assert planned(document, SPLIT).on


@pytest.mark.parametrize("capability", [ROUTING, SPLIT])
def test_v1alpha1_is_read_but_never_switched(capability: Capability) -> None:
    answer = refused(alpha({"f": {"componentType": "frontend"}}), capability)
    assert "v1alpha1" in answer.message
    assert "nvidia.com/v1beta1" in answer.remedy


@pytest.mark.parametrize("example", ["disagg", "disagg_router", "disagg_planner"])
def test_the_shipped_vllm_splits_are_told_which_words_to_move(example: str) -> None:
    answer = refused(load(EXAMPLES / "vllm-1.5.0" / f"{example}.yaml"), SPLIT)
    for worker, role in (("VllmDecodeWorker", "decode"), ("VllmPrefillWorker", "prefill")):
        home = f"spec.components[name={worker}].podTemplate.spec.containers[name=main].env"
        assert f"{worker} sets '--disaggregation-mode {role}' in args[" in answer.message
        assert f"set DYN_VLLM_DISAGGREGATION_MODE={role} in {home}" in answer.remedy


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name} {path.stem}")
def test_no_shipped_example_can_be_split_as_it_stands(path: Path) -> None:
    assert refused(load(path), SPLIT).remedy


@pytest.mark.parametrize(
    ("edits", "free", "said"),
    [
        pytest.param(
            [],
            None,
            "the surge needs 2 GPUs beside the running ones and the free ones are not known",
            id="free GPUs not known",
        ),
        pytest.param([], 1, "and 1 are free", id="one GPU short"),
        pytest.param([], 2, "", id="a GPU for each surge"),
        pytest.param(
            [
                lambda d: container(d, "DecodeWorker").update(resources={"limits": {"nvidia.com/gpu": "many"}}),
                lambda d: container(d, "PrefillWorker").update(resources={"limits": {"nvidia.com/gpu": "many"}}),
            ],
            8,
            "can't be read",
            id="counts that can't be read",
        ),
        pytest.param(
            [
                lambda d: container(d, "DecodeWorker").update(resources={}),
                lambda d: container(d, "PrefillWorker").update(resources={}),
            ],
            None,
            "",
            id="workers without GPUs surge freely",
        ),
        pytest.param(
            [no_surge],
            8,
            "DecodeWorker may not surge",
            id="a surge of none",
        ),
        pytest.param(
            [no_surge, lambda d: part(d, "DecodeWorker").update(name="Dec\x1b[2J", type="decode")],
            8,
            "Dec?[2J may not surge",
            id="a foreign name is never shown raw",
        ),
        pytest.param(
            [
                lambda d: part(d, "DecodeWorker").update(replicas=8),
                lambda d: part(d, "PrefillWorker").update(replicas=5),
            ],
            3,
            "needs 4 GPUs",
            id="a quarter of the replicas, rounded up",
        ),
    ],
)
def test_reduced_capacity_is_a_persons_to_accept(edits: list[Edit], free: int | None, said: str) -> None:
    remarks = planned(edited(*edits), SPLIT, free).remarks
    assert [remark.reason for remark in remarks] == (["ReducedCapacity"] if said else [])
    assert all(said in remark.message for remark in remarks)
