"""The status of an InferencePool: output, and the little that is read back as memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvgate.api.wire import Condition, ListMap, Stamp, Text, Wire
from kvgate.api.words import ApprovalState, Capability, Outcome, SweepExtent

RunID = Annotated[str, Field(alias="runID", max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""What a run is called: it stands in labels and in names of what is made for it."""


class ApprovalStatus(Wire):
    """Where the approval of one capability stands."""

    state: ApprovalState = ApprovalState.MISSING
    name: str = ""
    approver: str = ""


class CapabilityStatus(Wire):
    """One gated capability: its verdict, its plan, its approval, and whether it is on."""

    name: Capability
    outcome: Outcome = Outcome.UNKNOWN
    plan_hash: str = ""
    """What an approval must name; empty until every finding is Pass or Inconclusive."""
    proposed_at: Stamp | None = None
    epoch: int = 0
    """Raised by each rollback of the split or of storage, so that reopening needs a new approval."""
    enabled: bool = False
    held_by: str = ""
    """Why it is not enabled, in one word."""
    inconclusive: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Reasons of Inconclusive findings: what an approval must accept by name."""
    approval: ApprovalStatus = Field(default_factory=ApprovalStatus)


class PathRate(Wire):
    """A path and its throughput."""

    source: Annotated[str, Field(alias="from")]
    destination: Annotated[str, Field(alias="to")]
    bytes_per_second: int


class LayerStatus(Wire):
    """What one layer of the fabric was measured to carry."""

    tool: str
    paths: int
    measured: int
    worst: PathRate | None = None
    judged_bytes_per_second: int | None = None
    median_bytes_per_second: int | None = None


class StratumStatus(Wire):
    """What the paths of one topological class carry, such as `same rack` or `other zone`."""

    name: str
    paths: int
    measured: int
    judged_bytes_per_second: int | None = None
    worst: PathRate | None = None


class SuspectStatus(Wire):
    """What is at fault for dead or slow paths by the tests that were made, and which tests say so."""

    name: str
    settled: bool
    """Whether tests with other partners leave nothing else to blame."""
    paths: int
    """Paths that it explains."""
    tests: Text = ""


class SharedLinkStatus(Wire):
    """A link on which paths slow each other down: what they carry at once, and would alone."""

    name: str
    paths: int
    together_bytes_per_second: int
    alone_bytes_per_second: int


class SampleStatus(Wire):
    """What a sample of too many paths leaves out."""

    paths_in_use: int
    covered: int
    """Paths that the evidence speaks of."""
    never_covered: int
    """Paths more than all sweeps can cover before the evidence of the first expires."""


class LatencyStatus(Wire):
    """Medians over the paths that tell, and the worst of them under load."""

    round_trip_microseconds: int | None = None
    """Of small packets, idle."""
    loaded_round_trip_microseconds: int | None = None
    """While the path was tested, as the sender's kernel saw it."""
    worst_loaded_round_trip_microseconds: int | None = None
    set_up_milliseconds: int | None = None
    """From the start of the KV transport to its first measured transfer."""


class FabricStatus(Wire):
    """The evidence that the verdict rests on."""

    link: LayerStatus | None = None
    endpoint: LayerStatus | None = None
    bound_by: str = ""
    latency: LatencyStatus | None = None
    """None where no tool told."""
    measured_at: Stamp | None = None
    expires_at: Stamp | None = None
    report: str = ""
    sample: SampleStatus | None = None
    """None where every path in use is measured."""
    strata: Annotated[tuple[StratumStatus, ...], Field(max_length=32)] = ()
    """By where the ends of a path stand to each other; empty where no label says so."""
    suspects: Annotated[tuple[SuspectStatus, ...], Field(max_length=10)] = ()
    """The smallest explanation of what is dead or slow."""
    shared_links: Annotated[tuple[SharedLinkStatus, ...], Field(max_length=10)] = ()
    """Oversubscription, as far as paths were measured at once."""

    @property
    def layers(self) -> tuple[tuple[str, LayerStatus], ...]:
        """Those that have evidence, each with the name of its field."""
        both = (("link", self.link), ("endpoint", self.endpoint))
        return tuple((name, layer) for name, layer in both if layer is not None)


