"""An A/B survives its reports whole, what was touched is none, and the index sums up what people ask."""

from __future__ import annotations

import dataclasses
import string
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.benchmark import BenchmarkReportSpec
from kvgate.api.meta import Meta
from kvgate.api.objects import BenchmarkReport, read_benchmark
from kvgate.api.report import ShardRef
from kvgate.core.ab.evidence import BenchmarkEvidence, Provenance, Subject
from kvgate.core.ab.experiment import (
    Arm,
    Calibration,
    Experiment,
    Fault,
    Identity,
    Request,
    Run,
    Workload,
)
from kvgate.core.digests import digest
from kvgate.probe.benchmark_reports import (
    NamedBenchmark,
    read_benchmarks,
    superseded_benchmarks,
    to_benchmark_reports,
)
from kvgate.probe.shards import packed, unpacked
from tests.core.ab.trials import but, experiment, failing

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
POOL = "0b7ab8d6-0000-4000-8000-000000000000"
AB = BenchmarkEvidence(
    run_id="ab1",
    pool_uid=POOL,
    measured_at=NOW,
    subject=Subject("target-uid", "digest", "agg"),
    experiment=experiment(blocks=3),
    provenance=Provenance(7, "qwen3-staging", False, 4.0, 1.5, ("vllm:1.6.1",), (("KV", 3.5),)),
)


def stored(reports: tuple[NamedBenchmark, ...]) -> list[BenchmarkReport]:
    """As an API server or a file gives them back."""
    written = [(report.name, report.spec.model_dump(mode="json", by_alias=True)) for report in reports]
    return [
        BenchmarkReport(metadata=Meta(name=name), spec=BenchmarkReportSpec.model_validate(spec))
        for name, spec in written
    ]


_texts = st.text(max_size=20)
_names = st.text(string.ascii_lowercase, min_size=1, max_size=8)
_seconds = st.integers(0, 10**9).map(lambda micro: round(micro / 1e6, 6))
_counts = st.integers(0, 2**40)
_answered = st.builds(
    Request,
    family=_counts,
    arrival_seconds=_seconds,
    prompt_tokens=_counts,
    repeated_tokens=_counts,
    first_token_seconds=_seconds,
    token_gap_seconds=st.none() | _seconds,
    cached_tokens=st.none() | _counts,
    overlap_tokens=st.none() | _counts,
    worker=_texts,
    answer_tokens=_counts,
)
_failed = st.builds(
    Request, family=_counts, arrival_seconds=_seconds, prompt_tokens=_counts, fault=st.sampled_from(Fault)
)
_runs = st.builds(
    Run,
    block=st.integers(0, 64),
    arm=st.sampled_from(Arm),
    offered=_counts,
    requests=st.lists(_answered | _failed, max_size=4).map(tuple),
    kv_families=st.lists(_texts, max_size=2).map(tuple),
    began_at=_seconds,
    ended_at=_seconds,
)
_identities = st.builds(Identity, _counts, st.lists(_texts, max_size=3).map(tuple), _texts)
_experiments = st.builds(
    Experiment,
    workload=st.sampled_from(Workload),
    blocks=st.integers(0, 64),
    runs=st.lists(_runs, max_size=4).map(tuple),
    timeout_seconds=_seconds,
    block_tokens=_counts,
    template_tokens=_counts,
    before=_identities,
    after=_identities,
    calibration=st.lists(st.builds(Calibration, _texts, _seconds, _seconds), max_size=2).map(tuple),
    aborted=_texts,
)
_evidence = st.builds(
    BenchmarkEvidence,
    run_id=st.text("0123456789abcdef", min_size=1, max_size=10),
    pool_uid=st.just(POOL),
    measured_at=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    subject=st.builds(Subject, _texts, _texts, _texts, _texts),
    experiment=_experiments,
    provenance=st.builds(
        Provenance,
        seed=st.integers(0, 2**53 - 1),
        ran_on=_names,
        live=st.booleans(),
        requests_per_second=_seconds,
        live_requests_per_second=st.none() | _seconds,
        versions=st.lists(_names, max_size=2).map(tuple),
        tokens_per_joule=st.sampled_from([(), (("KV", 1.5), ("RoundRobin", 1.0))]),
        no_power=_texts,
    ),
)


@given(_evidence)
@settings(max_examples=60)
def test_an_ab_survives_its_reports_whole(evidence: BenchmarkEvidence) -> None:
    reports = to_benchmark_reports(evidence, "qwen3")
    [read], bad = read_benchmarks(stored(reports), POOL)
    assert bad == ()
    assert read == dataclasses.replace(evidence, report=f"qwen3-{evidence.run_id}")


def test_many_runs_are_spread_over_shards_and_come_back_in_order() -> None:
    many = dataclasses.replace(AB, experiment=experiment(blocks=20))
    *shards, _ = reports = to_benchmark_reports(many, "qwen3")
    assert len(shards) == 3
    [read], _ = read_benchmarks(reversed(stored(reports)), POOL)
    assert [(run.block, run.arm) for run in read.experiment.runs] == [(r.block, r.arm) for r in many.experiment.runs]


def test_what_is_written_is_what_the_api_server_takes() -> None:
    for report in to_benchmark_reports(AB, "qwen3"):
        spec = report.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        body = {"apiVersion": "kvgate.dev/v1alpha1", "kind": "BenchmarkReport", "metadata": {"name": report.name}}
        assert isinstance(read_benchmark(body | {"spec": spec}), BenchmarkReport)


