"""What a pool's spec asks of each meeting of two walkers: the test of the link, and what comes after it."""

from __future__ import annotations

from kvgate.api.pool import EndpointProbe, LinkProbe, Probe
from kvgate.api.words import EndpointTool
from kvgate.core.descriptors import USUAL_BYTES
from kvgate_probe.wire import Step


def further_steps(probe: Probe, descriptor_bytes: int | None) -> tuple[Step, ...]:
    """The tests that follow the link's first one: one stream where that is asked for, and the KV transport itself, by
    pieces of so many bytes."""
    return (*_single_stream(probe.link), *_endpoint(probe.endpoint, descriptor_bytes or USUAL_BYTES))


def _single_stream(link: LinkProbe) -> tuple[Step, ...]:
    if not link.single_stream or link.streams == 1:
        return ()
    return (Step(link.tool.value, 1, link.duration.seconds),)


def _endpoint(endpoint: EndpointProbe, piece_bytes: int) -> tuple[Step, ...]:
    if endpoint.tool is EndpointTool.NONE:
        return ()
    operation = endpoint.operation.value if endpoint.tool is EndpointTool.NIXL else ""
    return (Step(endpoint.tool.value, 1, endpoint.duration.seconds, piece_bytes, operation),)


def memory_for(probe: Probe) -> str:
    """The limit of a walker's container: NIXL and its libraries take more than iperf3 and ucx_perftest do."""
    return "768Mi" if probe.endpoint.tool is EndpointTool.NIXL else "256Mi"
