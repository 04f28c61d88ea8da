"""What one worker's flags and environment say: engine, model, block size, parallelism and KV transfer."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.dynamo.argv import CommandLine
from kvgate.dynamo.document import at, parsed_json, sequence, text, whole
from kvgate.dynamo.words import Engine

_ENGINE_OF_MODULE = {f"dynamo.{engine}": engine for engine in Engine if engine is not Engine.UNKNOWN}
_MODEL_FLAGS = ("--model", "--model-path")
_BLOCK_FLAGS = ("--block-size", "--page-size", "--kv-block-size")
_TENSOR_FLAGS = ("--tensor-parallel-size", "--tp-size", "--tp", "-tp")
_LENGTH_FLAGS = ("--max-model-len", "--context-length", "--max-seq-len")
_TRANSFER_FLAG = "--kv-transfer-config"


@dataclass(frozen=True)
class EngineSettings:
    """Sizes are None where the spec leaves them to the engine."""

    engine: Engine
    model: str
    served_model: str
    block_tokens: int | None
    tensor_parallel: int | None
    max_model_tokens: int | None
    kv_dtype: str
    kv_transfer: bool
    kv_connector: str
    kv_backends: tuple[str, ...]


def read_engine(line: CommandLine, framework: str) -> EngineSettings:
    engine = engine_of(line.module, framework)
    model = line.value(*_MODEL_FLAGS)
    connector, backends = _transfer(line)
    return EngineSettings(
        engine=engine,
        model=model,
        served_model=line.value("--served-model-name", "--model-name") or model,
        block_tokens=whole(line.value(*_BLOCK_FLAGS)),
        tensor_parallel=whole(line.value(*_TENSOR_FLAGS)),
        max_model_tokens=whole(line.value(*_LENGTH_FLAGS)),
        kv_dtype=line.value("--kv-cache-dtype"),
        kv_transfer=bool(connector) or (engine is Engine.SGLANG and line.has("--disaggregation-transfer-backend")),
        kv_connector=connector or line.value("--disaggregation-transfer-backend"),
        kv_backends=backends,
    )


def engine_of(module: str, framework: str) -> Engine:
    named = _ENGINE_OF_MODULE.get(module)
    if named is not None:
        return named
    return Engine(framework) if not module and framework in tuple(Engine) else Engine.UNKNOWN


def _transfer(line: CommandLine) -> tuple[str, tuple[str, ...]]:
    """Connector and NIXL backends of --kv-transfer-config; an empty connector when there is no usable one."""
    config = parsed_json(line.value(_TRANSFER_FLAG))
    if config is None:
        return "", ()
    backends = sequence(at(config, "kv_connector_extra_config", "backends"))
    return text(config.get("kv_connector")), tuple(text(backend) for backend in backends if text(backend))
