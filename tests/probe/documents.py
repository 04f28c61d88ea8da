"""Real iperf3 documents as a base, and changes to them that play what the field has seen."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from kvgate.probe.measured import Expected

DATA = Path(__file__).parent / "data"
REAL_CLIENT = (DATA / "iperf3-3.12-client.json").read_text()
REAL_SERVER = (DATA / "iperf3-3.12-server.json").read_text()
Document = dict[str, Any]


def real_expected() -> Expected:
    return Expected(remote_address="127.0.0.1", planned_seconds=3, streams=2)


def finished(bits_per_second: float = 9.4e9, seconds: int = 10, streams: int = 1, host: str = "10.0.0.2") -> Document:
    """A finished TCP document in the shape that iperf3 3.12 printed here, with other numbers."""
    document: Document = copy.deepcopy(json.loads(REAL_CLIENT))
    sent = round(bits_per_second / 8 * seconds)
    start, end = document["start"], document["end"]
    one = start["connected"][0] | {"local_host": "10.0.0.1", "remote_host": host}
    start["connected"] = [one] * streams
    start["test_start"] |= {"num_streams": streams, "duration": seconds}
    start["tcp_mss_default"] = 1448
    template = document["intervals"][0]["sum"]
    document["intervals"] = [
        {"streams": [], "sum": template | _span(second, second + 1, bits_per_second)} for second in range(seconds)
    ]
    whole = _span(0, seconds, bits_per_second)
    end["sum_sent"] |= whole | {"retransmits": 0}
    end["sum_received"] |= whole
    share = {"bits_per_second": bits_per_second / streams, "bytes": sent // streams}
    end["streams"] = [{"sender": share, "receiver": share} for _ in range(streams)]
    return document


def _span(start: float, end: float, bits_per_second: float) -> Document:
    seconds = end - start
    moved = round(bits_per_second / 8 * seconds)
    return {"start": start, "end": end, "seconds": seconds, "bytes": moved, "bits_per_second": bits_per_second}


def text_of(document: Document) -> str:
    return json.dumps(document, indent="\t")


def expected(**changes: Any) -> Expected:
    values: dict[str, Any] = {"remote_address": "10.0.0.2", "planned_seconds": 10, "streams": 1}
    return Expected(**(values | changes))
