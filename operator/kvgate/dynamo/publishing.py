"""Whether workers publish KV events by their spec, and why not, and whether the frontends listen to them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvgate.core.events_seen import Declared, Declares, Routes
from kvgate.dynamo.component import Component
from kvgate.dynamo.container import EnvEntry
from kvgate.dynamo.document import at, parsed_json, shown, text, whole
from kvgate.dynamo.roles import ignores_events
from kvgate.dynamo.shape import Target
from kvgate.dynamo.words import Engine, Role, RouterMode

EVENTS_FLAG = "--kv-events-config"
_PREFIX_ON, _PREFIX_OFF = "--enable-prefix-caching", "--no-enable-prefix-caching"
_RADIX_OFF = "--disable-radix-cache"
_TRTLLM_FLAGS = ("--publish-kv-events", "--publish-events-and-metrics")
_TRTLLM_ENVS = ("DYN_TRTLLM_PUBLISH_KV_EVENTS", "DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS")
_TRTLLM_OVERRIDE = ("--override-engine-args", "DYN_TRTLLM_OVERRIDE_ENGINE_ARGS")
_RANK_FLAGS = ("--data-parallel-size", "-dp", "--dp-size", "--dp")
_TRUE = frozenset({"true", "1", "yes", "on"})
_BINDS = ("*", "::")
_LAST_PORT = 65535
_EXPLICIT_SINCE = (1, 5, 0)
"""From this release on, vLLM workers publish only with the flag; earlier ones had defaults of their own."""
Config = Mapping[str, object]


def routes(target: Target) -> Routes:
    """How the deployment's frontends are told to route. One that is told not to listen counts as approximate though it
    does not route by KV cache yet."""
    mode, _ = target.router
    if mode is RouterMode.KV_APPROXIMATE or any(ignores_events(part.line, part.env) for part in target.frontends):
        return Routes.APPROXIMATE
    if mode in (RouterMode.MIXED, RouterMode.UNKNOWN):
        return Routes.UNKNOWN
    return Routes.KV if mode is RouterMode.KV else Routes.OTHER


def must_publish(part: Component) -> bool:
    """Whether KV routing needs the events of this worker: of all but decode and encode workers."""
    return part.worker and part.role not in (Role.DECODE, Role.ENCODE)


def declared(part: Component) -> Declared:
    """What the worker's command line and environment say; Unknown where a launcher hides them. Never raises."""
    if not part.determinable:
        why = "a launcher, an expansion or the image's own entrypoint hides its flags"
        return Declared(Declares.UNKNOWN, f"of component {shown(part.name)} {why}")
    match part.engine.engine:
        case Engine.VLLM:
            return _prefix_caching(part) or _vllm(part)
        case Engine.SGLANG:
            return _radix_cache(part) or _sglang(part)
        case Engine.TRTLLM:
            return _trtllm(part)
        case Engine.MOCKER:
            return _prefix_caching(part) or Declared(Declares.ON)
        case Engine.UNKNOWN:
            return Declared(Declares.UNKNOWN, f"the engine of component {shown(part.name)} is not known")


def _prefix_caching(part: Component) -> Declared | None:
    named = [word for word in part.line.words if word.flag in (_PREFIX_ON, _PREFIX_OFF)]
    if not named or named[-1].flag == _PREFIX_ON:
        return None
    return _off(part, f"{_PREFIX_OFF} in {named[-1].place} turns prefix caching off: without it there are no events")


def _radix_cache(part: Component) -> Declared | None:
    flag = part.line.flag(_RADIX_OFF)
    if flag is None:
        return None
    return _off(part, f"{_RADIX_OFF} in {flag.places[0]} turns the prefix cache off: without it there are no events")


def _vllm(part: Component) -> Declared:
    config = _config(part)
    if isinstance(config, Declared):
        return config
    if config is None:
        return _without_flag(part)
    if config.get("publisher") == "null":
        return _off(part, f'{EVENTS_FLAG} has publisher "null"; write "zmq"')
    if config.get("enable_kv_cache_events") is not True:
        return _off(part, f"{EVENTS_FLAG} lacks enable_kv_cache_events: true, without which vLLM publishes nothing")
    return _endpoint(part, config) or Declared(Declares.ON)


def _without_flag(part: Component) -> Declared:
    why = f"component {shown(part.name)} has no {EVENTS_FLAG} in its args"
    if part.runtime is None or part.runtime < _EXPLICIT_SINCE:
        return Declared(Declares.UNKNOWN, f"{why}, and what that means differs between releases")
    wanted = '\'{"publisher":"zmq","endpoint":"tcp://*:20080","enable_kv_cache_events":true}\''
    return Declared(Declares.OFF, f"{why}; write {wanted}")


