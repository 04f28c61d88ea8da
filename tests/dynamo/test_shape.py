"""Reading deployments of both versions, as they are found in the field."""

from __future__ import annotations

import pytest

from kvgate.core.events_seen import Declares
from kvgate.dynamo.component import Component
from kvgate.dynamo.publishing import declared
from kvgate.dynamo.shape import ProblemReason, TargetProblem, read_target
from kvgate.dynamo.words import (
    Engine,
    FabricClass,
    GitOps,
    Provider,
    ReplicasOwner,
    Role,
    RouterMode,
    Source,
)
from tests.dynamo.support import TRANSFER, VLLM, Node, alpha, beta, component, main, sample, target_of


def only(document: Node, name: str) -> Component:
    found = target_of(document).component(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("document", "reason", "said"),
    [
        pytest.param([{"kind": "DynamoGraphDeployment"}], ProblemReason.TARGET_INVALID, "is a list", id="a list"),
        pytest.param("text", ProblemReason.TARGET_INVALID, "no mapping", id="a scalar"),
        pytest.param(None, ProblemReason.TARGET_INVALID, "no mapping", id="an empty file"),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
            ProblemReason.TARGET_INVALID,
            "kind is Pod",
            id="another kind",
        ),
        pytest.param({}, ProblemReason.TARGET_INVALID, "kind is missing", id="no kind"),
        pytest.param(
            {"apiVersion": "nvidia.com/v2", "kind": "DynamoGraphDeployment", "metadata": {"name": "x"}},
            ProblemReason.TARGET_VERSION_UNKNOWN,
            "known are nvidia.com/v1beta1 and nvidia.com/v1alpha1",
            id="a version that nobody knows",
        ),
        pytest.param(beta(), ProblemReason.TARGET_INVALID, "has no spec.components", id="no components"),
        pytest.param(alpha({}), ProblemReason.TARGET_INVALID, "has no spec.services", id="no services"),
        pytest.param(
            beta(component("a"), component("A")),
            ProblemReason.TARGET_INVALID,
            "names a more than once",
            id="a name twice",
        ),
        pytest.param(
            beta({"type": "worker"}), ProblemReason.TARGET_INVALID, "spec.components[0] has no name", id="no name"
        ),
        pytest.param(
            {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "spec": {"components": [{}]}},
            ProblemReason.TARGET_INVALID,
            "no metadata.name",
            id="no name of its own",
        ),
    ],
)
def test_what_is_no_target_says_what_and_what_to_do(document: object, reason: ProblemReason, said: str) -> None:
    problem = read_target(document)
    assert isinstance(problem, TargetProblem)
    assert problem.reason is reason
    assert said in problem.message
    assert problem.remedy


def test_foreign_text_reaches_a_message_only_in_plain_characters() -> None:
    kind = "Pod\n\x1b[31m<script>" + "x" * 500
    problem = read_target({"kind": kind})
    assert isinstance(problem, TargetProblem)
    assert "\n" not in problem.message
    assert "\x1b" not in problem.message
    assert len(problem.message) < 200


def test_v1alpha1_services_with_the_router_by_env_and_roles_by_old_flags() -> None:
    resources = {"limits": {"gpu": "1"}}
    document = alpha(
        {
            "fe": {"componentType": "frontend", "envs": [{"name": "DYN_ROUTER_MODE", "value": "kv"}]},
            "dec": {
                "componentType": "worker",
                "replicas": 2,
                "resources": resources,
                "envFromSecret": "hf",
                "extraPodSpec": {"mainContainer": {"command": VLLM, "args": ["--model", "m/x", "--is-decode-worker"]}},
            },
            "pre": {
                "componentType": "worker",
                "replicas": 2,
                "resources": resources,
                "extraPodSpec": {"mainContainer": {"command": VLLM, "args": ["--model", "m/x", "--is-prefill-worker"]}},
            },
        }
    )
    target = target_of(document)
    assert target.router == (RouterMode.KV, Source.ENV)
    assert {part.name: (part.role, part.role_source) for part in target.workers} == {
        "dec": (Role.DECODE, Source.ARGS),
        "pre": (Role.PREFILL, Source.ARGS),
    }
    assert target.model == "m/x"
    assert [part.engine.engine for part in target.workers] == [Engine.VLLM, Engine.VLLM]
    assert [declared(part).says for part in target.workers] == [Declares.UNKNOWN, Declares.UNKNOWN]
    assert [part.gpus for part in target.workers] == [2, 2]


