"""The spec of an InferencePool: the request to gate one DynamoGraphDeployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from kvgate.api.quantities import (
    Derating,
    Duration,
    Percentage,
    PositiveDecimal,
    PositiveDuration,
    Skew,
    Throughput,
)
from kvgate.api.selectors import NodeSelector
from kvgate.api.wire import Cel, KeyRef, Name, NameRef, Wire, Word
from kvgate.api.words import (
    Approval,
    Capability,
    DeleteAction,
    EndpointTool,
    EventLossAction,
    KVDtype,
    KVEvents,
    LinkTool,
    LossAction,
    Memory,
    Mode,
    OnConflict,
    Phase,
    TransferOperation,
)

Attestations = Annotated[tuple[Word, ...], Field(max_length=32)]
STORAGE_ATTESTATIONS = ("DataResidency", "RetentionAndEviction", "TenantPlacement")
"""Where users' data may lie, for how long, and beside whose: asked for unless the pool names others, or none."""


class Enforcement(Wire):
    """How kvgate shares the deployment with other writers."""

    on_conflict: OnConflict = OnConflict.HOLD
    """What to do when another manager's manifest names the gated field."""
    adopt: bool = False
    """Whether to take over a capability that was already on."""


class FromWorkers(Wire):
    """Read the config.json and block size that the running worker itself publishes."""


class ConfigFrom(Wire):
    """Read the model's config.json, and optionally its hf_quant_config.json, from ConfigMaps."""

    config_map_key_ref: KeyRef
    quant_config_map_key_ref: KeyRef | None = None


class TensorParallel(Wire):
    """Ranks per engine."""

    prefill: Annotated[int, Field(ge=1, le=1024)] = 1
    """Ranks of a prefill engine."""
    decode: Annotated[int, Field(ge=1, le=1024)] = 1
    """Ranks of a decode engine."""


class KVCache(Wire):
    """Where the KV bytes per token come from; no source means fromWorkers."""

    from_workers: FromWorkers | None = None
    bytes_per_token: Annotated[int, Field(ge=1, le=1 << 40)] | None = None
    """KV-cache bytes per token over all layers, for models that kvgate does not know."""
    config_from: ConfigFrom | None = None
    dtype: KVDtype = KVDtype.AUTO
    """Element type of the KV cache; auto takes what the worker's args and the config say. FP8 weights do
    not imply FP8 KV."""
    block_tokens: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Tokens per KV block; default: what the worker says, else 16."""
    tensor_parallel: TensorParallel = Field(default_factory=TensorParallel)
    speculative_layers: Annotated[int, Field(ge=0, le=64)] = 0
    """MTP or draft layers that the engine moves too."""
    window_cap: bool = True
    """False for engines that move windowed layers whole."""


ONE_KV_SOURCE = Cel(
    "[has(self.fromWorkers), has(self.bytesPerToken), has(self.configFrom)].filter(x, x).size() <= 1",
    "name at most one source of KV bytes: fromWorkers, bytesPerToken or configFrom",
)


class Model(Wire):
    """The model that is served, and how large its KV cache is."""

    name: Name
    """As the deployment serves it, for example Qwen/Qwen3-0.6B."""
    kv_cache: Annotated[KVCache, ONE_KV_SOURCE] = Field(default_factory=KVCache)


class Prompt(Wire):
    """A prompt size and its share of the requests."""

    tokens: Annotated[int, Field(ge=1, le=1 << 24)]
    """Tokens of the prompt."""
    share: Percentage | None = None
    """Share of all requests."""


SHARES = (
    Cel("size(self) > 0", "name at least one prompt size, for example {tokens: 3000}"),
    Cel(
        "self.all(p, has(p.share)) || self.all(p, !has(p.share))",
        "give every prompt size a share, or none (then all requests count as the largest)",
    ),
    Cel(
        "size(self) == 0 || !self.all(p, has(p.share)) || "
        "(self.map(p, double(p.share.replace('%', ''))).sum() > 99.99 && "
        "self.map(p, double(p.share.replace('%', ''))).sum() < 100.01)",
        "the shares of the prompt sizes must add up to 100%",
    ),
)


class Workload(Wire):
    """The load that the gate judges for."""

    fixed_overhead: Duration = Duration("0s")
    """Time added to each request besides transfer and queueing."""
    prompts: Annotated[tuple[Prompt, ...], Field(max_length=16), *SHARES]
    """Prompt sizes to judge for; without shares, all requests count as the largest."""
    peak_requests_per_second: PositiveDecimal | None = None
    """Without it the load criterion is Unknown."""
    skew: Skew = Skew("1.25")
    """Load of the busiest worker over the mean."""


class LinkProbe(Wire):
    """What the wire carries."""

    tool: LinkTool = LinkTool.IPERF3
    """iperf3 over TCP, or ib_read_bw over RDMA."""
    streams: Annotated[int, Field(ge=1, le=128)] = 4
    """Parallel streams of one measurement."""
    duration: PositiveDuration = PositiveDuration("10s")
    """Length of one measurement."""
    single_stream: bool = False
    """Whether each path is measured with one stream too; the slower of both counts."""


class EndpointProbe(Wire):
    """What the KV transport achieves end to end."""

    tool: EndpointTool = EndpointTool.UCX_GET
    """The KV transport itself; none leaves this layer unmeasured."""
    operation: TransferOperation = TransferOperation.READ
    """What nixl does: read pulls from the decode side, write pushes from the prefill side. ucx_get always reads."""
    duration: PositiveDuration = PositiveDuration("5s")
    """Length of one measurement, in the same meeting of two nodes as the link's."""
    descriptor_bytes: Annotated[int, Field(ge=1, le=1 << 30)] | None = None
    """Size of one transfer: what a KV block is split into. Default: by the model's KV layout, else 32768."""
    memory: Memory = Memory.HOST
    """The memory that bytes leave and reach."""


