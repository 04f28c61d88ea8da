"""Evidence survives its reports whole, and reports that were touched are no evidence."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import random
import string
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.meta import Meta
from kvgate.api.objects import FabricReport
from kvgate.api.report import PoolRef, ReportSpec, ShardRef
from kvgate.api.words import Memory, Phase
from kvgate.core.evidence import Evidence, Failure, FailureKind, Layer, NodeIdentity, Path, Sample, Uplink
from kvgate.probe.reports import NamedSpec, read_reports, to_reports
from kvgate.probe.shards import MOST_CHARACTERS, SHARD_CHARACTERS

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
POOL = "0b7ab8d6-0000-4000-8000-000000000000"


def stored(reports: tuple[NamedSpec, ...]) -> list[FabricReport]:
    """As an API server or a file gives them back."""
    written = [(report.name, report.spec.model_dump(mode="json", by_alias=True)) for report in reports]
    return [FabricReport(metadata=Meta(name=name), spec=ReportSpec.model_validate(spec)) for name, spec in written]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("qwen3", "qwen3", id="an ordinary name stands whole"),
        pytest.param("x" * 253, "x" * 220, id="the longest is cut"),
        pytest.param("x" * 219 + "." + "y" * 33, "x" * 219, id="none ends in a dot"),
    ],
)
def test_the_longest_name_of_a_pool_leaves_room_for_the_run(name: str, stem: str) -> None:
    evidence = Evidence(run_id="0123456789", pool_uid=POOL, planned=(), samples=(), measured_at=NOW)
    reports = to_reports(evidence, name)
    assert [report.name for report in reports] == [f"{stem}-0123456789-0", f"{stem}-0123456789"]
    assert [read.report for read in read_reports(stored(reports), POOL)[0]] == [f"{stem}-0123456789"]


_names = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=12)
_texts = st.text(max_size=40)
_paths = st.builds(Path, _names, _names)
_moments = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
_counts = st.none() | st.integers(0, 2**60)
_numbers = st.none() | st.floats(0, 1e12)
_failures = st.builds(Failure, st.sampled_from(FailureKind), _texts)
_outcomes = st.tuples(st.floats(1e-3, 1e14), st.none()) | st.tuples(st.none(), _failures)


@st.composite
def _samples(draw: st.DrawFn) -> Sample:
    rate, failure = draw(_outcomes)
    return Sample(
        run_id=draw(_names),
        path=draw(_paths),
        layer=draw(st.sampled_from(Layer)),
        tool=draw(_texts),
        operation=draw(_texts),
        memory=draw(st.sampled_from(Memory)),
        transport=draw(_texts),
        phase=draw(st.sampled_from(Phase)),
        streams=draw(st.integers(1, 128)),
        measured_at=draw(_moments),
        bytes_per_second=rate,
        failure=failure,
        bytes_moved=draw(_counts),
        seconds=draw(_numbers),
        retransmits=draw(_counts),
        host_cpu_percent=draw(_numbers),
        remote_cpu_percent=draw(_numbers),
        interface=draw(_texts),
        interface_bytes=draw(_counts),
        serving_bytes_per_second=draw(_numbers),
        bytes_sent=draw(_counts),
        slot=draw(_counts),
        line_rate_bytes_per_second=draw(_numbers),
        notes=tuple(draw(st.lists(_texts, max_size=3))),
    )


_labels = st.lists(st.tuples(_texts, _texts), max_size=2).map(tuple)
_nodes = st.builds(NodeIdentity, _names, _texts, _texts, _texts, _texts, _texts, _counts, _labels)
_evidence = st.builds(
    Evidence,
    run_id=st.text("0123456789abcdef", min_size=1, max_size=10),
    pool_uid=st.just(POOL),
    planned=st.lists(_paths, max_size=5).map(tuple),
    samples=st.lists(_samples(), max_size=5).map(tuple),
    measured_at=_moments,
    nodes=st.lists(_nodes, max_size=3).map(tuple),
    uplinks=st.lists(st.builds(Uplink, _texts, st.floats(1, 1e12), st.floats(0, 1)), max_size=2).map(tuple),
    problems=st.lists(_texts, max_size=3).map(tuple),
    image=_texts,
    tools=st.lists(_texts, max_size=2).map(tuple),
    copied=st.lists(_texts, max_size=2).map(tuple),
    in_use=st.none() | st.integers(0, 1_000_000),
)


@settings(max_examples=60, deadline=None)
@given(_evidence)
def test_evidence_comes_back_equal(evidence: Evidence) -> None:
    reports = to_reports(evidence, "qwen3")
    read, bad = read_reports(stored(reports), POOL)
    assert bad == ()
    assert read == (dataclasses.replace(evidence, report=reports[-1].name),)


@settings(max_examples=20, deadline=None)
@given(_evidence, st.randoms())
def test_the_order_of_the_reports_does_not_matter(evidence: Evidence, order: random.Random) -> None:
    reports = stored(to_reports(evidence, "qwen3"))
    shuffled = reports.copy()
    order.shuffle(shuffled)
    assert read_reports(shuffled, POOL) == read_reports(reports, POOL)


def sample(number: int, **more: object) -> Sample:
    plain = Sample(
        run_id="r1",
        path=Path(f"p{number}", f"d{number}"),
        layer=Layer.LINK,
        tool="iperf3",
        operation="tcp-stream",
        memory=Memory.HOST,
        transport="tcp",
        phase=Phase.ISOLATED,
        streams=4,
        measured_at=NOW,
        bytes_per_second=1e9 + number,
    )
    return dataclasses.replace(plain, **more)  # type: ignore[arg-type]


def sweep(count: int = 3, run: str = "r1", ended: datetime = NOW) -> Evidence:
    samples = tuple(sample(number, run_id=run) for number in range(count))
    return Evidence(run, POOL, tuple(s.path for s in samples), samples, ended)


@pytest.mark.parametrize(("samples", "shards"), [(0, 1), (1, 1), (8000, 1), (8001, 2), (16001, 3)])
def test_a_shard_holds_at_most_8000_samples(samples: int, shards: int) -> None:
    reports = to_reports(sweep(samples), "qwen3")
    assert len(reports) == shards + 1
    [read], bad = read_reports(stored(reports), POOL)
    assert (len(read.samples), bad) == (samples, ())


def test_the_index_is_last_and_counts_the_paths_that_gave_a_number() -> None:
    failed = sample(9, bytes_per_second=None, failure=Failure(FailureKind.NO_ROUTE, ""))
    evidence = dataclasses.replace(sweep(2), samples=(*sweep(2).samples, failed))
    index = to_reports(evidence, "qwen3")[-1]
    assert (index.name, index.spec.paths, index.spec.measured) == ("qwen3-r1", 2, 2)


def test_samples_that_do_not_pack_still_keep_to_the_limit_of_a_shard() -> None:
    noise = random.Random(7)
    words = string.ascii_letters + string.digits

    def random_text(length: int) -> str:
        return "".join(noise.choices(words, k=length))

    samples = tuple(
        sample(number, path=Path(random_text(63), random_text(63)), notes=(random_text(900),)) for number in range(2000)
    )
    evidence = dataclasses.replace(sweep(0), samples=samples, planned=tuple(s.path for s in samples))
    reports = to_reports(evidence, "qwen3")
    assert len(reports) > 2
    assert all(len(report.spec.data or "") <= SHARD_CHARACTERS for report in reports)
    [read], bad = read_reports(stored(reports), POOL)
    assert (read.samples, read.planned, bad) == (samples, evidence.planned, ())


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 9)).decode()


def _with_data(
    data: str, *, encoding: str = "json+gzip+base64", run: str = "r1", uid: str = POOL
) -> list[FabricReport]:
    """An index whose digest fits a shard that holds anything at all."""
    digest = hashlib.sha256(data.encode()).hexdigest()
    shard = ReportSpec(
        run_id=run, pool_ref=PoolRef(name="qwen3", uid=uid), index=0, encoding=encoding, data=data, sha256=digest
    )
    index = ReportSpec(
        run_id="r1",
        pool_ref=PoolRef(name="qwen3", uid=POOL),
        shards=(ShardRef(name="qwen3-r1-0", sha256=digest),),
        measured_at=NOW,
    )
    return stored((NamedSpec("qwen3-r1-0", shard), NamedSpec("qwen3-r1", index)))


FRAME: dict[str, object] = {
    "planned": [], "nodes": [], "uplinks": [], "problems": [], "measured_at": NOW.isoformat()
}  # fmt: skip
GOOD = json.dumps(FRAME | {"samples": []})


def _unpacked(report: NamedSpec) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(report.spec.data or "")))
    return body


def _body(**changed: object) -> str:
    """A shard of one sample, with some of its fields changed."""
    [shard, _] = to_reports(sweep(1), "qwen3")
    body = _unpacked(shard)
    body["samples"]["columns"].update({name: [value] for name, value in changed.items()})
    return _packed(json.dumps(body))


def _placed(**changed: object) -> str:
    """A shard of one sample, with another place of its nodes or other columns."""
    [shard, _] = to_reports(sweep(1), "qwen3")
    body = _unpacked(shard)
    body["samples"].update(changed)
    return _packed(json.dumps(body))


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        pytest.param(_with_data("%%%"), "cannot be unpacked", id="no base64"),
        pytest.param(_with_data(base64.b64encode(b"text").decode()), "cannot be unpacked", id="no gzip"),
        pytest.param(_with_data(_packed("{")), "cannot be unpacked", id="no JSON"),
        pytest.param(_with_data(_packed("[" * 100_000)), "cannot be unpacked", id="brackets without end"),
        pytest.param(_with_data(_packed("[]")), "holds no object", id="a list"),
        pytest.param(_with_data(_packed("{}")), "no evidence", id="an empty object"),
        pytest.param(_with_data(_packed(GOOD), encoding="plain"), "encoding must be", id="another encoding"),
        pytest.param(_with_data(_packed(GOOD), run="r2"), "of another run or pool", id="a shard of another run"),
        pytest.param(_with_data(_packed(GOOD), uid="u2"), "of another run or pool", id="a shard of another pool"),
        pytest.param(_with_data(_packed(" " * (MOST_CHARACTERS + 1) + GOOD)), "cannot be unpacked", id="a bomb"),
        pytest.param(_with_data(_body(bytes_per_second=float("nan"))), "no evidence", id="NaN bytes per second"),
        pytest.param(_with_data(_body(bytes_per_second=0)), "no evidence", id="zero bytes per second"),
        pytest.param(_with_data(_body(bytes_per_second=-1.0)), "no evidence", id="negative bytes per second"),
        pytest.param(_with_data(_body(bytes_per_second="1e9")), "no evidence", id="bytes per second in words"),
        pytest.param(_with_data(_body(bytes_per_second=None)), "no evidence", id="neither number nor failure"),
        pytest.param(_with_data(_body(layer="wire")), "no evidence", id="an unknown layer"),
        pytest.param(_with_data(_body(colour="red")), "no evidence", id="an unknown field"),
        pytest.param(_with_data(_body(measured_at="yesterday")), "no evidence", id="a time that is none"),
        pytest.param(_with_data(_body(measured_at="2027-01-31T12:00:00")), "no evidence", id="a time without a zone"),
        pytest.param(_with_data(_body(streams="four")), "no evidence", id="streams in words"),
        pytest.param(_with_data(_body(retransmits="many")), "no evidence", id="retransmits in words"),
        pytest.param(_with_data(_placed(to=[2])), "no evidence", id="a node beyond the list"),
        pytest.param(_with_data(_placed(to=[-1])), "no evidence", id="a node counted from the end"),
        pytest.param(_with_data(_placed(to=[True])), "no evidence", id="a node that is a flag"),
        pytest.param(_with_data(_placed(to=[1, 1])), "no evidence", id="more ends than beginnings"),
        pytest.param(_with_data(_placed(names=[1, 2])), "no evidence", id="nodes that are numbers"),
        pytest.param(_with_data(_placed(columns={"streams": []})), "no evidence", id="a column that is too short"),
        pytest.param(_with_data(_placed(columns={"streams": {}})), "no evidence", id="a column of nothing"),
        pytest.param(_with_data(_placed(columns={})), "no evidence", id="no columns"),
    ],
)
def test_what_is_no_evidence_spoils_its_index(reports: list[FabricReport], said: str) -> None:
    read, [bad] = read_reports(reports, POOL)
    assert (read, bad.report, bad.measured_at) == ((), "qwen3-r1", NOW)
    assert said in bad.message


def test_an_empty_sweep_is_still_a_sweep() -> None:
    read, bad = read_reports(_with_data(_packed(GOOD)), POOL)
    assert (len(read), bad) == (1, ())


def _as_earlier(report: NamedSpec) -> str:
    """The same shard as earlier versions wrote it: a row per sample, and a pair of names per planned path."""
    body = _unpacked(report)
    for key, form in (("planned", _pairs), ("samples", _rows)):
        body[key] = form(body[key])
    return _packed(json.dumps(body))


def _pairs(held: dict[str, Any]) -> list[list[str]]:
    names = held["names"]
    return [[names[a], names[b]] for a, b in zip(held["from"], held["to"], strict=True)]


def _rows(held: dict[str, Any]) -> list[dict[str, Any]]:
    pairs = _pairs(held)
    columns = {k: c if isinstance(c, list) else [c["all"]] * len(pairs) for k, c in held["columns"].items()}
    return [
        {key: column[place] for key, column in columns.items()} | {"path": {"source": source, "destination": end}}
        for place, (source, end) in enumerate(pairs)
    ]


def test_what_earlier_versions_wrote_is_read_the_same() -> None:
    shard, _ = to_reports(sweep(3), "qwen3")
    now, _ = read_reports(stored(to_reports(sweep(3), "qwen3")), POOL)
    then, bad = read_reports(_with_data(_as_earlier(shard)), POOL)
    assert bad == ()
    assert then == now


def test_a_thousand_by_a_thousand_paths_fit() -> None:
    planned = tuple(Path(f"gpu-prefill-{a:04}", f"gpu-decode-{b:04}") for a in range(1000) for b in range(1000))
    shuffled = random.Random(1).sample(planned, 50_000)
    for paths in (planned, tuple(shuffled)):
        evidence = dataclasses.replace(sweep(0), planned=paths)
        reports = to_reports(evidence, "qwen3")
        assert all(len(report.spec.data or "") <= SHARD_CHARACTERS for report in reports)
        [read], bad = read_reports(stored(reports), POOL)
        assert bad == ()
        assert read.planned == paths


def test_a_million_samples_of_two_layers_fit_the_shards_of_one_index() -> None:
    chance = random.Random(1)
    noisy = [sample(n, **{key: chance.random() * 1e9 for key in ("seconds", "host_cpu_percent")}) for n in range(8000)]
    told = [dataclasses.replace(s, bytes_per_second=chance.random() * 1e9, slot=chance.randrange(99)) for s in noisy]
    evidence = dataclasses.replace(sweep(0), samples=tuple(told))
    whole = sum(len(report.spec.data or "") for report in to_reports(evidence, "qwen3"))
    assert whole / len(told) * 2_000_000 < 1000 * SHARD_CHARACTERS


def test_a_shard_that_was_edited_spoils_the_whole_sweep() -> None:
    first, second, index = to_reports(sweep(8001), "qwen3")
    data = second.spec.data or ""
    edited = dataclasses.replace(second, spec=second.spec.model_copy(update={"data": "A" + data[1:]}))
    read, [bad] = read_reports(stored((first, edited, index)), POOL)
    assert read == ()
    assert bad.message == "report qwen3-r1: shard qwen3-r1-1 was altered: its digest is not the one in the index"


@pytest.mark.parametrize("seconds", [3600, -3600], ids=["later", "earlier"])
def test_an_index_that_was_given_another_time_is_spoilt(seconds: int) -> None:
    shard, index = to_reports(sweep(), "qwen3")
    moved = index.spec.model_copy(update={"measured_at": NOW + timedelta(seconds=seconds)})
    read, [bad] = read_reports(stored((shard, NamedSpec(index.name, moved))), POOL)
    assert read == ()
    assert bad.message == "report qwen3-r1: its measuredAt was altered: it is not the one in its shards"


def test_a_shard_that_is_missing_spoils_the_whole_sweep() -> None:
    first, _, index = to_reports(sweep(8001), "qwen3")
    _, [bad] = read_reports(stored((first, index)), POOL)
    assert bad.message == "report qwen3-r1: shard qwen3-r1-1 is missing"


def test_shards_that_no_index_names_are_nothing() -> None:
    assert read_reports(stored(to_reports(sweep(8001), "qwen3")[:-1]), POOL) == ((), ())


def test_reports_of_another_pool_are_nothing() -> None:
    assert read_reports(stored(to_reports(sweep(), "qwen3")), "another") == ((), ())


def test_the_newest_sweep_comes_first() -> None:
    older, newer = sweep(run="r1"), sweep(run="r2", ended=NOW + timedelta(hours=1))
    reports = stored((*to_reports(newer, "qwen3"), *to_reports(older, "qwen3")))
    assert [evidence.run_id for evidence in read_reports(reports, POOL)[0]] == ["r2", "r1"]
