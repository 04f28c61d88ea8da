"""One table for two judges: each rule of the API with good and bad objects, for the real API server and for us."""

from dataclasses import dataclass
from typing import Any

from tests.api.documents import (
    ABSENT,
    DIGEST,
    HASH,
    Document,
    approval,
    benchmark,
    benchmark_shard,
    full_pool,
    index,
    pool,
    shard,
)


@dataclass(frozen=True)
class Refused:
    """A document, the path that is complained about, and a part of the message."""

    sentence: str
    document: Document
    path: str
    says: str
    old: Document | None = None


@dataclass(frozen=True)
class Accepted:
    sentence: str
    document: Document
    old: Document | None = None


def _quantity(path: str, says: str, *bad: str, of: Any = pool) -> list[Refused]:
    return [Refused(f"{path} may not be {text!r}", of(**{path: text}), f"spec.{path}", says) for text in bad]


def _bounds(path: str, low: int, high: int) -> list[Refused]:
    return [
        Refused(f"{path} may not be {low - 1}", pool(**{path: low - 1}), f"spec.{path}", "greater than or equal to"),
        Refused(f"{path} may not be {high + 1}", pool(**{path: high + 1}), f"spec.{path}", "less than or equal to"),
    ]


def _foreign(field: str, value: Any, instead: str) -> Refused:
    says = f"{field} belongs to the InferencePool of inference.networking.k8s.io; this one is kvgate.dev: {instead}"
    return Refused(f"{field} of the other InferencePool is named", pool(**{field: value}), "spec", says)


def _shares(*shares: str | None) -> Document:
    prompts = [{"tokens": 1000 + n} | ({"share": share} if share else {}) for n, share in enumerate(shares)]
    return pool(**{"workload.prompts": prompts})


_D = "criteria.disaggregation"
_WINDOW = {"schedule": "0 2 * * 6", "duration": "4h"}
_TTL = "fabric.evidenceTTL must be longer than fabric.schedule.interval + jitter + sweepTimeout"
_ONE_SOURCE = "name at most one source of KV bytes"
_UNIT = "must be a positive number with its unit, one of GB/s, GiB/s, Gbit/s, MB/s, MiB/s, Mbit/s"
_DURATION = "must be a duration with units ms, s, m or h"
_SPAN = "must be a duration above zero with units ms, s, m or h"
_PERCENT = "must be a percentage from 0% to 100%"
_DECIMAL = "must be a decimal number above zero in quotes"
_CONFIG = {"configMapKeyRef": {"name": "c", "key": "config.json"}}
_MOVED = "targetRef is immutable"
_GAIE = {
    "selector": {"matchLabels": {"app": "x"}},
    "targetPorts": [{"number": 8000}],
    "endpointPickerRef": {"name": "e"},
}