def test_main_is_found_by_its_name_behind_a_sidecar() -> None:
    sidecar: Node = {"name": "proxy", "image": "proxy:1", "env": [{"name": "DYN_ROUTER_MODE", "value": "random"}]}
    document = beta(
        component("Frontend", "frontend", sidecar, main(env=[{"name": "DYN_ROUTER_MODE", "value": "kv"}])),
        component("Dec", "worker", main(command=VLLM, args=["--disaggregation-mode", "decode"])),
        component("Pre", "prefill", main(command=VLLM)),
    )
    target = target_of(document)
    assert target.router == (RouterMode.KV, Source.ENV)
    assert [(part.role, part.role_source) for part in target.workers] == [
        (Role.DECODE, Source.ARGS),
        (Role.PREFILL, Source.TYPE),
    ]


@pytest.mark.parametrize(
    ("args", "env", "kind", "role", "source"),
    [
        pytest.param(
            ["--disaggregation-mode", "decode"], "prefill", "prefill", Role.DECODE, Source.ARGS, id="a flag beats env"
        ),
        pytest.param([], "agg", "prefill", Role.AGGREGATED, Source.ENV, id="env beats the type"),
        pytest.param([], "pd", "worker", Role.AGGREGATED, Source.ENV, id="pd is another word for agg"),
        pytest.param([], None, "decode", Role.DECODE, Source.TYPE, id="the type when nothing else is said"),
        pytest.param([], None, "worker", Role.AGGREGATED, Source.DEFAULT, id="aggregated when nothing is said at all"),
        pytest.param([], "sideways", "worker", Role.UNKNOWN, Source.ENV, id="a word that no engine knows"),
        pytest.param([], "$(MODE)", "prefill", Role.UNKNOWN, Source.ENV, id="an expansion is not guessed"),
    ],
)
def test_a_role_comes_from_flag_then_env_then_type(
    args: list[str], env: str | None, kind: str, role: Role, source: Source
) -> None:
    entries = [] if env is None else [{"name": "DYN_VLLM_DISAGGREGATION_MODE", "value": env}]
    part = only(beta(component("w", kind, main(command=VLLM, args=args, env=entries))), "w")
    assert (part.role, part.role_source) == (role, source)


def test_the_router_in_an_args_list_of_an_old_deployment_with_empty_names() -> None:
    worker = {
        "componentType": "worker",
        "replicas": 2,
        "multinode": {"nodeCount": 2},
        "resources": {"limits": {"gpu": "4"}},
        "extraPodSpec": {
            "containers": None,
            "mainContainer": {
                "name": "",
                "command": ["python3"],
                "args": [
                    "-m",
                    "dynamo.trtllm",
                    "--model-path",
                    "m",
                    "--kv-block-size",
                    "64",
                    "--publish-events-and-metrics",
                ],
            },
        },
    }
    frontend = {
        "componentType": "frontend",
        "extraPodSpec": {
            "containers": None,
            "mainContainer": {
                "name": "",
                "command": ["python3"],
                "args": ["-m", "dynamo.frontend", "--router-mode", "kv", "--router-reset-states"],
            },
        },
    }
    document = alpha({"Frontend": frontend, "prefill": worker, "dec": {**worker, "subComponentType": "decode"}})
    target = target_of(document)
    assert target.router == (RouterMode.KV, Source.ARGS)
    decode = only(document, "dec")
    assert decode.role is Role.DECODE
    assert decode.gpus == 16
    assert declared(decode).says is Declares.ON
    assert decode.engine.block_tokens == 64


