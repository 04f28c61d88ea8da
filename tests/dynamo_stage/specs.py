"""What a frontend or a mock worker is to be like, and the command line and environment that make it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.dynamo_stage import model


class Role(StrEnum):
    """`--disaggregation-mode` of a worker."""

    AGGREGATED = "agg"
    PREFILL = "prefill"
    DECODE = "decode"


class RouterMode(StrEnum):
    ROUND_ROBIN = "round-robin"
    KV = "kv"


NAMESPACE = "demo"
BYTES_PER_GIGABYTE = 1_000_000_000
LOADING = "import runpy, time; time.sleep({seconds}); runpy.run_module('dynamo.mocker', run_name='__main__')"


@dataclass(frozen=True)
class Frontend:
    """A frontend with its router; `prefix` makes it serve every generation of the namespace, as the operator does."""

    router_mode: str = RouterMode.ROUND_ROBIN
    namespace: str = NAMESPACE
    prefix: bool = True
    kv_events: bool = True
    migration_limit: int = 3
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, port: int, address: str) -> tuple[str, ...]:
        words = ["-m", "dynamo.frontend", "--http-host", address, "--http-port", str(port)]
        words += ["--router-mode", self.router_mode] if self.router_mode else []
        words += [] if self.kv_events else ["--no-router-kv-events"]
        words += ["--migration-limit", str(self.migration_limit)]
        words += ["--namespace-prefix" if self.prefix else "--namespace", self.namespace] if self.namespace else []
        return (*words, *self.arguments)

    def variables(self) -> dict[str, str]:
        return dict(self.environment)


@dataclass(frozen=True)
class Worker:
    """One mock worker; `generation` is the suffix that the operator derives from the hash of all workers.

    `claims_events`, when set, is what the model card says of KV events, whatever the worker does. A `silent` worker has
    a registered source on whose ZMQ endpoint its engine never speaks; it caches no prefix. `router_mode`, when set, is
    advertised and wins over the frontend's. `kv_transfer_bytes_per_second` acts on a prefill worker; zero is no
    delay. `loading_seconds` pass before the worker is known to anybody, as while weights are loaded (the mocker's own
    `--startup-time` delays answers, not readiness). `replay` is a trace of `tests.dynamo_stage.replay`.
    """

    role: Role = Role.AGGREGATED
    namespace: str = NAMESPACE
    model_name: str = model.NAME
    generation: str = ""
    prefix_caching: bool = True
    claims_events: bool | None = None
    silent: bool = False
    block_size_tokens: int = model.BLOCK_SIZE_TOKENS
    blocks: int = 4096
    speedup: float = 10.0
    router_mode: str = ""
    kv_bytes_per_token: int | None = None
    kv_transfer_bytes_per_second: float | None = None
    loading_seconds: float = 0.0
    replay: Path | None = None
    zmq_events: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, model_directory: Path | str, zmq_port: int) -> tuple[str, ...]:
        words = [*self._program(), "--model-path", str(model_directory), "--model-name", self.model_name]
        words += ["--block-size", str(self.block_size_tokens), "--num-gpu-blocks-override", str(self.blocks)]
        words += ["--speedup-ratio", f"{self.speedup:g}", "--disaggregation-mode", self.role]
        words += [] if self.prefix_caching and not self.silent else ["--no-enable-prefix-caching"]
        words += ["--router-mode", self.router_mode] if self.router_mode else []
        words += self._costs()
        words += ["--response-replay-trace-path", str(self.replay)] if self.replay else []
        words += ["--zmq-kv-events-ports", str(zmq_port)] if self.zmq_events else []
        return (*words, *self.arguments)

    def _program(self) -> tuple[str, ...]:
        if self.claim:
            return (str(Path(__file__).with_name("claims.py")),)
        return ("-c", LOADING.format(seconds=self.loading_seconds)) if self.loading_seconds else ("-m", "dynamo.mocker")

    @property
    def claim(self) -> str:
        """The word for `claims.py`; empty for the mocker as it is."""
        if self.silent:
            return "silent"
        return "" if self.claims_events is None else "on" if self.claims_events else "off"

    def _costs(self) -> list[str]:
        bandwidth = self.kv_transfer_bytes_per_second
        words = [] if self.kv_bytes_per_token is None else ["--kv-bytes-per-token", str(self.kv_bytes_per_token)]
        return words + ([] if bandwidth is None else ["--kv-transfer-bandwidth", f"{bandwidth / BYTES_PER_GIGABYTE:g}"])

    def variables(self, zmq_port: int) -> dict[str, str]:
        named = {"DYN_NAMESPACE": self.namespace} if self.namespace else {}
        suffix = {"DYN_NAMESPACE_WORKER_SUFFIX": self.generation} if self.generation else {}
        heard = f"tcp://127.0.0.1:{zmq_port}"
        claim = {"KVGATE_TEST_CLAIM": self.claim, "KVGATE_TEST_ENGINE_EVENTS": heard} if self.claim else {}
        return {**named, **suffix, **claim, **self.environment}
