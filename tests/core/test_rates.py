"""From samples to the judged throughput: per path, per layer, per phase, and the percentile over the paths."""

from __future__ import annotations

import dataclasses
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.words import Phase
from kvgate.core.evidence import FAULTS_OF_THE_PATH, FailureKind, Layer, Sample
from kvgate.core.rates import Fabric, PathRates, fabric, judged, lower_percentile, slowest
from tests.core.cases import PATHS, endpoint, evidence, failed, path, sample

ONE = path("p1→d1")


def seen(*samples: Sample) -> PathRates:
    """What path p1→d1 carries by these samples."""
    return fabric(evidence(samples), (ONE,)).paths[0]


def paired(*rates: float) -> tuple[tuple[float, float], ...]:
    return tuple((rate, 1.0) for rate in rates)


@pytest.mark.parametrize(
    ("weighted", "percent", "expected"),
    [
        pytest.param((), 10, None, id="nothing has no percentile"),
        pytest.param(paired(7), 10, 7, id="one value is every percentile"),
        pytest.param(paired(*range(1, 11)), 10, 1, id="a tenth of ten is the first"),
        pytest.param(paired(*range(1, 11)), 11, 2, id="just above a tenth is the second"),
        pytest.param(paired(*range(1, 11)), 50, 5, id="the half of ten is the fifth, not between"),
        pytest.param(paired(*range(1, 11)), 100, 10, id="a hundred percent is the fastest"),
        pytest.param(paired(*range(1, 21)), 10, 2, id="a tenth of twenty is the second"),
        pytest.param(paired(3, 1, 2), 34, 2, id="order of arrival does not matter"),
        pytest.param(((1, 1), (2, 9)), 10, 1, id="a path with a tenth of the pods is the judged tenth"),
        pytest.param(((1, 1), (2, 19)), 10, 2, id="a path with a twentieth of the pods is passed over"),
        pytest.param(((1, 0), (2, 1)), 1, 2, id="a path without pods does not count"),
        pytest.param(((1, 0),), 50, None, id="only paths without pods is nothing"),
    ],
)
def test_the_lower_percentile_is_by_weighted_nearest_rank(
    weighted: tuple[tuple[float, float], ...], percent: float, expected: float | None
) -> None:
    assert lower_percentile(weighted, percent) == expected


@pytest.mark.parametrize(
    ("samples", "link", "endpoint_rate", "carries"),
    [
        pytest.param([sample(ONE, 200.0)], 200, None, 200, id="a link number alone is the path's"),
        pytest.param([endpoint(ONE, 150.0)], None, 150, 150, id="an endpoint number alone is the path's"),
        pytest.param([sample(ONE, 200.0), endpoint(ONE, 150.0)], 200, 150, 150, id="a slower endpoint binds"),
        pytest.param([sample(ONE, 100.0), endpoint(ONE, 150.0)], 100, 150, 100, id="a slower link binds"),
        pytest.param(
            [sample(ONE, 200.0), sample(ONE, 90.0, phase=Phase.CONCURRENT)],
            90,
            None,
            90,
            id="the smaller of the phases",
        ),
        pytest.param(
            [sample(ONE, 80.0), sample(ONE, 90.0, phase=Phase.CONCURRENT)],
            80,
            None,
            80,
            id="the smaller of the phases is not always the concurrent one",
        ),
        pytest.param(
            [sample(ONE, 10.0), sample(ONE, 100.0), sample(ONE, 110.0)],
            100,
            None,
            100,
            id="repeats count by their median",
        ),
        pytest.param([sample(ONE, 100.0), sample(ONE, 110.0)], 100, None, 100, id="of two repeats the lower counts"),
        pytest.param(
            [sample(ONE, 100.0, serving_bytes_per_second=20.0)], 120, None, 120, id="bytes that serving moved are added"
        ),
        pytest.param(
            [failed(ONE, FailureKind.NO_ROUTE), sample(ONE, 100.0)], 100, None, 100, id="a retry that worked counts"
        ),
    ],
)
def test_what_a_path_carries(
    samples: list[Sample], link: float | None, endpoint_rate: float | None, carries: float
) -> None:
    found = seen(*samples)
    assert (found.link, found.endpoint, found.bytes_per_second) == (link, endpoint_rate, carries)
    assert found.unreachable is None


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(sample(ONE, math.nan), id="not a number"),
        pytest.param(sample(ONE, math.inf), id="without end"),
        pytest.param(sample(ONE, -5.0), id="below zero"),
        pytest.param(sample(ONE, 0.0), id="zero, which a tool says when it failed"),
        pytest.param(sample(ONE, 1e15), id="more than any path carries"),
        pytest.param(sample(ONE, 100.0, serving_bytes_per_second=math.nan), id="serving bytes that are not a number"),
        pytest.param(sample(ONE, 100.0, serving_bytes_per_second=math.inf), id="serving bytes without end"),
        pytest.param(sample(ONE, 100.0, serving_bytes_per_second=-50.0), id="serving bytes below zero"),
    ],
)
def test_an_unbelievable_number_is_none(odd: Sample) -> None:
    found = seen(odd)
    assert (found.bytes_per_second, found.unreachable, found.answered) == (None, None, False)