def test_the_oldest_style_has_its_frontend_by_module() -> None:
    def service(module: str, replicas: int) -> Node:
        return {
            "componentType": "main",
            "replicas": replicas,
            "resources": {"requests": {"gpu": "1"}},
            "extraPodSpec": {"mainContainer": {"args": ["python3", "-m", module]}},
        }

    document = alpha(
        {
            "Frontend": service("dynamo.frontend", 1),
            "Decode": service("dynamo.trtllm", 2),
            "Prefill": service("dynamo.trtllm", 1),
        }
    )
    target = target_of(document)
    assert [part.name for part in target.frontends] == ["Frontend"]
    assert [part.engine.engine for part in target.workers] == [Engine.TRTLLM, Engine.TRTLLM]
    assert [declared(part).says for part in target.workers] == [Declares.OFF, Declares.OFF]
    assert [part.gpus for part in target.workers] == [2, 1]


FRONTEND = ["-m", "dynamo.frontend"]


@pytest.mark.parametrize(
    ("args", "env", "mode", "source"),
    [
        pytest.param(
            ["--router-mode", "round-robin"], "kv", RouterMode.ROUND_ROBIN, Source.ARGS, id="a flag beats env"
        ),
        pytest.param([], "kv", RouterMode.KV, Source.ENV, id="env counts without a flag"),
        pytest.param(
            ["--router-mode", "kv", "--no-router-kv-events"],
            None,
            RouterMode.KV_APPROXIMATE,
            Source.ARGS,
            id="kv without events is approximate",
        ),
        pytest.param(
            ["--router-mode", "kv", "--no-kv-events"],
            None,
            RouterMode.KV_APPROXIMATE,
            Source.ARGS,
            id="the old flag still counts",
        ),
        pytest.param(
            ["--router-mode", "kv", "--router-mode", "random"],
            None,
            RouterMode.RANDOM,
            Source.ARGS,
            id="the last flag wins",
        ),
        pytest.param(
            ["--router-mode", "kv", "--no-router-kv-events", "--router-kv-events"],
            None,
            RouterMode.KV,
            Source.ARGS,
            id="of a flag and its opposite too",
        ),
        pytest.param([], None, RouterMode.ROUND_ROBIN, Source.DEFAULT, id="round-robin is the default"),
        pytest.param(["--router-mode", "teleport"], None, RouterMode.UNKNOWN, Source.ARGS, id="an unknown mode"),
        pytest.param(
            ["--router-mode", "mixed"], None, RouterMode.UNKNOWN, Source.ARGS, id="a word of ours is none of theirs"
        ),
    ],
)
def test_the_router_mode_and_where_it_stands(
    args: list[str], env: str | None, mode: RouterMode, source: Source
) -> None:
    entries = [] if env is None else [{"name": "DYN_ROUTER_MODE", "value": env}]
    document = beta(component("f", "frontend", main(command=["python3"], args=[*FRONTEND, *args], env=entries)))
    assert target_of(document).router == (mode, source)


def test_a_worker_that_advertises_a_mode_beats_the_frontend() -> None:
    env = [{"name": "DYN_ROUTER_MODE", "value": "random"}]
    document = beta(component("f", "frontend"), component("w", "worker", main(command=VLLM, env=env)))
    assert target_of(document).router == (RouterMode.RANDOM, Source.WORKER)


def test_the_graphs_env_reaches_workers_and_the_components_own_entry_hides_it() -> None:
    own = [{"name": "DYN_VLLM_DISAGGREGATION_MODE", "value": "decode"}]
    document = beta(
        component("a", "worker", main(command=VLLM)),
        component("b", "worker", main(command=VLLM, env=own)),
        env=[{"name": "DYN_VLLM_DISAGGREGATION_MODE", "value": "prefill"}],
    )
    assert [part.role for part in target_of(document).workers] == [Role.PREFILL, Role.DECODE]


