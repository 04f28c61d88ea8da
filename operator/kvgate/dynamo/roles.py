"""Who a component is and how it routes: a flag beats the environment, the environment beats the type."""

from __future__ import annotations

from kvgate.dynamo.argv import CommandLine
from kvgate.dynamo.container import EnvEntry
from kvgate.dynamo.document import whole
from kvgate.dynamo.words import (
    MIGRATION_ENV,
    MIGRATION_FLAG,
    ROLE_FLAG,
    ROUTER_ENV,
    ROUTER_FLAG,
    SPLIT_ENV,
    Engine,
    Role,
    RouterMode,
    Source,
)

_ROLE_ENV = {Engine.VLLM: SPLIT_ENV, Engine.TRTLLM: "DYN_TRTLLM_DISAGGREGATION_MODE"}
_ROLES = {
    "agg": Role.AGGREGATED,
    "pd": Role.AGGREGATED,
    "prefill": Role.PREFILL,
    "decode": Role.DECODE,
    "encode": Role.ENCODE,
}
_OLD_ROLE_FLAGS = {"--is-prefill-worker": Role.PREFILL, "--is-decode-worker": Role.DECODE}
_OTHER_MODULES = frozenset({"dynamo.planner", "dynamo.router", "dynamo.global_planner", "dynamo.profiler"})
_OTHER_TYPES = frozenset({"planner", "epp"})
_APPROXIMATE_FLAGS = ("--no-router-kv-events", "--no-kv-events")
_APPROXIMATE_ENVS = ("DYN_ROUTER_USE_KV_EVENTS", "DYN_KV_EVENTS")
_FALSE = frozenset({"false", "0", "no", "off"})


def is_frontend(kind: str, line: CommandLine) -> bool:
    """By the module that runs; a type alone counts only where the operator's default command runs."""
    return line.module == "dynamo.frontend" or (kind == "frontend" and not line.module)


def role_of(kind: str, line: CommandLine, env: tuple[EnvEntry, ...], engine: Engine) -> tuple[Role, Source]:
    if is_frontend(kind, line):
        return Role.FRONTEND, Source.ARGS if line.module else Source.TYPE
    if kind in _OTHER_TYPES or line.module in _OTHER_MODULES:
        return Role.OTHER, Source.TYPE
    return (
        _role_by_flag(line)
        or _role_by_env(env, engine)
        or _role_by_type(kind)
        or (_default_role(line, engine), Source.DEFAULT)
    )


def role_flags(line: CommandLine) -> tuple[str, ...]:
    """Names of the flags that fix the role in this command line."""
    named = [ROLE_FLAG] if line.gated_flag(ROLE_FLAG) else []
    return (*named, *(flag for flag in _OLD_ROLE_FLAGS if line.has(flag)))


def words_of(role: Role) -> frozenset[str]:
    """Every value of a worker's flag or variable that gives it this role."""
    return frozenset(word for word, given in _ROLES.items() if given is role)


def frontend_mode(line: CommandLine, env: tuple[EnvEntry, ...]) -> tuple[RouterMode, Source]:
    """How a frontend routes by its own settings; a worker's advertisement is not seen here."""
    mode, source = _stated_mode(line, env)
    if mode is RouterMode.KV and ignores_events(line, env):
        return RouterMode.KV_APPROXIMATE, source
    return mode, source


def advertised_mode(line: CommandLine, env: tuple[EnvEntry, ...]) -> str:
    """The router mode that a worker puts into its model card, where it beats the frontend's; or empty."""
    flag = line.gated_flag(ROUTER_FLAG)
    if flag is not None:
        return flag.value or RouterMode.UNKNOWN
    entry = _entry(env, ROUTER_ENV)
    if entry is None:
        return RouterMode.UNKNOWN if line.assigns(ROUTER_ENV) else ""
    return entry.value if entry.readable else RouterMode.UNKNOWN


def migration_limit(line: CommandLine, env: tuple[EnvEntry, ...]) -> int | None:
    """How often a request may move to another worker; None when it can't be read; 0 is Dynamo's default."""
    flag = line.flag(MIGRATION_FLAG)
    if flag is not None:
        return whole(flag.value)
    entry = _entry(env, MIGRATION_ENV)
    if entry is None:
        return 0
    return whole(entry.value) if entry.readable else None


def _entry(env: tuple[EnvEntry, ...], name: str) -> EnvEntry | None:
    found = [entry for entry in env if entry.name == name]
    return found[-1] if found else None


def _role_by_flag(line: CommandLine) -> tuple[Role, Source] | None:
    flag = line.gated_flag(ROLE_FLAG)
    if flag is not None:
        return _ROLES.get(flag.value, Role.UNKNOWN), Source.ARGS
    for old, role in _OLD_ROLE_FLAGS.items():
        if line.has(old):
            return role, Source.ARGS
    return None


def _role_by_env(env: tuple[EnvEntry, ...], engine: Engine) -> tuple[Role, Source] | None:
    entry = _entry(env, _ROLE_ENV.get(engine, ""))
    if entry is None:
        return None
    return _ROLES.get(entry.value, Role.UNKNOWN) if entry.readable else Role.UNKNOWN, Source.ENV


def _role_by_type(kind: str) -> tuple[Role, Source] | None:
    role = _ROLES.get(kind)
    return None if role is None else (role, Source.TYPE)


def _default_role(line: CommandLine, engine: Engine) -> Role:
    unreadable = engine is Engine.UNKNOWN or line.opaque or not line.words
    return Role.UNKNOWN if unreadable else Role.AGGREGATED


def _stated_mode(line: CommandLine, env: tuple[EnvEntry, ...]) -> tuple[RouterMode, Source]:
    flag = line.gated_flag(ROUTER_FLAG)
    if flag is not None:
        return _mode(flag.value), Source.ARGS
    if line.assigns(ROUTER_ENV) or line.opaque:
        return RouterMode.UNKNOWN, Source.ARGS
    entry = _entry(env, ROUTER_ENV)
    if entry is None:
        return RouterMode.ROUND_ROBIN, Source.DEFAULT
    return _mode(entry.value) if entry.readable else RouterMode.UNKNOWN, Source.ENV


def _mode(written: str) -> RouterMode:
    stated = (RouterMode.KV_APPROXIMATE, RouterMode.MIXED, RouterMode.UNKNOWN)
    return RouterMode(written) if written in tuple(RouterMode) and written not in stated else RouterMode.UNKNOWN


def ignores_events(line: CommandLine, env: tuple[EnvEntry, ...]) -> bool:
    """Whether a frontend is told to route by its own record and not by KV events."""
    if line.has("--router-kv-events", "--kv-events", *_APPROXIMATE_FLAGS):
        return _last_of(line) in _APPROXIMATE_FLAGS
    entries = (_entry(env, name) for name in _APPROXIMATE_ENVS)
    return any(entry is not None and entry.value.strip().lower() in _FALSE for entry in entries)


def _last_of(line: CommandLine) -> str:
    named = ("--router-kv-events", "--kv-events", *_APPROXIMATE_FLAGS)
    return next((word.flag for word in reversed(line.words) if word.flag in named), "")