def test_the_index_sums_up_both_arms() -> None:
    spoilt = but(Arm.KV, failing(Fault.OVERLOADED), lambda number: number == 129)
    index = to_benchmark_reports(dataclasses.replace(AB, experiment=spoilt), "qwen3")[-1].spec
    kv = next(arm for arm in index.arms if arm.arm == "KV")
    assert (kv.requests, kv.p50_milliseconds, kv.p99_milliseconds) == (832, 142, 142)
    assert kv.mean_milliseconds == round((824 * 0.1416 + 8 * 30) / 832 * 1000)
    assert [(entry.fault, entry.requests) for entry in kv.errors] == [("Overloaded", 8)]
    assert [(entry.worker, entry.requests) for entry in kv.workers] == [("w1", 416), ("w2", 408)]
    assert (kv.cached_token_ratio, kv.inter_token_milliseconds, kv.tokens_per_joule) == ("0.896", "10.000", "3.500")
    assert [(f.family, f.requests) for f in index.families[:2]] == [(6, 176), (7, 176)]
    assert (index.families[0].cached_token_ratio, index.families[0].cached_token_ratio_round_robin) == (
        "0.896",
        "0.480",
    )
    assert (index.workload, index.blocks, index.seed, index.ran_on) == ("Trace", 8, 7, "qwen3-staging")


@pytest.mark.parametrize(
    ("seen", "improvement"),
    [
        pytest.param(experiment(), "54.0", id="a whole one"),
        pytest.param(experiment(runs=experiment().runs[:3]), None, id="one that ended early"),
        pytest.param(experiment(runs=()), None, id="one that never began"),
    ],
)
def test_the_improvement_stands_there_where_there_is_one(seen: Experiment, improvement: str | None) -> None:
    index = to_benchmark_reports(dataclasses.replace(AB, experiment=seen), "qwen3")[-1].spec
    assert index.improvement_percent == improvement


def _with(shard: BenchmarkReportSpec, body: dict[str, Any]) -> list[BenchmarkReport]:
    """The A/B's reports with another body in its one shard, and an index that vouches for it."""
    data = packed(body)
    index = to_benchmark_reports(AB, "qwen3")[-1]
    ref = ShardRef(name="qwen3-ab1-0", sha256=digest(data))
    changed = shard.model_copy(update={"data": data, "sha256": digest(data)})
    whole = index.spec.model_copy(update={"shards": (ref,)})
    return stored((NamedBenchmark("qwen3-ab1-0", changed), NamedBenchmark(index.name, whole)))


def _body() -> tuple[BenchmarkReportSpec, dict[str, Any]]:
    shard, index = to_benchmark_reports(AB, "qwen3")
    return shard.spec, unpacked(index.spec.shards[0], index.spec, {shard.name: shard.spec})


def _changed(path: tuple[str | int, ...], value: object) -> list[BenchmarkReport]:
    shard, body = _body()
    node: Any = body
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return _with(shard, body)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("blocks",), -1),
        (("blocks",), True),
        (("timeoutSeconds",), 10**400),
        (("workload",), "Dream"),
        (("before", "workers"), [3]),
        (("before",), None),
        (("runs",), None),
        (("runs", 0, "arm"), "Both"),
        (("runs", 0, "requests", 0), [1, 2, 3]),
        (("runs", 0, "requests", 0, 4), None),
        (("runs", 0, "requests", 0, 6), -5),
        (("runs", 0, "requests", 0, 8), 99),
        (("runs", 0, "requests", 0, 9), "Bored"),
        (("subject", "split"), 4),
        (("provenance", "seed"), "x"),
        (("measuredAt",), "yesterday"),
    ],
)
def test_a_body_that_is_no_ab_spoils_its_index(path: tuple[str | int, ...], value: object) -> None:
    read, [bad] = read_benchmarks(_changed(path, value), POOL)
    assert read == ()
    assert "BenchmarkReport qwen3-ab1: its data is no A/B" in bad.message


def _altered(reports: tuple[NamedBenchmark, ...], **changes: object) -> tuple[NamedBenchmark, ...]:
    shard, index = reports
    return NamedBenchmark(shard.name, shard.spec.model_copy(update=changes)), index


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"data": "H4sI"}, "was altered", id="other data"),
        pytest.param({"run_id": "ab2"}, "of another run or pool", id="another run"),
        pytest.param({"encoding": "plain"}, "encoding must be json+gzip+base64", id="another encoding"),
    ],
)
def test_a_touched_shard_spoils_its_index(changes: dict[str, object], said: str) -> None:
    _, [bad] = read_benchmarks(stored(_altered(to_benchmark_reports(AB, "qwen3"), **changes)), POOL)
    assert said.replace("\\", "") in bad.message


def test_a_missing_shard_and_a_moved_end_spoil_it_too() -> None:
    shard, index = to_benchmark_reports(AB, "qwen3")
    _, [gone] = read_benchmarks(stored((index,)), POOL)
    assert "shard qwen3-ab1-0 is missing" in gone.message
    moved = index.spec.model_copy(update={"measured_at": NOW + timedelta(hours=1)})
    _, [edited] = read_benchmarks(stored((shard, NamedBenchmark(index.name, moved))), POOL)
    assert "measuredAt was altered" in edited.message


def test_another_pools_reports_are_none_of_ours() -> None:
    assert read_benchmarks(stored(to_benchmark_reports(AB, "qwen3")), "other") == ((), ())


def test_the_newest_comes_first_and_older_ones_go_index_first() -> None:
    older = dataclasses.replace(AB, run_id="ab0", measured_at=NOW - timedelta(days=1))
    reports = [*stored(to_benchmark_reports(older, "qwen3")), *stored(to_benchmark_reports(AB, "qwen3"))]
    assert [entry.run_id for entry in read_benchmarks(reports, POOL)[0]] == ["ab1", "ab0"]
    assert [report.metadata.name for report in superseded_benchmarks(reports, 1)] == ["qwen3-ab0", "qwen3-ab0-0"]
    assert superseded_benchmarks(reports, 2) == ()
