"""What a component of a DynamoGraphDeployment would run, said as a real frontend or as a mock worker.

Of a vLLM worker's command line and environment these count: the role (`--disaggregation-mode` before
DYN_VLLM_DISAGGREGATION_MODE), `--kv-transfer-config` (a prefill worker without it ends at once, as vllm/args.py has
it), `--kv-events-config` with `enable_kv_cache_events` and its port, `--[no-]enable-prefix-caching`, `--block-size`,
`--served-model-name` or `--model`, `--router-mode` and DYN_ROUTER_MODE (advertised). Of a frontend: `--router-mode`,
`--[no-]router-kv-events`, `--migration-limit`, and every DYN_ variable as it is. A worker that caches prefixes but
publishes no events becomes one that does neither: the mocker ties these together.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from tests.dynamo_stage import model
from tests.dynamo_stage.specs import Frontend, Role, Worker
from tests.dynamo_stage.standin.batches import Batch

MODE = "DYN_VLLM_DISAGGREGATION_MODE"
EVENTS_PORT = 20080
_ROLES = {"agg": Role.AGGREGATED, "pd": Role.AGGREGATED, "prefill": Role.PREFILL, "decode": Role.DECODE}
_NAMES = ("DYN_NAMESPACE", "DYN_NAMESPACE_WORKER_SUFFIX", "DYN_NAMESPACE_PREFIX", MODE)


@dataclass(frozen=True)
class Refused:
    """What the engine would say before it ends with an error."""

    message: str


def frontend_of(batch: Batch) -> Frontend:
    words, environment = batch.component.words, _dynamo_variables(batch)
    limit = value(words, "--migration-limit") or environment.pop("DYN_MIGRATION_LIMIT", "0")
    return Frontend(
        router_mode=value(words, "--router-mode"),
        namespace=batch.graph.dynamo_namespace,
        kv_events=not {"--no-router-kv-events", "--no-kv-events"} & set(words),
        migration_limit=int(limit),
        environment=environment,
    )


def worker_of(batch: Batch) -> Worker | Refused:
    words, environment = batch.component.words, _dynamo_variables(batch)
    written = value(words, "--disaggregation-mode") or batch.component.environment.get(MODE, "agg")
    role = _ROLES.get(written)
    if role is None:
        return Refused(f"invalid disaggregation mode {written}")
    if role is Role.PREFILL and not value(words, "--kv-transfer-config"):
        return Refused("a prefill worker needs --kv-transfer-config")
    events = publishes(words)
    return Worker(
        role=role,
        namespace=batch.graph.dynamo_namespace,
        model_name=value(words, "--served-model-name") or value(words, "--model") or model.NAME,
        generation=batch.key.generation,
        prefix_caching=events and "--no-enable-prefix-caching" not in words,
        block_size_tokens=int(value(words, "--block-size") or model.BLOCK_SIZE_TOKENS),
        router_mode=value(words, "--router-mode"),
        zmq_events=events and role is not Role.DECODE,
        environment=environment,
    )


def publishes(words: Sequence[str]) -> bool:
    """Whether `--kv-events-config` switches events on; without it vLLM publishes none."""
    written = value(words, "--kv-events-config")
    return bool(written) and bool(json.loads(written).get("enable_kv_cache_events"))


def events_port(words: Sequence[str]) -> int:
    """The port of the engine's own ZMQ endpoint."""
    written = value(words, "--kv-events-config")
    endpoint = json.loads(written).get("endpoint", "") if written else ""
    return urlsplit(endpoint.replace("*", "any")).port or EVENTS_PORT


def value(words: Sequence[str], flag: str) -> str:
    """The last value of a flag, written as `--flag value` or `--flag=value`; empty where there is none."""
    pairs = [after for before, after in pairwise(words) if before == flag]
    joined = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    return (pairs + joined or [""])[-1]


def _dynamo_variables(batch: Batch) -> dict[str, str]:
    held = batch.component.environment
    return {name: text for name, text in held.items() if name.startswith("DYN_") and name not in _NAMES}
