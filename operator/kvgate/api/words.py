"""The closed sets that specs, statuses and messages are written in."""

from __future__ import annotations

from enum import StrEnum


class Capability(StrEnum):
    """What kvgate gates; each is judged, approved and switched on its own."""

    ROUTING = "Routing"
    DISAGGREGATION = "Disaggregation"
    KV_STORAGE = "KVStorage"


class Outcome(StrEnum):
    """The result of looking at one criterion, best first."""

    PASS = "Pass"  # noqa: S105
    INCONCLUSIVE = "Inconclusive"
    UNKNOWN = "Unknown"
    ERROR = "Error"
    FAIL = "Fail"


class Mode(StrEnum):
    OBSERVE = "Observe"
    RECOMMEND = "Recommend"
    ENFORCE = "Enforce"


class OnConflict(StrEnum):
    HOLD = "Hold"
    TAKE_OVER = "TakeOver"


class Approval(StrEnum):
    REQUIRED = "Required"
    NOT_REQUIRED = "NotRequired"


class KVEvents(StrEnum):
    REQUIRED = "Required"
    IGNORED = "Ignored"


class LinkTool(StrEnum):
    IPERF3 = "iperf3"
    IB_READ_BW = "ib_read_bw"


class EndpointTool(StrEnum):
    UCX_GET = "ucx_get"
    NIXL = "nixl"
    NONE = "none"


class SweepExtent(StrEnum):
    """What a sweep measures: all paths in use, those whose evidence is missing, changed or old, or the last one's."""

    ALL = "All"
    DUE = "Due"
    AGAIN = "Again"


class TransferOperation(StrEnum):
    READ = "read"
    WRITE = "write"


class Memory(StrEnum):
    HOST = "host"
    GPU = "gpu"


class Phase(StrEnum):
    ISOLATED = "Isolated"
    CONCURRENT = "Concurrent"


class KVDtype(StrEnum):
    """Element type of the KV cache, as inference engines spell it."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FP8 = "fp8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    FP8_DS_MLA = "fp8_ds_mla"
    INT8 = "int8"
    NVFP4 = "nvfp4"


class LossAction(StrEnum):
    HOLD = "Hold"
    REVERT = "Revert"


class EventLossAction(StrEnum):
    ROUND_ROBIN = "RoundRobin"
    HOLD = "Hold"


class DeleteAction(StrEnum):
    REVERT = "Revert"
    LEAVE = "Leave"


class ApprovalState(StrEnum):
    MISSING = "Missing"
    VALID = "Valid"
    EXPIRED = "Expired"
    PLAN_CHANGED = "PlanChanged"
    ATTESTATIONS_MISSING = "AttestationsMissing"
    NOT_REQUIRED = "NotRequired"


class ConditionType(StrEnum):
    TARGET_RESOLVED = "TargetResolved"
    FABRIC_MEASURED = "FabricMeasured"
    KV_EVENTS_HEALTHY = "KVEventsHealthy"
    METRICS_HEALTHY = "MetricsHealthy"
    ROUTING_ACCEPTED = "RoutingAccepted"
    DISAGGREGATION_ACCEPTED = "DisaggregationAccepted"
    KV_STORAGE_ACCEPTED = "KVStorageAccepted"
    APPROVED = "Approved"
    ROUTING_ENABLED = "RoutingEnabled"
    DISAGGREGATION_ENABLED = "DisaggregationEnabled"
    KV_STORAGE_ENABLED = "KVStorageEnabled"
    DRIFTED = "Drifted"
    ROLLED_BACK = "RolledBack"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"
