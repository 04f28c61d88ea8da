"""Finds the one finished JSON document in what iperf3 printed, or says why there is none."""

from __future__ import annotations

import json
from typing import NoReturn

from kvgate.core.evidence import Failure, FailureKind
from kvgate.probe.iperf3_errors import classify
from kvgate_probe.fields import Fields


class Refused(Exception):  # noqa: N818 -- a verdict on a document, raised to leave the guard at once
    """A document that is no measurement; carries the failure that the sample will show."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)


def read_document(text: str) -> tuple[Fields, str]:
    """The document's fields and its exact text. Raises Refused; an exit code is never asked."""
    start = text.find("{")
    if start < 0:
        raise Refused(FailureKind.UNREADABLE, f"iperf3's output holds no JSON ({len(text)} characters)")
    values, end = _first_object(text, start)
    if "event" in values:
        raise Refused(FailureKind.UNREADABLE, "iperf3 printed a stream of events, not one finished document")
    _refuse_error(values)
    before, after = text[:start].strip(), text[end:].strip()
    if "{" in after:
        raise Refused(FailureKind.AMBIGUOUS, "iperf3's output holds more than one document")
    if before or after:
        where = "after" if after else "before"
        message = f"{len(after or before)} characters of text {where} iperf3's document: the test ended badly"
        raise Refused(FailureKind.UNREADABLE, message)
    return Fields("iperf3", values), text[start:end]


def _first_object(text: str, start: int) -> tuple[dict[str, object], int]:
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    try:
        values, end = decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        message = f"iperf3's JSON is broken or cut short ({len(text)} characters)"
        raise Refused(FailureKind.UNREADABLE, message) from None
    return values, end


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no numbers")


def _refuse_error(values: dict[str, object]) -> None:
    if "error" in values:
        failure = classify(str(values["error"]))
        raise Refused(failure.kind, failure.message)