def _sglang(part: Component) -> Declared:
    config = _config(part)
    if isinstance(config, Declared):
        return config
    if config is None:
        return Declared(Declares.OFF, f"component {shown(part.name)} has no {EVENTS_FLAG} in its args")
    if config.get("publisher") in (None, "null"):
        return _off(part, f'{EVENTS_FLAG} names no publisher; SGLang needs "publisher":"zmq" and an endpoint')
    if not text(config.get("endpoint")):
        return Declared(
            Declares.BROKEN, _of(part, f'{EVENTS_FLAG} names no endpoint; write "endpoint":"tcp://*:20080"')
        )
    return _endpoint(part, config) or Declared(Declares.ON)


def _trtllm(part: Component) -> Declared:
    reuse = _block_reuse(part)
    if reuse is not None:
        return reuse
    flags = [word for word in part.line.words if word.flag in _TRTLLM_FLAGS or word.flag == "--no-publish-kv-events"]
    if flags:
        on = flags[-1].flag in _TRTLLM_FLAGS
        return Declared(Declares.ON) if on else _off(part, f"{flags[-1].flag} is in {flags[-1].place}")
    entries = [entry for name in _TRTLLM_ENVS if (entry := part.effective(name)) is not None]
    if any(not entry.readable for entry in entries):
        return Declared(Declares.UNKNOWN, f"{entries[0].name} of component {shown(part.name)} has no value in the spec")
    if any(_is_true(entry) for entry in entries):
        return Declared(Declares.ON)
    return Declared(Declares.OFF, f"component {shown(part.name)} has no {_TRTLLM_FLAGS[0]} in its args")


def _block_reuse(part: Component) -> Declared | None:
    flag, env = _TRTLLM_OVERRIDE
    entry = part.effective(env)
    written = part.line.value(flag) or (entry.value if entry else "")
    if at(parsed_json(written.replace("'", '"')), "kv_cache_config", "enable_block_reuse") is not False:
        return None
    return _off(part, f"{flag} sets enable_block_reuse: false: without reuse there are no events")


def _config(part: Component) -> Config | Declared | None:
    """The object that the flag holds, with what dotted flags add to it; None where no flag speaks of events."""
    flag = part.line.flag(EVENTS_FLAG)
    dotted = _dotted(part)
    if flag is None:
        return dotted or None
    held = parsed_json(flag.value)
    if held is None:
        where = ", ".join(flag.places)
        return Declared(
            Declares.BROKEN, _of(part, f"{EVENTS_FLAG} in {where} is not one JSON object; check its quotes")
        )
    return {**held, **dotted}


def _dotted(part: Component) -> dict[str, object]:
    """`--kv-events-config.enable_kv_cache_events true` and its like."""
    stem = f"{EVENTS_FLAG}."
    found: dict[str, object] = {}
    for word in part.line.words:
        if word.flag.startswith(stem):
            value = part.line.value(word.flag)
            key = word.flag.removeprefix(stem).replace("-", "_")
            found[key] = value.lower() in _TRUE if key == "enable_kv_cache_events" else value
    return found


def _endpoint(part: Component, config: Config) -> Declared | None:
    """Why nothing can arrive through this endpoint; None where something can."""
    endpoint = text(config.get("endpoint"))
    if not endpoint:
        return None
    if not endpoint.startswith(("ipc://", "inproc://")) and not any(mark in endpoint for mark in _BINDS):
        what = f"the endpoint {shown(endpoint)} of {EVENTS_FLAG} makes the engine connect where its reader connects too"
        return Declared(Declares.BROKEN, _of(part, f"{what}; write tcp://*:PORT"))
    return _ports(part, endpoint, text(config.get("replay_endpoint")))


def _ports(part: Component, endpoint: str, replay: str) -> Declared | None:
    """Rank r listens at the port + r, for events and for replay alike."""
    ranks = whole(part.line.value(*_RANK_FLAGS)) or 1
    base, again = _port(endpoint), _port(replay)
    if base == 0:
        return Declared(Declares.UNKNOWN, _of(part, f"{EVENTS_FLAG} leaves the port to each release (0); write one"))
    if base is not None and base + ranks - 1 > _LAST_PORT:
        what = f"{EVENTS_FLAG} needs ports {base} to {base + ranks - 1} for {ranks} ranks, limit {_LAST_PORT}"
        return Declared(Declares.BROKEN, _of(part, what))
    if base is not None and again is not None and abs(base - again) < ranks:
        what = f"{EVENTS_FLAG}: events from port {base} and replay from {again} collide with {ranks} ranks"
        return Declared(Declares.BROKEN, _of(part, what))
    return None


def _port(endpoint: str) -> int | None:
    found = re.search(r":([0-9]{1,5})$", endpoint)
    return int(found[1]) if found else None


def _is_true(entry: EnvEntry) -> bool:
    return entry.value.strip().lower() in _TRUE


def _off(part: Component, why: str) -> Declared:
    return Declared(Declares.OFF, _of(part, why))


def _of(part: Component, why: str) -> str:
    return f"of component {shown(part.name)}, {why}"
