"""The closed sets and fixed names in which kvgate reads a DynamoGraphDeployment."""

from __future__ import annotations

from enum import StrEnum

from kvgate.api.words import Capability

GROUP = "nvidia.com"
KIND = "DynamoGraphDeployment"
V1BETA1 = f"{GROUP}/v1beta1"
V1ALPHA1 = f"{GROUP}/v1alpha1"
MAIN = "main"

ROUTER_ENV = "DYN_ROUTER_MODE"
ROUTER_FLAG = "--router-mode"
SPLIT_ENV = "DYN_VLLM_DISAGGREGATION_MODE"
ROLE_FLAG = "--disaggregation-mode"
MIGRATION_ENV = "DYN_MIGRATION_LIMIT"
MIGRATION_FLAG = "--migration-limit"

GATED_ENV = {Capability.ROUTING: ROUTER_ENV, Capability.DISAGGREGATION: SPLIT_ENV}
FIELD_MANAGER = {Capability.ROUTING: "kvgate-routing", Capability.DISAGGREGATION: "kvgate-split"}


class Engine(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    MOCKER = "mocker"
    UNKNOWN = "unknown"


class Role(StrEnum):
    FRONTEND = "frontend"
    AGGREGATED = "agg"
    PREFILL = "prefill"
    DECODE = "decode"
    ENCODE = "encode"
    OTHER = "other"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Where a setting was found; a worker's own advertisement beats the frontend's."""

    ARGS = "args"
    ENV = "env"
    TYPE = "type"
    WORKER = "worker"
    DEFAULT = "default"


class RouterMode(StrEnum):
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"
    POWER_OF_TWO = "power-of-two"
    KV = "kv"
    KV_APPROXIMATE = "kv-approximate"
    DIRECT = "direct"
    LEAST_LOADED = "least-loaded"
    DEVICE_AWARE = "device-aware-weighted"
    MIXED = "mixed"
    UNKNOWN = "unknown"


class FabricClass(StrEnum):
    IB = "ib"
    EFA = "efa"
    ROCE = "roce"
    NONE = "none"


class Provider(StrEnum):
    """What runs the pods: Deployments surge, the others roll in place."""

    DEPLOYMENT = "component"
    IN_PLACE = "grove"
    UNKNOWN = "unknown"


class ReplicasOwner(StrEnum):
    MANIFEST = "manifest"
    SCALING_ADAPTER = "scalingAdapter"
    PLANNER = "planner"


class GitOps(StrEnum):
    ARGO_CD = "Argo CD"
    FLUX = "Flux"
    NONE = "none"


class SwitchState(StrEnum):
    ON = "on"
    OFF = "off"
    MIXED = "mixed"
    UNKNOWN = "unknown"