@pytest.mark.parametrize("kind", list(FailureKind), ids=lambda kind: f"{kind}")
def test_only_faults_of_the_path_itself_make_it_unreachable(kind: FailureKind) -> None:
    found = seen(failed(ONE, kind))
    assert found.bytes_per_second is None
    assert (found.unreachable is not None) is (kind in FAULTS_OF_THE_PATH)


def test_the_faults_of_the_path_are_these() -> None:
    broken = {FailureKind.NO_ROUTE, FailureKind.STALLED_FLOW, FailureKind.PARTNER_SILENT, FailureKind.DATA_CORRUPT}
    assert broken == FAULTS_OF_THE_PATH


def test_no_number_of_the_link_makes_up_for_data_that_arrived_changed() -> None:
    corrupt = failed(ONE, FailureKind.DATA_CORRUPT, layer=Layer.ENDPOINT, tool="nixl")
    found = seen(sample(ONE, 100.0), corrupt)
    assert found.unreachable == corrupt.failure
    assert (found.bytes_per_second, found.answered) == (None, True)


def test_a_path_without_a_sample_stays_without_a_number() -> None:
    found = fabric(evidence([sample(ONE)]), PATHS)
    assert [rates.path for rates in found.paths] == list(PATHS)
    assert [rates.path for rates in found.measured] == [ONE]


@pytest.mark.parametrize(
    ("on_itself", "rate", "dead"),
    [
        pytest.param(sample("n1→n1", 8e9), 8e9, False, id="a number"),
        pytest.param(failed("n1→n1", FailureKind.NO_ROUTE), None, True, id="a failure of the path"),
        pytest.param(failed("n1→n1", FailureKind.ADDRESS_UNKNOWN), None, False, id="a companion that never came"),
    ],
)
def test_a_sample_from_a_node_to_itself_counts_as_any(on_itself: Sample, rate: float | None, dead: bool) -> None:
    whole = fabric(evidence([on_itself]), (path("n1→n1"), path("n1→n2")))
    found = whole.paths[0]
    assert (found.bytes_per_second, found.unreachable is not None) == (rate, dead)
    assert [p.path for p in whole.apart.paths] == [path("n1→n2")]
    assert whole.own.paths == (found,)


def test_paths_that_are_not_in_use_do_not_count() -> None:
    found = fabric(evidence([sample(ONE, 100.0), sample("x→y", 1.0)]), (ONE,))
    assert judged(found, 10) == 100.0


def test_worker_pods_weigh_the_judged_throughput() -> None:
    slow, fast = path("p1→d1"), path("p1→d2")
    swept = evidence([sample(slow, 50.0), sample(fast, 100.0)])
    assert judged(fabric(swept, (slow, fast)), 10) == 50.0
    assert judged(fabric(swept, (slow, fast), {slow: 1, fast: 19}), 10) == 100.0


@pytest.mark.parametrize(
    ("within", "weights", "percent", "rate"),
    [
        pytest.param(900.0, {}, 60, 50.0, id="fast, and nobody is known to use it"),
        pytest.param(20.0, {}, 50, 20.0, id="slow, and somebody may use it"),
        pytest.param(900.0, {"n1→n1": 19, "n1→n2": 1}, 60, 900.0, id="fast, and most pairs use it"),
    ],
)
def test_paths_within_a_node_raise_the_judged_throughput_only_where_worker_pairs_use_them(
    within: float, weights: dict[str, float], percent: float, rate: float
) -> None:
    own, between = path("n1→n1"), path("n1→n2")
    swept = evidence([sample(own, within), sample(between, 50.0)])
    seen = fabric(swept, (own, between), {path(name): weight for name, weight in weights.items()})
    assert judged(seen, percent) == judged(seen, percent, Layer.LINK) == rate