class KVCacheStatus(Wire):
    """How large the KV cache is, and how that is known."""

    bytes_per_token: int
    block_tokens: int
    source: str
    derivation: Text = ""


class Estimate(Wire):
    """What the split would add to the time to first token, at one prompt size."""

    prompt_tokens: int
    kv_bytes: int
    added_ttft_milliseconds: int
    queue_milliseconds: int | None = None
    budget_milliseconds: int
    link_milliseconds: int | None = None
    """The transfer alone at what the judged link carries."""
    endpoint_milliseconds: int | None = None
    """The transfer alone at what the judged KV transport carries."""
    recompute_milliseconds: int | None = None
    """What a worker takes to compute the prompt anew, where criteria.kvStorage says how fast it is."""
    break_even_bytes_per_second: int | None = None
    """The throughput below which computing the prompt anew is faster than moving its KV cache."""
    bound_by: str = ""
    outcome: Outcome = Outcome.UNKNOWN


class CanariesStatus(Wire):
    """What canaries told of workers that traffic tells nothing of: each a new prompt, pinned to one worker, sent twice.

    The times are medians over the workers that answered; what lies between them is what a cached prefix saves.
    """

    answered: Annotated[int, Field(ge=0)]
    flowing: Annotated[int, Field(ge=0)]
    """Workers that answered, and those of them whose events were seen to come."""
    repeat_cached_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Prompt tokens of the repeat that the engine had cached."""
    first_ttft_milliseconds: Annotated[int | None, Field(alias="firstTTFTMilliseconds", ge=0)] = None
    repeat_ttft_milliseconds: Annotated[int | None, Field(alias="repeatTTFTMilliseconds", ge=0)] = None


class EventsStatus(Wire):
    """Whether KV events arrive: who should publish, who does, and whether the router applies what it hears."""

    expected_workers: Annotated[int, Field(ge=0)] | None = None
    publishing_workers: Annotated[int, Field(ge=0)] | None = None
    applied: bool | None = None
    source: str = ""
    """Where this was read: worker metadata, args, router gauges."""
    canaries: CanariesStatus | None = None
    """None while none was answered since kvgate started."""
    probe: str = ""
    """What the event probe heard at the workers' endpoints: how many are in which state, and what is missing."""


class RoutingStatus(Wire):
    """What the routing A/B found, and the observed load."""

    observed: str = ""
    improvement_percent: str | None = None
    """Reduction of the mean time to first token, KV against round-robin; a decimal string, as are its bounds."""
    low_percent: str | None = None
    high_percent: str | None = None
    cached_token_ratio: str | None = None
    """Cached prompt tokens over all prompt tokens, as the workers report them; a decimal string from 0 to 1."""
    benchmark: str = ""
    """The BenchmarkReport that this rests on."""
    tokens_per_joule: str | None = None
    """Tokens served per joule of the workers' GPUs with KV routing, for information; a decimal string."""
    tokens_per_joule_round_robin: str | None = None
    """With round-robin."""
    events: EventsStatus | None = None
    observed_requests_per_second: str = ""
    """Read from Prometheus where one is configured; beside peakRequestsPerSecond, for information."""


class BaselineEntry(Wire):
    """A gated field as it was before the first write."""

    component: str
    env: str
    present: bool
    value: str = ""
    owner: str = ""


class TargetStatus(Wire):
    """The deployment as last read."""

    uid: str = ""
    router_mode: str = ""
    split: str = ""
    baseline: Annotated[tuple[BaselineEntry, ...], Field(max_length=64)] = ()