REFUSED: tuple[Refused, ...] = (
    # what must be there
    Refused("a pool without targetRef says so", pool(targetRef=ABSENT), "spec", "targetRef is required"),
    Refused("a pool without model says so", pool(model=ABSENT), "spec", "model is required"),
    Refused("a pool without workload says so", pool(workload=ABSENT), "spec", "workload is required"),
    Refused("an empty spec says what is required", pool() | {"spec": {}}, "spec", "targetRef is required"),
    Refused(
        "a pool without spec is refused", {k: v for k, v in pool().items() if k != "spec"}, "spec", "Required value"
    ),
    Refused("a null counts as absent", pool(targetRef=None), "spec", "targetRef is required"),
    Refused("a target needs a name", pool(targetRef={}), "spec.targetRef.name", "Required value"),
    # the other InferencePool
    _foreign("targetPorts", [{"number": 8000}], "refer to that pool in gatewayPoolRef"),
    _foreign("targetPortNumber", 8000, "refer to that pool in gatewayPoolRef"),
    _foreign("extensionRef", {"name": "epp"}, "refer to that pool in gatewayPoolRef"),
    _foreign("endpointPickerRef", {"name": "epp"}, "refer to that pool in gatewayPoolRef"),
    _foreign("selector", {"matchLabels": {"a": "b"}}, "name nodes in fabric.prefillNodes and fabric.decodeNodes"),
    Refused(
        "a spec of the other InferencePool is told so although targetRef is missing",
        pool() | {"spec": _GAIE},
        "spec",
        "targetPorts belongs to the InferencePool of inference.networking.k8s.io",
    ),
    # names
    Refused("a target name holds no slash", pool(targetRef={"name": "a/b"}), "spec.targetRef.name", "should match"),
    Refused("a target name holds no capitals", pool(targetRef={"name": "Q"}), "spec.targetRef.name", "should match"),
    Refused("a target name is not empty", pool(targetRef={"name": ""}), "spec.targetRef.name", "should match"),
    Refused("a target name ends with its line", pool(targetRef={"name": "a\n"}), "spec.targetRef.name", "should match"),
    Refused(
        "a ConfigMap key holds no path",
        pool(**{"model.kvCache.configFrom": {"configMapKeyRef": {"name": "c", "key": "../x"}}}),
        "spec.model.kvCache.configFrom.configMapKeyRef.key",
        "should match",
    ),
    # one source of KV bytes
    Refused(
        "two sources of KV bytes are one too many",
        pool(**{"model.kvCache": {"bytesPerToken": 114688, "fromWorkers": {}}}),
        "spec.model.kvCache",
        _ONE_SOURCE,
    ),
    Refused(
        "three sources of KV bytes are two too many",
        pool(**{"model.kvCache": {"bytesPerToken": 114688, "fromWorkers": {}, "configFrom": _CONFIG}}),
        "spec.model.kvCache",
        _ONE_SOURCE,
    ),
    *_bounds("model.kvCache.bytesPerToken", 1, 1 << 40),
    *_bounds("model.kvCache.blockTokens", 1, 65536),
    *_bounds("model.kvCache.tensorParallel.prefill", 1, 1024),
    *_bounds("model.kvCache.speculativeLayers", 0, 64),
    # prompts and shares
    Refused(
        "prompts may not be empty",
        pool(**{"workload.prompts": []}),
        "spec.workload.prompts",
        "name at least one prompt",
    ),
    Refused("a workload has prompts", pool(workload={}), "spec.workload.prompts", "Required value"),
    Refused(
        "a prompt has more than 0 tokens",
        pool(**{"workload.prompts": [{"tokens": 0}]}),
        "spec.workload.prompts[0].tokens",
        "should be greater than or equal to 1",
    ),
    Refused(
        "a prompt has no negative number of tokens",
        pool(**{"workload.prompts": [{"tokens": 10}, {"tokens": -1}]}),
        "spec.workload.prompts[1].tokens",
        "should be greater than or equal to 1",
    ),
    Refused(
        "a text is not a number of tokens",
        pool(**{"workload.prompts": [{"tokens": "3000"}]}),
        "spec.workload.prompts[0].tokens",
        'must be of type integer: "string"',
    ),
    Refused(
        "half a token is not one",
        pool(**{"workload.prompts": [{"tokens": 0.5}]}),
        "spec.workload.prompts[0].tokens",
        'must be of type integer: "number"',
    ),
    Refused(
        "seventeen prompt sizes are too many",
        pool(**{"workload.prompts": [{"tokens": 1}] * 17}),
        "spec.workload.prompts",
        "must have at most 16 items",
    ),
    Refused("shares of 99% do not add up", _shares("49%", "50%"), "spec.workload.prompts", "must add up to 100%"),
    Refused("shares of 101% do not add up", _shares("51%", "50%"), "spec.workload.prompts", "must add up to 100%"),
    Refused("one share of 50% does not add up", _shares("50%"), "spec.workload.prompts", "must add up to 100%"),
    Refused(
        "all prompts have a share or none has",
        _shares("50%", None),
        "spec.workload.prompts",
        "give every prompt size a share, or none",
    ),
    # quantities
    *_quantity(
        f"{_D}.minThroughput", _UNIT, "10", "0GB/s", "-1GB/s", "NaN", "NaNGB/s", "10Gb/s", "10 GB/s", "", "1e3GB/s"
    ),
    *_quantity(f"{_D}.ttftBudget", _SPAN, "200", "0ms", "-1s", "NaN", "infs", "1d", "", "0h0m", "99999999h"),
    *_quantity(f"{_D}.maxUtilization", _PERCENT, "70", "0.7", "101%", "-1%", "NaN%", "100.1%"),
    *_quantity(f"{_D}.minCoverage", _PERCENT, "101%"),
    *_quantity("criteria.routing.minTTFTImprovement", _PERCENT, "20", "120%"),
    *_quantity("workload.fixedOverhead", _DURATION, "1", "-1s", ""),
    *_quantity("workload.peakRequestsPerSecond", _DECIMAL, "0", "0.0", "-4", "NaN", "4/s", "1e3", ""),
    *_quantity("workload.skew", "of at least 1", "0.99", "0", "NaN"),
    *_quantity("fabric.probe.loadDerating", "above 0 and at most 1", "0", "1.01", "2", "NaN"),
    *_quantity("fabric.probe.link.duration", _SPAN, "0s", "10"),
    *_quantity("monitor.interval", _SPAN, "0s", "15"),
    *_quantity("rollback.cooldown", _DURATION, "1", "soon"),
    *_quantity(
        "criteria.kvStorage.reloadVersusRecompute.storageThroughput",
        _UNIT,
        "2GB",
        of=full_pool,
    ),
    Refused(
        "a number is no throughput, for it has no unit",
        pool(**{f"{_D}.minThroughput": 10}),
        f"spec.{_D}.minThroughput",
        'must be of type string: "integer"',
    ),
    Refused(
        "forty digits are no throughput",
        pool(**{f"{_D}.minThroughput": "9" * 40 + "GB/s"}),
        f"spec.{_D}.minThroughput",
        "may not be more than 40",
    ),
    # numbers
    *_bounds(f"{_D}.slowestPercentOfPaths", 1, 100),
    *_bounds("fabric.probe.port", 1024, 65527),
    *_bounds("fabric.probe.link.streams", 1, 128),
    *_bounds("fabric.probe.endpoint.descriptorBytes", 1, 1 << 30),
    *_bounds("fabric.schedule.maxPaths", 1, 1_000_000),
    *_bounds("fabric.schedule.maxConcurrentPaths", 1, 1000),
    *_bounds("fabric.reports.keep", 1, 100),
    *_bounds("criteria.routing.benchmark.requestsPerSecond", 1, 10_000),
    *_bounds("criteria.routing.benchmark.blocks", 2, 64),
    Refused(
        "an integer beyond 64 bits is none",
        pool(**{"fabric.probe.port": 10**30}),
        "spec.fabric.probe.port",
        'must be of type integer: "number"',
    ),
    # closed sets
    Refused("an unknown mode is refused", pool(mode="Advisory"), "spec.mode", '"Observe", "Recommend", "Enforce"'),
    Refused("a mode is written with a capital", pool(mode="enforce"), "spec.mode", "supported values"),
    Refused(
        "an unknown tool is refused",
        pool(**{"fabric.probe.link.tool": "netperf"}),
        "spec.fabric.probe.link.tool",
        'supported values: "iperf3", "ib_read_bw"',
    ),
    Refused(
        "an unknown phase is refused",
        pool(**{"fabric.probe.phases": ["Isolated", "Idle"]}),
        "spec.fabric.probe.phases[1]",
        "supported values",
    ),
    Refused(
        "a sweep has a phase",
        pool(**{"fabric.probe.phases": []}),
        "spec.fabric.probe.phases",
        "should have at least 1 items",
    ),
    Refused("suspend is no text", pool(suspend="yes"), "spec.suspend", 'must be of type boolean: "string"'),
    Refused("a list is no spec", pool() | {"spec": []}, "spec", 'must be of type object: "array"'),
    # time to live against the schedule
    Refused("evidence of 1 h expires before the next sweep", pool(**{"fabric.evidenceTTL": "1h"}), "spec", _TTL),
    Refused("evidence that lives as long as the schedule", pool(**{"fabric.evidenceTTL": "27h10m"}), "spec", _TTL),
    Refused("a longer interval counts", pool(**{"fabric.schedule.interval": "46h"}), "spec", _TTL),
    Refused("a longer jitter counts", pool(**{"fabric.schedule.jitter": "22h"}), "spec", _TTL),
    Refused("a longer sweep counts", pool(**{"fabric.schedule.sweepTimeout": "24h"}), "spec", _TTL),
    # selectors
    Refused(
        "an empty selector would match every node",
        pool(**{"fabric.prefillNodes": {}}),
        "spec.fabric.prefillNodes",
        "must name at least one label",
    ),
    Refused(
        "a selector of empty parts would too",
        pool(**{"fabric.decodeNodes": {"matchLabels": {}, "matchExpressions": []}}),
        "spec.fabric.decodeNodes",
        "must name at least one label",
    ),
    Refused(
        "In needs values",
        pool(**{"fabric.decodeNodes": {"matchExpressions": [{"key": "gpu", "operator": "In"}]}}),
        "spec.fabric.decodeNodes.matchExpressions[0]",
        "In and NotIn need values",
    ),
    Refused(
        "Exists takes no values",
        pool(**{"fabric.decodeNodes": {"matchExpressions": [{"key": "gpu", "operator": "Exists", "values": ["x"]}]}}),
        "spec.fabric.decodeNodes.matchExpressions[0]",
        "Exists and DoesNotExist take none",
    ),
    # change windows
    *(
        Refused(
            f"{text!r} is no cron schedule",
            pool(changeWindows=[_WINDOW | {"schedule": text}]),
            "spec.changeWindows[0].schedule",
            "must be five cron fields",
        )
        for text in ("* * * * ?", "every night", "0 2 * * 6 2026", "0 2 * *  ")
    ),
    *(
        Refused(
            f"{text!r} is no time zone",
            pool(changeWindows=[_WINDOW | {"timeZone": text}]),
            "spec.changeWindows[0].timeZone",
            "must be an IANA time zone",
        )
        for text in ("../../etc/passwd", "+02:00", "Europe/", "/UTC")
    ),
    Refused(
        "a window has a length",
        pool(changeWindows=[{"schedule": "0 2 * * 6"}]),
        "spec.changeWindows[0].duration",
        "Required value",
    ),
    # unknown fields
    Refused("a field that nobody knows", pool(foo=1), "spec.foo", 'unknown field "spec.foo"'),
    Refused(
        "an unknown field in a list",
        pool(**{"workload.prompts": [{"tokens": 1, "size": 1}]}),
        "spec.workload.prompts[0].size",
        'unknown field "spec.workload.prompts[0].size"',
    ),
    Refused("a field beside spec", pool() | {"specs": {}}, "specs", 'unknown field "specs"'),
    # a change
    Refused("a pool stays with its target", pool(targetRef={"name": "b"}), "spec", _MOVED, old=pool()),
    Refused("a pool does not lose its target", pool(targetRef=ABSENT), "spec", "targetRef is required", old=pool()),
    Refused(
        "an approval is not extended",
        approval(expiresAt="2027-01-31T00:00:00Z"),
        "spec",
        "an approval is immutable",
        old=approval(),
    ),
    Refused(
        "an approval gets no attestation",
        approval(attestations=["A", "B"]),
        "spec",
        "an approval is immutable",
        old=approval(),
    ),
    Refused(
        "an approval does not lose its reason",
        approval(reason=ABSENT),
        "spec",
        "an approval is immutable",
        old=approval(),
    ),
    Refused("a report is not edited", shard(data="H4sJ"), "spec", "a report is immutable", old=shard()),
    Refused("an index is not edited", index(measured=1), "spec", "a report is immutable", old=index()),
    Refused("an A/B is not edited", benchmark(seed=8), "spec", "a report is immutable", old=benchmark()),
    # approvals
    Refused(
        "an approval names a capability", approval(capability="Split"), "spec.capability", '"Routing", "Disaggregation"'
    ),
    Refused("a plan hash is one", approval(planHash="v1:sha256:0a"), "spec.planHash", "should match"),
    Refused("a plan hash has a version", approval(planHash=HASH.removeprefix("v1:")), "spec.planHash", "should match"),
    Refused("a plan hash ends with its line", approval(planHash=HASH + "\n"), "spec.planHash", "should match"),
    Refused("an approval expires", approval(expiresAt=ABSENT), "spec.expiresAt", "Required value"),
    *(
        Refused(f"{text!r} is no time", approval(expiresAt=text), "spec.expiresAt", "must be an RFC 3339 time")
        for text in (
            "2026-12-31",
            "2026-02-30T00:00:00Z",
            "2026-12-31T24:00:00Z",
            "1700000000",
            "tomorrow",
            "",
            "9999-12-31T00:00:00Z",
            "2026-12-31t00:00:00z",
            "2026-12-31 00:00:00Z",
            "2026-12-31T00:00:00+99:00",
            "2026-12-31T00:00:60Z",
            "0000-00-00T00:00:00Z",
        )
    ),
    Refused("a list is no time", approval(expiresAt=[]), "spec.expiresAt", 'must be of type string: "array"'),
    Refused("an approval has an approver", approval(approver=""), "spec.approver", "should be at least 1 chars"),
    Refused("an approval names the very pool", approval(poolRef={"name": "q"}), "spec.poolRef.uid", "Required value"),
    # reports
    Refused(
        "a report is a shard or an index", shard(shards=[{"name": "a", "sha256": DIGEST}]), "spec", "is either a shard"
    ),
    Refused("a report is not nothing", shard(data=ABSENT), "spec", "is either a shard"),
    Refused("a shard has a digest", shard(sha256=ABSENT), "spec", "a shard needs index, encoding and sha256"),
    Refused("a shard has an index", shard(index=ABSENT), "spec", "a shard needs index, encoding and sha256"),
    Refused("a shard of an A/B has a digest", benchmark_shard(sha256=ABSENT), "spec", "a shard needs index, encoding"),
    Refused("an A/B is a shard or an index", benchmark(shards=ABSENT), "spec", "is either a shard"),
    Refused("a gain is a number", benchmark(improvementPercent="much"), "spec.improvementPercent", "should match"),
    Refused("a digest is one", shard(sha256="0b"), "spec.sha256", "should match"),
    Refused(
        "a shard holds at most 900,000 characters",
        shard(data="x" * 900_001),
        "spec.data",
        "may not be more than 900000",
    ),
)