def test_the_worst_path_is_reported_whatever_its_weight() -> None:
    slow, fast = path("p1→d1"), path("p1→d2")
    found = slowest(fabric(evidence([sample(slow, 50.0), sample(fast, 100.0)]), (fast, slow), {slow: 0, fast: 1}))
    assert found is not None
    assert found.path == slow


def test_nothing_measured_has_no_judged_throughput_and_no_worst_path() -> None:
    assert judged(Fabric((PathRates(ONE),)), 10) is None
    assert slowest(Fabric((PathRates(ONE),))) is None


RATES = st.floats(1e-3, 1e13, allow_nan=False)
WEIGHTED = st.lists(st.tuples(RATES, st.floats(0.5, 100)), min_size=1, max_size=30)
PERCENT = st.floats(1, 100)


@given(WEIGHTED, PERCENT)
def test_the_percentile_is_one_of_the_values(weighted: list[tuple[float, float]], percent: float) -> None:
    assert lower_percentile(weighted, percent) in [value for value, _ in weighted]


@given(WEIGHTED, PERCENT, PERCENT)
def test_a_larger_percentile_is_never_smaller(weighted: list[tuple[float, float]], one: float, other: float) -> None:
    lower, upper = (lower_percentile(weighted, percent) for percent in sorted((one, other)))
    assert lower is not None
    assert upper is not None
    assert lower <= upper


@given(WEIGHTED, PERCENT)
def test_no_more_than_the_percentage_lies_below(weighted: list[tuple[float, float]], percent: float) -> None:
    found = lower_percentile(weighted, percent)
    assert found is not None
    below = sum(weight for value, weight in weighted if value < found)
    at_most = sum(weight for value, weight in weighted if value <= found)
    whole = sum(weight for _, weight in weighted)
    assert below <= percent / 100 * whole + 1e-6 <= at_most + 2e-6


@given(WEIGHTED, PERCENT, st.data())
def test_a_faster_path_never_lowers_the_percentile(
    weighted: list[tuple[float, float]], percent: float, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(weighted) - 1))
    faster = list(weighted)
    faster[index] = (weighted[index][0] * data.draw(st.floats(1, 100)), weighted[index][1])
    before, after = lower_percentile(weighted, percent), lower_percentile(faster, percent)
    assert before is not None
    assert after is not None
    assert before <= after


SAMPLES = st.lists(
    st.builds(
        lambda on, rate, phase, serving, layer: layer(on, rate, phase=phase, serving_bytes_per_second=serving),
        st.sampled_from(PATHS),
        RATES,
        st.sampled_from(Phase),
        st.none() | RATES,
        st.sampled_from([sample, endpoint]),
    )
    | st.builds(failed, st.sampled_from(PATHS), st.sampled_from(FailureKind)),
    max_size=20,
)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_no_number(samples: list[Sample], shuffler: Random) -> None:
    shuffled = list(samples)
    shuffler.shuffle(shuffled)
    before, after = (fabric(evidence(order), PATHS) for order in (samples, shuffled))
    told = [
        [(rates.path, rates.link, rates.endpoint, rates.answered) for rates in one.paths] for one in (before, after)
    ]
    assert told[0] == told[1]


@given(st.lists(RATES, min_size=4, max_size=4), st.integers(0, 3), st.floats(1, 10))
def test_a_faster_sample_never_lowers_what_its_path_carries(rates: list[float], index: int, factor: float) -> None:
    kinds = [(layer, phase) for layer in (sample, endpoint) for phase in Phase]
    samples = [layer(ONE, rate, phase=phase) for (layer, phase), rate in zip(kinds, rates, strict=True)]
    faster = list(samples)
    faster[index] = dataclasses.replace(samples[index], bytes_per_second=min(1e14, rates[index] * factor))
    before, after = seen(*samples).bytes_per_second, seen(*faster).bytes_per_second
    assert before is not None
    assert after is not None
    assert before <= after