class Operation(Wire):
    """A fence: written, with a resourceVersion precondition, before any foreign write."""

    id: str
    capability: Capability
    plan_hash: str = ""
    step: str
    reason: str = ""
    """Why something is switched back, as the history will have it."""
    started_at: Stamp


class SweepJob(Wire):
    """A probe Job that kvgate made; only its pods' logs are evidence."""

    node: str
    name: str
    uid: str = ""
    companion: bool = False
    """Whether its pod is the second on the node, to which the first sends over the path that does not leave it."""


class SweepStatus(Wire):
    """The sweep that is under way."""

    run_id: RunID
    started_at: Stamp
    reason: str
    extent: SweepExtent = SweepExtent.ALL
    """What is measured: all paths, those that are due, or those of the sweep before."""
    number: Annotated[int, Field(ge=0)] = 0
    """How many sweeps of this pool had begun before: by it samples take turns."""
    schedule_digest: str = ""
    """SHA-256 of the schedule that the walkers were given."""
    jobs: Annotated[tuple[SweepJob, ...], Field(max_length=2000)] = ()


class EventsProbeRun(Wire):
    """The event probe that is under way."""

    run_id: RunID
    started_at: Stamp
    job_uid: Annotated[str, Field(alias="jobUID")] = ""


class BenchmarkRun(Wire):
    """The routing A/B that is under way: what it runs on, and what of it must not change meanwhile."""

    run_id: RunID
    started_at: Stamp
    ran_on: str
    on_live: bool = False
    generation: int = 0
    cards: str = ""
    """Digest of what the workers published of themselves."""
    target_uid: Annotated[str, Field(alias="targetUID")] = ""
    projection: str = ""
    """Digest of what approvals bind of the pool's target."""
    split: str = ""
    workload: str = ""
    """Digest of what is sent: the trace, or the prompt sizes of the built-in workload."""
    job_uid: Annotated[str, Field(alias="jobUID")] = ""
    """Only this Job's log is evidence."""


AuditWords = Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=32)]


class HistoryEntry(Wire):
    """One thing that kvgate did, and what it rested on."""

    time: Stamp
    action: str
    capability: Capability
    reason: str
    plan_hash: str = ""
    actor: str = ""
    """Who stands behind it: kvgate, with the approver of the plan, or the hand that took the field."""
    inputs: AuditWords = ()
    """What went in: a name, and a digest or the object that holds it."""
    findings: AuditWords = ()
    """Criterion, outcome and reason of each finding; those that do not pass first."""
    patch: AuditWords = ()
    """What was written: component/env=value."""


class AgreedAnswer(Wire):
    """A prompt of which three runs before the switch gave one answer: its seed, and the answer's digest."""

    seed: Annotated[int, Field(ge=0)]
    digest: Annotated[str, Field(max_length=32)]


class PromptBefore(Wire):
    """What one prompt size gave before the switch."""

    prompt_tokens: int
    ttft_microseconds: Annotated[tuple[int, ...], Field(max_length=256)] = ()
    """Times to first token of prompts that no cache held, without the first ones of each worker."""
    agreed: Annotated[tuple[AgreedAnswer, ...], Field(max_length=64)] = ()
    """What the answers after the switch are compared with."""


class LinkPassed(Wire):
    """A link of the chain after a patch, and when it was passed."""

    link: str
    time: Stamp


class LinkFailed(Wire):
    """The link that failed, for which reason, and what was seen."""

    link: str
    reason: str
    message: Text = ""
    time: Stamp


class Calibration(Wire):
    """The measured rise of the median TTFT at one prompt size beside the estimate of it, in milliseconds."""

    prompt_tokens: int
    estimated_milliseconds: int | None = None
    observed_milliseconds: int
    low_milliseconds: int
    high_milliseconds: int
    observed_to_estimated: str = ""
    """A decimal string; empty without an estimate."""


