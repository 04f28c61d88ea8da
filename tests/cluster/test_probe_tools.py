"""Link and endpoint in one meeting of two pods, with the tools of the probe's own image."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.core.evidence import Layer, Sample
from kvgate.probe.results import Setting, read_logs
from kvgate_probe.wire import Schedule, Step, encode_result
from tests.cluster.harness import Cluster
from tests.cluster.images import probe_image
from tests.cluster.test_nodes import PAYLOAD_SHARE, TOLERANCE
from tests.cluster.walker_jobs import Walked, both_ways, finish, start_walkers, tell_peers

pytestmark = pytest.mark.cluster

READ = Step("ucx_get", 1, 3.0, piece_bytes=32_768)
MOST_COMPRESSED_BYTES = 60 << 20
LEAST_SHARE = 0.75
"""Of the link: a busy machine takes from a READ, which one thread copies."""
NODES = ("n1", "n2")


def samples(schedule: Schedule, walked: Mapping[str, Walked], addresses: Mapping[str, str]) -> tuple[Sample, ...]:
    logs = {node: "\n".join(map(encode_result, one.results)) for node, one in walked.items()}
    known = {node: frozenset({address}) for node, address in addresses.items()}
    return read_logs(schedule, logs, Setting(datetime.now(UTC), known)).samples


def test_two_restricted_pods_measure_the_link_and_then_the_endpoint(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    access, namespace = cluster.access, "walk-endpoint"
    schedule = replace(both_ways("run-endpoint", *NODES, 3.0), further=(READ,))
    start_walkers(access, namespace, schedule, NODES)
    addresses = tell_peers(access, namespace)
    walked = finish(access, namespace, NODES, 90)
    access.kubectl("delete", "namespace", namespace, "--wait=false", check=True)

    found = samples(schedule, walked, addresses)
    with capsys.disabled():
        print(
            [(f"{s.path} {s.tool}", s.bytes_per_second, s.round_trip_seconds, s.set_up_seconds) for s in found], end=" "
        )
    assert [sample.layer for sample in found] == [Layer.LINK, Layer.ENDPOINT] * 2
    for sample in found:
        assert sample.failure is None
        assert LEAST_SHARE < (sample.bytes_per_second or 0) / (1e9 / 8 * PAYLOAD_SHARE) < 1 + TOLERANCE
        assert (sample.interface, sample.mtu) == ("eth0", 1500)
        assert (sample.interface_bytes or 0) >= (sample.bytes_moved or 0) > 0
    assert {sample.lanes for sample in found if sample.layer is Layer.ENDPOINT} == {("tcp/eth0",)}


def test_the_image_is_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = probe_image(tmp_path)
    squeezer, size = zlib.compressobj(6), 0
    with packed.open("rb") as archive:
        while block := archive.read(1 << 20):
            size += len(squeezer.compress(block))
    size += len(squeezer.flush())
    with capsys.disabled():
        print(f"\nthe probe's image: {size / 2**20:.1f} MiB compressed", end=" ")
    assert size <= MOST_COMPRESSED_BYTES
