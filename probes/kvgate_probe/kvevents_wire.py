"""The plan of the event probe as it stands in its ConfigMap: whom to listen to, for how long, and what is wanted."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from kvgate_probe.fields import Fields, WireError

MOST_ENDPOINTS = 1024
MOST_SECONDS = 600.0
_ADDRESS = re.compile(r"tcp://(\[[0-9a-fA-F:]+\]|[0-9.]+):([0-9]{1,5})")


@dataclass(frozen=True)
class Endpoint:
    """Where one rank of one worker publishes."""

    worker: str
    address: str
    rank: int | None = None


@dataclass(frozen=True)
class Plan:
    """Whom to listen to, for how long at most, and which block size in tokens is wanted (None: any)."""

    run_id: str
    seconds: float
    endpoints: tuple[Endpoint, ...]
    block_tokens: int | None = None


def ip_of(address: str) -> IPv4Address | IPv6Address | None:
    """The IP of a tcp://IP:PORT; None for anything else, since a name could be anybody's."""
    found = _ADDRESS.fullmatch(address)
    try:
        return ipaddress.ip_address(found[1].strip("[]")) if found and 0 < int(found[2]) < 65536 else None
    except ValueError:
        return None


def encode_plan(plan: Plan) -> str:
    """The same text for the same plan."""
    endpoints = [_written(endpoint) for endpoint in plan.endpoints]
    told: dict[str, object] = {"runID": plan.run_id, "seconds": plan.seconds, "endpoints": endpoints}
    return json.dumps(told | ({"blockTokens": plan.block_tokens} if plan.block_tokens else {}), sort_keys=True)


def _written(endpoint: Endpoint) -> dict[str, object]:
    told: dict[str, object] = {"worker": endpoint.worker, "address": endpoint.address}
    return told if endpoint.rank is None else told | {"rank": endpoint.rank}


def decode_plan(text: str) -> Plan:
    """Raises WireError."""
    fields = Fields.of(text, "plan")
    endpoints = tuple(_endpoint(entry) for entry in fields.objects("endpoints"))
    if not 1 <= len(endpoints) <= MOST_ENDPOINTS:
        raise WireError(f"plan: endpoints must be 1 to {MOST_ENDPOINTS}")
    block = fields.maybe_whole("blockTokens", least=1)
    return Plan(fields.name("runID"), fields.number("seconds", above=0, most=MOST_SECONDS), endpoints, block)


def _endpoint(fields: Fields) -> Endpoint:
    address = fields.text("address")
    if ip_of(address) is None:
        raise WireError(f"{fields.what}: address must be tcp://IP:PORT")
    return Endpoint(fields.name("worker"), address, fields.maybe_whole("rank"))