class Verification(Wire):
    """What was measured before a capability was switched on, and how far its verification has come since."""

    capability: Capability
    plan_hash: str = ""
    before_at: Stamp | None = None
    """When the measurements before the switch were complete."""
    before: Annotated[tuple[PromptBefore, ...], Field(max_length=16)] = ()
    started_at: Stamp | None = None
    """When the deployment was first seen to hold the enabled values."""
    passed: Annotated[tuple[LinkPassed, ...], Field(max_length=16)] = ()
    verified_at: Stamp | None = None
    inconclusive_since: Stamp | None = None
    """When the chain first came to its end with links that could not say: prompts are put again, ever less often."""
    failed: LinkFailed | None = None
    calibration: Annotated[tuple[Calibration, ...], Field(max_length=16)] = ()


class MetricsBefore(Wire):
    """What the frontends' metrics told when a capability was about to be switched on."""

    capability: Capability
    until: Stamp
    seconds: Annotated[int, Field(ge=0)]
    """The length of the time that ended then."""
    requests: Annotated[int, Field(ge=0)]
    """Those that failed among them, without what the client spoilt or gave up."""
    failed: Annotated[int, Field(ge=0)]
    mean_ttft_milliseconds: int | None = None


class MonitoringStatus(Wire):
    """What is kept of the frontends' metrics: numbers before each switch, and a snapshot that is taken anew when the
    verdict on them changes, or after an hour."""

    before: Annotated[tuple[MetricsBefore, ...], Field(max_length=3), ListMap(("capability",))] = ()
    unseen_since: Stamp | None = None
    """Since when Prometheus told nothing."""
    judged_at: Stamp | None = None
    """When the snapshot was taken; the rest is of it."""
    reason: str = ""
    message: Text = ""
    requests: Annotated[int, Field(ge=0)] | None = None
    error_percent: str = ""
    """Requests that failed, of a hundred; a decimal string."""
    cached_token_ratio: str = ""
    """Cached prompt tokens over all prompt tokens; a decimal string from 0 to 1."""
    mean_ttft_milliseconds: int | None = None
    observed_to_estimated: str = ""
    """The rise of the mean TTFT since the split was switched on, over the estimate of it; a decimal string."""


class PoolStatus(Wire):
    """Everything that is known about a pool."""

    observed_generation: int = -1
    claimed: bool = False
    """This pool, and no older one, owns the target."""
    permitted: Annotated[tuple[Capability, ...], Field(max_length=3)] = ()
    """Capabilities whose criteria pass, whose approval is valid and whose window is open."""
    capabilities: Annotated[tuple[CapabilityStatus, ...], Field(max_length=3), ListMap(("name",))] = ()
    fabric: FabricStatus | None = None
    kv_cache: KVCacheStatus | None = None
    estimates: Annotated[tuple[Estimate, ...], Field(max_length=16)] = ()
    longest_prompt_within_budget: int | None = None
    """Tokens, in whole blocks."""
    routing: RoutingStatus | None = None
    target: TargetStatus | None = None
    last_handled_measure_at: str = ""
    last_sweep_at: Stamp | None = None
    """When the last sweep that ran was over: from here the operator's probe.minInterval counts."""
    sweep: SweepStatus | None = None
    sweeps: Annotated[int, Field(ge=0)] = 0
    """How many sweeps have begun."""
    events_probe: EventsProbeRun | None = None
    last_events_probe_at: Stamp | None = None
    """When the event probe was last begun: it is not begun again at once."""
    benchmark: BenchmarkRun | None = None
    last_benchmark_at: Stamp | None = None
    """When the last A/B was begun: one that proved nothing is not begun anew at once."""
    operation: Operation | None = None
    verifications: Annotated[tuple[Verification, ...], Field(max_length=3), ListMap(("capability",))] = ()
    """By capability: measurements before the switch, and the links that were passed after it."""
    monitoring: MonitoringStatus | None = None
    """What is kept of the frontends' metrics, where monitor.prometheusRef is set."""
    history: Annotated[tuple[HistoryEntry, ...], Field(max_length=10)] = ()
    """Newest first."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32), ListMap(("type",))] = ()
