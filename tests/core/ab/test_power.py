"""Tokens per joule: watts over time, tokens over joules, and everything for which there is no number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.core.ab.experiment import Arm, Experiment, Fault
from kvgate.core.ab.power import Gpu, NoPower, joules, served_tokens, tokens_per_joule
from tests.core.ab.trials import experiment, failing

RUN_SECONDS = 40.0


def timed(found: Experiment) -> Experiment:
    """Runs of 40 s, one every 50 s from second 1000 on; each answer has 16 tokens."""
    return replace(
        found,
        runs=tuple(
            replace(
                run,
                began_at=1000 + 50 * place,
                ended_at=1040 + 50 * place,
                requests=tuple(replace(request, answer_tokens=16) for request in run.requests),
            )
            for place, run in enumerate(found.runs)
        ),
    )


AB = timed(experiment(blocks=2))
"""Round-robin, KV, round-robin, KV."""


def gpu(name: str = "GPU-1", pod: str = "w1", *, watts: float = 100.0, every: float = 10.0) -> Gpu:
    """The same watts all along, KV's runs at half of them."""
    moments = [1000 + every * number for number in range(int(200 / every))]
    return Gpu(name, pod, tuple((at, watts / 2 if (at - 1000) % 100 >= 50 else watts) for at in moments))


def spoilt(**changes: float) -> Gpu:
    """With other watts in the sample at 1020."""
    plain = gpu()
    watts = changes["watts"]
    return replace(plain, samples=tuple((at, watts if at == 1020 else was) for at, was in plain.samples))


@pytest.mark.parametrize(
    ("samples", "energy"),
    [
        pytest.param(((0.0, 100.0), (40.0, 100.0)), 4000.0, id="a steady draw"),
        pytest.param(((0.0, 100.0), (40.0, 200.0)), 6000.0, id="a rising one is a trapezoid"),
        pytest.param(((10.0, 100.0), (30.0, 200.0)), 1000.0 + 3000.0 + 2000.0, id="the outermost stand to the ends"),
        pytest.param(((-5.0, 900.0), (0.0, 100.0), (40.0, 100.0), (41.0, 900.0)), 4000.0, id="others' time is none"),
    ],
)
def test_joules_are_watts_over_the_time(samples: tuple[tuple[float, float], ...], energy: float) -> None:
    assert joules(Gpu("g", "w1", samples), 0.0, RUN_SECONDS) == pytest.approx(energy)


def test_tokens_of_an_arm_are_over_the_joules_of_all_its_gpus() -> None:
    found = tokens_per_joule(AB, (gpu(), gpu("GPU-2", "w2", watts=300.0)), ("w1", "w2"))
    tokens = 2 * 130 * (1000 + 16)
    spent = 2 * RUN_SECONDS * 400
    assert not isinstance(found, NoPower)
    assert dict(found) == {"RoundRobin": pytest.approx(tokens / spent), "KV": pytest.approx(2 * tokens / spent)}


def test_a_failed_request_drew_power_and_brought_no_token() -> None:
    runs = tuple(replace(r, requests=(failing(Fault.TIMEOUT)(r.requests[0]), *r.requests[1:])) for r in AB.runs)
    assert served_tokens(replace(AB, runs=runs).of(Arm.KV)) == 2 * 129 * 1016


@pytest.mark.parametrize(
    ("gpus", "pods", "why"),
    [
        pytest.param((), ("w1",), "1 of 1 worker pods have no power: w1", id="no series"),
        pytest.param((), (), "no worker pod is known", id="no worker"),
        pytest.param((gpu(),), ("w1", "w2"), "1 of 2 worker pods have no power: w2", id="one worker without"),
        pytest.param((gpu(), gpu(pod="w2")), ("w1", "w2"), "shared, or scraped twice", id="one GPU, two pods"),
        pytest.param((spoilt(watts=0.0),), ("w1",), "watts that no GPU draws", id="zero"),
        pytest.param((spoilt(watts=-1.0),), ("w1",), "watts that no GPU draws", id="below zero"),
        pytest.param((spoilt(watts=float("nan")),), ("w1",), "watts that no GPU draws", id="not a number"),
        pytest.param((spoilt(watts=float("inf")),), ("w1",), "watts that no GPU draws", id="infinite"),
        pytest.param((spoilt(watts=9e7),), ("w1",), "watts that no GPU draws", id="milliwatts taken for watts"),
        pytest.param(
            (gpu(every=50.0),), ("w1",), "has 1 samples, 2 are needed in RoundRobin of block 0", id="scraped too seldom"
        ),
        pytest.param(
            (replace(gpu(), samples=gpu().samples[:9]),),
            ("w1",),
            "has 0 samples, 2 are needed in RoundRobin of block 1",
            id="gone half-way",
        ),
    ],
)
def test_what_is_not_plain_is_no_number(gpus: tuple[Gpu, ...], pods: tuple[str, ...], why: str) -> None:
    found = tokens_per_joule(AB, gpus, pods)
    assert isinstance(found, NoPower), found
    assert why in found.message


def test_a_gap_within_a_long_run_is_stale() -> None:
    found = joules(Gpu("g", "w1", ((0.0, 100.0), (20.0, 100.0), (81.0, 100.0), (100.0, 100.0))), 0.0, 100.0)
    assert isinstance(found, NoPower)
    assert "has none for 61 s, 60 s are borne" in found.message