class Probe(Wire):
    """How paths are measured."""

    link: LinkProbe = Field(default_factory=LinkProbe)
    endpoint: EndpointProbe = Field(default_factory=EndpointProbe)
    phases: Annotated[tuple[Phase, ...], Field(min_length=1, max_length=2)] = (
        Phase.ISOLATED,
        Phase.CONCURRENT,
    )
    """Isolated: each pair alone. Concurrent: disjoint pairs at once."""
    host_network: bool = False
    """Honoured only if the operator's settings allow it."""
    port: Annotated[int, Field(ge=1024, le=65527)] = 5201
    """The TCP port at which walkers meet; their tools use the eight after it."""
    load_derating: Derating = Derating("1.0")
    """Capacity under serving load over capacity idle."""


class PlaceLimit(Wire):
    """How many paths may load the way into or out of one place at a time."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The node label that says which rack, block or uplink a node is behind: one of topologyKeys."""
    max_paths: Annotated[int, Field(ge=1, le=1000)]
    """Paths measured at once over the edge of each such place."""


class WhileBusy(Wire):
    """What a sweep leaves to serving."""

    above: Percentage = Percentage("50%")
    """Serving is busy above this share of workload.peakRequestsPerSecond, as Prometheus observes it."""
    max_concurrent_paths: Annotated[int, Field(ge=1, le=1000)] = 1
    """Paths measured at once by a sweep that begins meanwhile."""


class Schedule(Wire):
    """When paths are measured, and how many."""

    interval: PositiveDuration = PositiveDuration("24h")
    """Time between sweeps."""
    jitter: Duration = Duration("10m")
    """Most that is added to each interval, a different part of it each time: so that pools do not sweep together."""
    max_paths: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Paths measured in one sweep; of more, a sample is taken by topologyKeys, another one each time."""
    topology_keys: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=317)], ...], Field(max_length=16)] = ()
    """Node labels that say where a node stands, the narrowest first; none means the well-known ones of NVLink domain,
    rack, block and zone."""
    max_concurrent_paths: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Paths measured at the same time. Without it: as many as share no node."""
    per_place: Annotated[tuple[PlaceLimit, ...], Field(max_length=8)] = ()
    """Limits for what shares an uplink."""
    while_busy: WhileBusy | None = None
    """Without it, serving's load is not looked at."""
    only_in_change_windows: bool = False
    """Whether scheduled sweeps wait for a change window; one that a person asks for does not, nor one that confirms."""
    sweep_timeout: PositiveDuration = PositiveDuration("3h")
    """After this a sweep is ended, with what it has."""


class Reports(Wire):
    """How long FabricReports are kept."""

    keep: Annotated[int, Field(ge=1, le=100)] = 2
    """Sweeps whose reports are kept."""
    retain_on_delete: bool = False
    """Whether reports outlive the pool."""


class Fabric(Wire):
    """Which nodes, measured how and how often."""

    prefill_nodes: NodeSelector | None = None
    """Default: the scheduling constraints of the target's own prefill worker."""
    decode_nodes: NodeSelector | None = None
    """Default: the scheduling constraints of the target's own decode worker."""
    probe: Probe = Field(default_factory=Probe)
    schedule: Schedule = Field(default_factory=Schedule)
    evidence_ttl: Annotated[PositiveDuration, Field(alias="evidenceTTL")] = PositiveDuration("48h")
    """Age at which evidence no longer counts."""
    reports: Reports = Field(default_factory=Reports)


class Trace(Wire):
    """A Mooncake-format JSONL trace, gzip allowed."""

    config_map_key_ref: KeyRef