@pytest.mark.parametrize(
    ("document", "owner"),
    [
        pytest.param(
            alpha({"w": {"scalingAdapter": {}}}), ReplicasOwner.MANIFEST, id="v1alpha1: an empty adapter is off"
        ),
        pytest.param(
            beta(component("w", scalingAdapter={})), ReplicasOwner.SCALING_ADAPTER, id="v1beta1: an empty adapter is on"
        ),
        pytest.param(
            alpha({"w": {"scalingAdapter": {"enabled": True}}}), ReplicasOwner.SCALING_ADAPTER, id="v1alpha1: enabled"
        ),
        pytest.param(
            beta(component("w"), component("p", "planner")), ReplicasOwner.PLANNER, id="a planner scales the rest"
        ),
        pytest.param(beta(component("w")), ReplicasOwner.MANIFEST, id="nobody else"),
    ],
)
def test_who_owns_the_replicas(document: Node, owner: ReplicasOwner) -> None:
    assert only(document, "w").replicas_owner is owner


def test_a_launcher_script_leaves_model_and_role_unknown() -> None:
    env = [{"name": "SERVER_ARGS_FILE", "value": "/etc/args"}]
    launcher = main(command=["/workload/launcher/launch-workload.sh"], env=env)
    target = target_of(beta(component("w", "worker", launcher)))
    (worker,) = target.workers
    assert (worker.determinable, worker.role, worker.engine.engine) == (False, Role.UNKNOWN, Engine.UNKNOWN)
    assert target.model == ""


def fabric_pod(
    resources: Node | None = None, annotations: Node | None = None, claims: list[Node] | None = None
) -> Node:
    document = component("w", "worker", main(command=VLLM, resources={"limits": resources or {}}))
    template = document["podTemplate"]
    assert isinstance(template, dict)
    template["metadata"] = {"annotations": annotations or {}}
    template["spec"]["resourceClaims"] = claims or []
    return beta(document)


@pytest.mark.parametrize(
    ("document", "fabric"),
    [
        pytest.param(fabric_pod({"rdma/ib": "8"}), FabricClass.IB, id="InfiniBand by device plugin"),
        pytest.param(
            alpha({"w": {"resources": {"limits": {"custom": {"rdma/ib": "8"}}}}}),
            FabricClass.IB,
            id="v1alpha1's custom",
        ),
        pytest.param(fabric_pod({"vpc.amazonaws.com/efa": "4"}), FabricClass.EFA, id="EFA"),
        pytest.param(fabric_pod({"networking.gke.io.networks/rdma-0": "1"}), FabricClass.ROCE, id="GKE networks"),
        pytest.param(
            fabric_pod(annotations={"networking.gke.io/interfaces": '[{"network":"rdma-0"}]'}),
            FabricClass.ROCE,
            id="GKE interfaces",
        ),
        pytest.param(
            fabric_pod(claims=[{"name": "net", "resourceClaimTemplateName": "all-mrdma"}]),
            FabricClass.ROCE,
            id="a claim",
        ),
        pytest.param(fabric_pod({"nvidia.com/gpu": "1"}), FabricClass.NONE, id="none of them"),
    ],
)
def test_the_fabric_that_a_worker_asks_for(document: Node, fabric: FabricClass) -> None:
    assert only(document, "w").fabric is fabric


def test_probe_pods_learn_which_resources_to_ask_for() -> None:
    part = only(fabric_pod({"rdma/ib": "8", "nvidia.com/gpu": "1"}), "w")
    assert [(held.name, held.quantity) for held in part.fabric_resources] == [("rdma/ib", "8")]


def test_engine_settings_are_read_from_the_flags_of_each_engine() -> None:
    transfer = '{"kv_connector":"NixlConnector","kv_connector_extra_config":{"backends":["LIBFABRIC"]}}'
    args = ["--model", "m", "--block-size", "32", "-tp", "2", "--max-model-len=8192", "--kv-transfer-config", transfer]
    settings = only(beta(component("w", "worker", main(command=VLLM, args=args))), "w").engine
    assert (settings.model, settings.block_tokens, settings.tensor_parallel) == ("m", 32, 2)
    assert (settings.max_model_tokens, settings.kv_backends) == (8192, ("LIBFABRIC",))
    sglang = ["-m", "dynamo.sglang", "--model-path", "m", "--page-size", "16", "--tp", "4"]
    settings = only(beta(component("w", "worker", main(command=["python3"], args=sglang))), "w").engine
    assert (settings.engine, settings.block_tokens, settings.tensor_parallel) == (Engine.SGLANG, 16, 4)