ACCEPTED: tuple[Accepted, ...] = (
    Accepted("the least pool", pool()),
    Accepted("a pool that says every field", full_pool()),
    Accepted("a shard", shard()),
    Accepted("an index", index()),
    Accepted("an A/B", benchmark()),
    Accepted("a shard of an A/B", benchmark_shard()),
    Accepted("an approval", approval()),
    Accepted("an approval without the optional fields", approval(reason=ABSENT, evidence=ABSENT, attestations=ABSENT)),
    Accepted("a shard of 900,000 characters", shard(data="x" * 900_000)),
    Accepted("KV bytes said by hand", pool(**{"model.kvCache": {"bytesPerToken": 114688}})),
    Accepted("KV bytes from the workers", pool(**{"model.kvCache": {"fromWorkers": {}}})),
    Accepted("KV bytes from a ConfigMap", pool(**{"model.kvCache": {"configFrom": _CONFIG}})),
    Accepted("one share of all", _shares("100%")),
    Accepted("shares that add up", _shares("50%", "40%", "10%")),
    Accepted("shares that add up but for rounding", _shares("33.3%", "33.3%", "33.4%")),
    Accepted("no shares", _shares(None, None)),
    Accepted("an integer written as 3000.0", pool(**{"workload.prompts": [{"tokens": 3000.0}]})),
    *(
        Accepted(f"a throughput of {text}", pool(**{f"{_D}.minThroughput": text}))
        for text in ("10GB/s", "0.5GiB/s", "25Gbit/s", "400MB/s", "1.5MiB/s", "1Mbit/s", "007GB/s")
    ),
    *(
        Accepted(f"a budget of {text}", pool(**{f"{_D}.ttftBudget": text}))
        for text in ("200ms", "1h30m", "0.5s", "0h1m", "1000000h")
    ),
    *(
        Accepted(f"a utilization of {text}", pool(**{f"{_D}.maxUtilization": text}))
        for text in ("0%", "99.9%", "100.0%")
    ),
    *(Accepted(f"{text} requests a second", pool(**{"workload.peakRequestsPerSecond": text})) for text in ("4", "0.2")),
    *(Accepted(f"a skew of {text}", pool(**{"workload.skew": text})) for text in ("1", "1.0", "12.5")),
    *(
        Accepted(f"a derating of {text}", pool(**{"fabric.probe.loadDerating": text}))
        for text in ("1", "1.0", "0.8", ".5")
    ),
    *(Accepted(f"the slowest {n} percent", pool(**{f"{_D}.slowestPercentOfPaths": n})) for n in (1, 100)),
    *(Accepted(f"port {n}", pool(**{"fabric.probe.port": n})) for n in (1024, 65527)),
    Accepted("evidence that outlives the schedule by a second", pool(**{"fabric.evidenceTTL": "27h10m1s"})),
    Accepted("no overhead", pool(**{"workload.fixedOverhead": "0s"})),
    Accepted("a selector of one label", pool(**{"fabric.prefillNodes": {"matchLabels": {"pool": "prefill"}}})),
    Accepted(
        "a selector of one expression",
        pool(**{"fabric.prefillNodes": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}),
    ),
    *(
        Accepted(f"the schedule {text}", pool(changeWindows=[_WINDOW | {"schedule": text}]))
        for text in ("*/15 0-6,22 1 JAN-MAR MON-FRI", "0 2 * * 6#1")
    ),
    *(
        Accepted(f"the time zone {text}", pool(changeWindows=[_WINDOW | {"timeZone": text}]))
        for text in ("UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires")
    ),
    Accepted("a null in place of a default", pool(mode=None, fabric=None)),
    Accepted("a pool whose other fields change", pool(mode="Enforce", suspend=True), old=pool()),
    Accepted("a pool applied twice", full_pool(), old=full_pool()),
    Accepted("an approval applied twice", approval(), old=approval()),
    Accepted("a shard applied twice", shard(), old=shard()),
)
