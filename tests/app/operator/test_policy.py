"""What the settings say of probes reaches whoever starts sweeps: each field, and none by another's name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kvgate.app.operator.cluster import probe_policy
from kvgate.app.settings import Settings, read_settings
from kvgate.edge.cluster.sweeps import ProbePolicy

POLICIES = {
    "the defaults": ("{}", ProbePolicy(most_sweeps=1, least_interval=timedelta(hours=1))),
    "a limit on sweeps at a time": (
        "probe: {maxConcurrentSweeps: 3}",
        ProbePolicy(most_sweeps=3, least_interval=timedelta(hours=1)),
    ),
    "a least interval": ("probe: {minInterval: 90m}", ProbePolicy(least_interval=timedelta(minutes=90))),
    "a limit on bytes": (
        "probe: {maxBytesPerSweep: 2GiB, image: 'probe:1', allowHostNetwork: true}",
        ProbePolicy("probe:1", None, allow_host_network=True, least_interval=timedelta(hours=1), most_bytes=2**31),
    ),
}


@pytest.mark.parametrize(("text", "policy"), POLICIES.values(), ids=POLICIES)
def test_settings_become_a_policy(text: str, policy: ProbePolicy) -> None:
    settings = read_settings(text)
    assert isinstance(settings, Settings)
    assert probe_policy(settings) == policy