class Benchmark(Wire):
    """The routing A/B: KV against round-robin."""

    target_ref: NameRef | None = None
    """A staging DynamoGraphDeployment; without it the A/B is Unknown."""
    allow_live: bool = False
    """Whether the target itself may be used, inside change windows only."""
    requests_per_second: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Offered load of each arm."""
    blocks: Annotated[int, Field(ge=2, le=64)] = 8
    """Pairs of runs, one per arm."""
    max_live_utilization: Percentage = Percentage("50%")
    """Load of the live deployment above which a live benchmark stops."""
    trace: Trace | None = None


class RoutingCriteria(Wire):
    """What KV-aware routing must prove."""

    min_ttft_improvement: Percentage = Percentage("20%")
    """Least reduction of the mean time to first token."""
    max_error_rate_increase: Percentage = Percentage("0.5%")
    """Percentage points."""
    kv_events: KVEvents = KVEvents.REQUIRED
    """Whether KV events must arrive, or routing may approximate."""
    benchmark: Benchmark = Field(default_factory=Benchmark)
    approval: Approval = Approval.NOT_REQUIRED
    """Whether a GateApproval is needed."""
    attestations: Attestations = ()
    """What an approval must vouch for, in free words."""


class DisaggregationCriteria(Wire):
    """What the prefill/decode split must prove."""

    min_throughput: Throughput | None = None
    """Least judged throughput of a path."""
    min_share_of_line_rate: Percentage | None = None
    """Least share of its interfaces' line rate that the judged path must carry."""
    min_share_of_median: Percentage | None = None
    """Least share of the median of all paths that the judged path must carry."""
    ttft_budget: PositiveDuration = PositiveDuration("200ms")
    """Most that the split may add to the time to first token."""
    slowest_percent_of_paths: Annotated[int, Field(ge=1, le=100)] = 10
    """The judged percentile: this share of the paths may be slower than the judged one."""
    max_utilization: Percentage = Percentage("70%")
    """Most that KV transfer may load a path at the peak."""
    min_coverage: Percentage = Percentage("100%")
    """Share of the planned paths that must have given a number."""
    approval: Approval = Approval.REQUIRED
    """Whether a GateApproval is needed."""
    attestations: Attestations = ()
    """What an approval must vouch for, in free words."""


class ReloadVersusRecompute(Wire):
    """Typed numbers for the storage break-even; declared, never measured: at most Inconclusive."""

    storage_throughput: Throughput
    """What the storage gives to one request."""
    prefill_tokens_per_second: Annotated[int, Field(ge=1, le=100_000_000)]
    """What a prefill worker recomputes."""


class KVStorageCriteria(Wire):
    """What external KV storage must prove."""

    approval: Approval = Approval.REQUIRED
    """Whether a GateApproval is needed."""
    attestations: Attestations = STORAGE_ATTESTATIONS
    """What an approval must vouch for, in free words; an empty list asks for nothing."""
    reload_versus_recompute: ReloadVersusRecompute | None = None


CriteriaBlock = RoutingCriteria | DisaggregationCriteria | KVStorageCriteria


class Criteria(Wire):
    """One block per gated capability; a capability without a block is not gated."""

    routing: RoutingCriteria | None = None
    disaggregation: DisaggregationCriteria | None = None
    kv_storage: Annotated[KVStorageCriteria | None, Field(alias="kvStorage")] = None

    def of(self, capability: Capability) -> CriteriaBlock | None:
        """The block of one capability; None where it is not gated."""
        return {
            Capability.ROUTING: self.routing,
            Capability.DISAGGREGATION: self.disaggregation,
            Capability.KV_STORAGE: self.kv_storage,
        }[capability]


class MetricsLost(Wire):
    """What to do when metrics stay away."""

    after: PositiveDuration = PositiveDuration("10m")
    """How long metrics may stay away."""
    action: LossAction = LossAction.HOLD
    """Hold leaves the switches; Revert turns them back."""


class Monitor(Wire):
    """How the deployment is watched once something is on."""

    interval: PositiveDuration = PositiveDuration("15s")
    """Time between two looks."""
    prometheus_ref: NameRef | None = None
    """An endpoint from the operator's settings, never a URL."""
    max_error_rate_increase: Percentage = Percentage("1%")
    """Percentage points above the baseline before enabling."""
    min_cache_hit_ratio: Percentage | None = None
    """Reported and alerted; closes nothing by itself."""
    model_not_ready_for: PositiveDuration = PositiveDuration("60s")
    """How long the model may be unready after a switch."""
    on_metrics_lost: MetricsLost = Field(default_factory=MetricsLost)