@pytest.mark.parametrize(
    ("image", "override", "runtime"),
    [
        pytest.param("r.io/vllm-runtime:1.6.1", "", (1, 6, 1), id="a tag"),
        pytest.param("r.io:5000/vllm-runtime:v1.5.0-cuda13", "", (1, 5, 0), id="a tag with a suffix behind a port"),
        pytest.param("vllm-runtime:1.6.1@sha256:abc", "", (1, 6, 1), id="a tag with a digest"),
        pytest.param("vllm-runtime:my-tag", "", None, id="a tag that is no version"),
        pytest.param("vllm-runtime:my-tag", "1.6.1", (1, 6, 1), id="the override says it"),
        pytest.param("vllm-runtime:1.6.1", "later", None, id="an override that can't be read counts"),
        pytest.param("vllm-runtime:20250101.1", "", None, id="a date is no version"),
    ],
)
def test_the_dynamo_version_that_runs(image: str, override: str, runtime: tuple[int, int, int] | None) -> None:
    document = beta(component("w", "worker", main(image=image), runtimeVersionOverride=override))
    assert only(document, "w").runtime == runtime


@pytest.mark.parametrize(
    ("status", "annotations", "provider"),
    [
        pytest.param({"w": {"componentKind": "Deployment"}}, {}, Provider.DEPLOYMENT, id="seen as Deployment"),
        pytest.param(
            {"w": {"componentKind": "PodClique"}, "f": {"componentKind": "Deployment"}},
            {"nvidia.com/enable-grove": "false"},
            Provider.IN_PLACE,
            id="what is seen beats what was asked",
        ),
        pytest.param({}, {"nvidia.com/enable-grove": "false"}, Provider.DEPLOYMENT, id="Grove refused"),
        pytest.param({}, {"nvidia.com/workload-provider": "grove"}, Provider.IN_PLACE, id="Grove chosen"),
        pytest.param({}, {"nvidia.com/workload-provider": "component"}, Provider.DEPLOYMENT, id="Deployments chosen"),
        pytest.param({}, {}, Provider.UNKNOWN, id="nothing said"),
    ],
)
def test_what_runs_the_pods(status: Node, annotations: Node, provider: Provider) -> None:
    document = beta(component("w"))
    document["status"] = {"components": status}
    document["metadata"] = {"name": "x", "annotations": annotations}
    assert target_of(document).provider is provider


@pytest.mark.parametrize(
    ("metadata", "gitops"),
    [
        pytest.param({"labels": {"argocd.argoproj.io/instance": "x"}}, GitOps.ARGO_CD, id="Argo CD by label"),
        pytest.param({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}, GitOps.ARGO_CD, id="or by annotation"),
        pytest.param({"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}, GitOps.FLUX, id="Flux by label"),
        pytest.param({"managedFields": [{"manager": "kustomize-controller"}]}, GitOps.FLUX, id="Flux by its manager"),
        pytest.param({}, GitOps.NONE, id="nobody"),
    ],
)
def test_who_delivers_the_manifest(metadata: Node, gitops: GitOps) -> None:
    document = beta(component("w"))
    document["metadata"] = {"name": "x", **metadata}
    assert target_of(document).gitops is gitops


def test_the_sample_reads_as_what_it_says() -> None:
    target = target_of(sample())
    assert target.model == "Qwen/Qwen3-0.6B"
    assert target.provider is Provider.DEPLOYMENT
    assert [part.runtime for part in target.components] == [(1, 6, 1)] * 3
    assert [part.migration_limit for part in target.frontends] == [3]
    assert [part.engine.kv_transfer for part in target.workers] == [True, True]
    assert [declared(part).says for part in target.workers] == [Declares.ON, Declares.ON]
    assert TRANSFER in (target.workers[0].container.args if target.workers[0].container else ())
