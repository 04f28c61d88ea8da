"""An experiment as rows of JSON, and back: every wrong field is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kvgate.core.ab.evidence import BenchmarkEvidence, Provenance, Subject
from kvgate.core.ab.experiment import Arm, Calibration, Experiment, Fault, Identity, Request, Run, Workload

Body = dict[str, Any]
_LARGEST = 1 << 53
_DIGITS = 6
"""Microseconds: what a request's times are kept to."""


def frame_out(evidence: BenchmarkEvidence) -> Body:
    """All but the requests."""
    experiment = evidence.experiment
    return {
        "measuredAt": evidence.measured_at.isoformat(),
        "subject": asdict(evidence.subject),
        "provenance": asdict(evidence.provenance),
        "workload": experiment.workload.value,
        "blocks": experiment.blocks,
        "timeoutSeconds": experiment.timeout_seconds,
        "blockTokens": experiment.block_tokens,
        "templateTokens": experiment.template_tokens,
        "before": asdict(experiment.before),
        "after": asdict(experiment.after),
        "calibration": [asdict(entry) for entry in experiment.calibration],
        "aborted": experiment.aborted,
    }


def run_out(run: Run) -> Body:
    """Requests as rows: worker names, which repeat, stand once."""
    names = sorted({request.worker for request in run.requests})
    places = {name: place for place, name in enumerate(names)}
    return {
        "block": run.block,
        "arm": run.arm.value,
        "offered": run.offered,
        "kvFamilies": list(run.kv_families),
        "beganAt": run.began_at,
        "endedAt": run.ended_at,
        "workers": names,
        "requests": [_row(request, places) for request in run.requests],
    }


def _row(request: Request, places: Mapping[str, int]) -> list[object]:
    return [
        request.family,
        _rounded(request.arrival_seconds),
        request.prompt_tokens,
        request.repeated_tokens,
        _rounded(request.first_token_seconds),
        _rounded(request.token_gap_seconds),
        request.cached_tokens,
        request.overlap_tokens,
        places[request.worker],
        None if request.fault is None else request.fault.value,
        request.answer_tokens,
    ]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, _DIGITS)


def experiment_in(frame: Mapping[str, Any], runs: list[Body]) -> Experiment:
    """Raises ValueError, TypeError or KeyError for anything that is no experiment."""
    return Experiment(
        workload=Workload(frame["workload"]),
        blocks=whole(frame["blocks"]),
        runs=tuple(_run_in(body) for body in runs),
        timeout_seconds=number(frame["timeoutSeconds"]),
        block_tokens=whole(frame["blockTokens"]),
        template_tokens=whole(frame["templateTokens"]),
        before=_identity_in(frame["before"]),
        after=_identity_in(frame["after"]),
        calibration=tuple(_calibration_in(entry) for entry in frame["calibration"]),
        aborted=text(frame["aborted"]),
    )


def subject_in(body: Mapping[str, Any]) -> Subject:
    return Subject(text(body["target_uid"]), text(body["projection"]), text(body["split"]), text(body["workload"]))


def provenance_in(body: Mapping[str, Any]) -> Provenance:
    live = body["live_requests_per_second"]
    return Provenance(
        seed=whole(body["seed"]),
        ran_on=text(body["ran_on"]),
        live=flag(body["live"]),
        requests_per_second=number(body["requests_per_second"]),
        live_requests_per_second=None if live is None else number(live),
        versions=tuple(text(entry) for entry in body["versions"]),
        tokens_per_joule=tuple((text(arm), number(value)) for arm, value in body["tokens_per_joule"]),
        no_power=text(body["no_power"]),
    )


def _identity_in(body: Mapping[str, Any]) -> Identity:
    return Identity(whole(body["generation"]), tuple(text(name) for name in body["workers"]), text(body["cards"]))


def _calibration_in(body: Mapping[str, Any]) -> Calibration:
    return Calibration(text(body["worker"]), number(body["miss_seconds"]), number(body["hit_seconds"]))


def _run_in(body: Mapping[str, Any]) -> Run:
    names = [text(name) for name in body["workers"]]
    return Run(
        block=whole(body["block"]),
        arm=Arm(body["arm"]),
        offered=whole(body["offered"]),
        requests=tuple(_request_in(row, names) for row in body["requests"]),
        kv_families=tuple(text(name) for name in body["kvFamilies"]),
        began_at=number(body["beganAt"]),
        ended_at=number(body["endedAt"]),
    )


def _request_in(row: list[Any], names: list[str]) -> Request:
    family, arrival, prompt, repeated, first, gap, cached, overlap, worker, fault, answer = row
    return Request(
        family=whole(family),
        arrival_seconds=number(arrival),
        prompt_tokens=whole(prompt),
        repeated_tokens=whole(repeated),
        first_token_seconds=None if first is None else number(first),
        token_gap_seconds=None if gap is None else number(gap),
        cached_tokens=None if cached is None else whole(cached),
        overlap_tokens=None if overlap is None else whole(overlap),
        worker=names[whole(worker)],
        fault=None if fault is None else Fault(fault),
        answer_tokens=whole(answer),
    )


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("flag")
    return value


def whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError("whole number")
    return value


def number(value: object) -> float:
    """Finite, not negative, and no larger than what JSON readers keep exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise ValueError("number")
    return float(value)