FIVE_CRON_FIELDS = Cel(
    "self.matches('^ *[0-9A-Za-z*,/#-]+( +[0-9A-Za-z*,/#-]+){4} *$')",
    'must be five cron fields, minute hour day month weekday: for example "0 2 * * 6"',
)
ZONE_NAME = Cel(
    "self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')",
    "must be an IANA time zone: for example Europe/Berlin or UTC",
)


class ChangeWindow(Wire):
    """A recurring span in which capabilities may be enabled and live benchmarks run; never needed for a rollback."""

    schedule: Annotated[str, Field(min_length=9, max_length=128), FIVE_CRON_FIELDS]
    """Five cron fields: minute, hour, day of month, month, day of week."""
    duration: PositiveDuration
    """How long the window stays open."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64), ZONE_NAME] = "UTC"
    """An IANA name."""


class OnDelete(Wire):
    """What happens to enabled capabilities when the pool is deleted."""

    routing: DeleteAction = DeleteAction.REVERT
    """Revert restores the value from before; Leave leaves it on."""
    disaggregation: DeleteAction = DeleteAction.LEAVE
    """Revert restores the value from before; Leave leaves it on."""


class Rollback(Wire):
    """What happens when evidence or approval goes away."""

    on_kv_events_lost: Annotated[EventLossAction, Field(alias="onKVEventsLost")] = EventLossAction.ROUND_ROBIN
    """RoundRobin turns KV routing off; Hold leaves it."""
    on_evidence_lost: LossAction = LossAction.HOLD
    """Hold leaves the split on and says so; Revert turns it off."""
    on_approval_lost: LossAction = LossAction.HOLD
    """Hold leaves the split on and says so; Revert turns it off."""
    on_delete: OnDelete = Field(default_factory=OnDelete)
    cooldown: Duration = Duration("1h")
    """Delays enabling and re-applying, never disabling."""


_NODES = "name nodes in fabric.prefillNodes and fabric.decodeNodes"
_REFER = "refer to that pool in gatewayPoolRef"
_OPAQUE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

FOREIGN_FIELDS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "selector": (_OPAQUE, _NODES),
    "targetPorts": ({"type": "array", "maxItems": 64, "items": _OPAQUE}, _REFER),
    "targetPortNumber": ({"type": "integer"}, _REFER),
    "extensionRef": (_OPAQUE, _REFER),
    "endpointPickerRef": (_OPAQUE, _REFER),
}
"""Fields of the Gateway API Inference Extension's InferencePool: declared so that a rule can refuse them by name."""


def _foreign(field: str, instead: str) -> Cel:
    text = f"{field} belongs to the InferencePool of inference.networking.k8s.io; this one is kvgate.dev: {instead}"
    return Cel(f"!has(self.{field})", text)


POOL_RULES = (  # rules that need a default stand here: the API server tries `default: {}` of a part before it fills it
    *(_foreign(field, instead) for field, (_, instead) in FOREIGN_FIELDS.items()),
    Cel("has(self.targetRef)", "targetRef is required: name a DynamoGraphDeployment in this namespace"),
    Cel("has(self.model)", "model is required: name the model that is served"),
    Cel("has(self.workload)", "workload is required: name at least one prompt size"),
    Cel(
        "duration(self.fabric.evidenceTTL) > duration(self.fabric.schedule.interval) + "
        "duration(self.fabric.schedule.jitter) + duration(self.fabric.schedule.sweepTimeout)",
        "fabric.evidenceTTL must be longer than fabric.schedule.interval + jitter + sweepTimeout, "
        "else evidence expires before it is renewed",
    ),
    Cel(
        "!has(self.targetRef) || !has(oldSelf.targetRef) || self.targetRef == oldSelf.targetRef",
        "targetRef is immutable: make a new pool for another deployment",
    ),
)


class PoolSpec(Wire):
    """The request to gate one DynamoGraphDeployment."""

    mode: Mode = Mode.OBSERVE
    """Observe measures and reports; Recommend also writes the patch out; Enforce patches."""
    suspend: bool = False
    """Stops measuring, judging and patching until it is false again."""
    target_ref: NameRef
    """A DynamoGraphDeployment in this namespace; immutable."""
    gateway_pool_ref: NameRef | None = None
    """The Gateway API Inference Extension's InferencePool that this one speaks for."""
    enforcement: Enforcement = Field(default_factory=Enforcement)
    model: Model
    workload: Workload
    fabric: Fabric = Field(default_factory=Fabric)
    criteria: Criteria = Field(default_factory=Criteria)
    monitor: Monitor = Field(default_factory=Monitor)
    change_windows: Annotated[tuple[ChangeWindow, ...], Field(max_length=16)] = ()
    """When capabilities may be enabled; none means always."""
    rollback: Rollback = Field(default_factory=Rollback)
