"""The trace that a pool names, found in its ConfigMap and known by the digest of its bytes."""

from __future__ import annotations

import base64
import gzip
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kvgate.api.pool import PoolSpec
from kvgate.api.status import PoolStatus
from kvgate.core.ab.evidence import TraceSeen
from kvgate.core.world import Pool
from kvgate.edge.objects import Source, sorted_by_kind
from kvgate.edge.traces import trace_seen
from tests.core.cases import spec

NOW = datetime(2026, 11, 30, tzinfo=UTC)
LINES = '{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}\n'
PACKED = gzip.compress(LINES.encode(), mtime=0)


def pool(key: str = "t") -> Pool:
    trace = {"configMapKeyRef": {"name": "trace", "key": key}}
    asked = spec({"criteria.routing": {"benchmark": {"targetRef": {"name": "staging"}, "trace": trace}}})
    assert isinstance(asked, PoolSpec)
    return Pool("qwen3", "serving", "uid", 1, asked, PoolStatus(), NOW)


def seen(body: dict[str, Any], asked: Pool, *, namespace: str = "serving", needed: bool = True) -> TraceSeen | None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trace", "namespace": namespace}} | body
    return trace_seen(asked, sorted_by_kind([Source(Path("trace.yaml"), 0, document, NOW)]), needed=needed)


@pytest.mark.parametrize(
    ("body", "held"),
    [
        pytest.param({"data": {"t": LINES}}, LINES.encode(), id="as text"),
        pytest.param({"binaryData": {"t": base64.b64encode(PACKED).decode()}}, PACKED, id="as gzip"),
    ],
)
def test_it_is_known_by_its_bytes(body: dict[str, Any], held: bytes) -> None:
    assert seen(body, pool()) == TraceSeen(hashlib.sha256(held).hexdigest())


@pytest.mark.parametrize(
    ("body", "key", "namespace"),
    [
        pytest.param({}, "t", "serving", id="an empty ConfigMap"),
        pytest.param({"data": {"t": LINES}}, "u", "serving", id="another key"),
        pytest.param({"data": {"t": LINES}}, "t", "elsewhere", id="another namespace"),
        pytest.param({"binaryData": {"t": "no base64"}}, "t", "serving", id="data that is none"),
        pytest.param({"binaryData": {"t": 7}}, "t", "serving", id="data that is no text"),
    ],
)
def test_one_that_is_not_there_is_told_with_who_must_act_or_not_looked_for(
    body: dict[str, Any], key: str, namespace: str
) -> None:
    found = seen(body, pool(key), namespace=namespace)
    assert found is not None
    assert found.digest == ""
    assert f"ConfigMap serving/trace, key {key}, does not exist; the pool's owner must create it" in found.problem
    assert seen(body, pool(key), namespace=namespace, needed=False) is None


def test_a_pool_that_names_none_has_none() -> None:
    named = pool()
    plain = Pool("qwen3", "serving", "uid", 1, spec({"criteria.routing": {}}), named.status, NOW)
    assert seen({"data": {"t": LINES}}, plain) is None
