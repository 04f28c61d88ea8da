"""What in a manifest would keep DYN_ROUTER_MODE of the frontend from deciding how requests are routed."""

from __future__ import annotations

from kvgate.dynamo.component import Component
from kvgate.dynamo.document import shown
from kvgate.dynamo.rules import (
    Rule,
    can_be_read,
    each,
    env_path,
    flag_in_args,
    has_main,
    newest_version,
    not_assigned_in_shell,
    one_readable_entry,
)
from kvgate.dynamo.shape import Target
from kvgate.dynamo.steps import Blocker
from kvgate.dynamo.words import ROUTER_ENV, ROUTER_FLAG, RouterMode


def has_frontend(target: Target) -> tuple[Blocker, ...]:
    if target.frontends:
        return ()
    return (Blocker(f"{shown(target.name)} has no frontend", "add a component of type frontend"),)


def frontends_are_readable(target: Target) -> tuple[Blocker, ...]:
    return each(
        target.frontends,
        has_main,
        lambda part: can_be_read(part, "The router mode"),
        lambda part: not_assigned_in_shell(part, ROUTER_ENV),
        _own_entry_is_readable,
    )


def mode_not_in_args(target: Target) -> tuple[Blocker, ...]:
    return each(target.frontends, _mode_not_in_args)


def not_on_the_graph(target: Target) -> tuple[Blocker, ...]:
    """On the graph it reaches the workers, whose cards then override the frontend."""
    if all(entry.name != ROUTER_ENV for entry in target.graph_env):
        return ()
    homes = ", ".join(env_path(part.name) for part in target.frontends) or "the frontend's env"
    message = f"spec.env sets {ROUTER_ENV} for every component, so workers override the frontend"
    return (Blocker(message, f"move {ROUTER_ENV} from spec.env to {homes}"),)


def not_advertised_by_workers(target: Target) -> tuple[Blocker, ...]:
    on_graph = any(entry.name == ROUTER_ENV for entry in target.graph_env)
    return () if on_graph else each(target.workers, _not_advertised)


def _own_entry_is_readable(part: Component) -> tuple[Blocker, ...]:
    return one_readable_entry(part, ROUTER_ENV)


def _mode_not_in_args(part: Component) -> tuple[Blocker, ...]:
    flag = part.line.gated_flag(ROUTER_FLAG)
    if flag is None:
        return ()
    return (flag_in_args(part, flag, ROUTER_ENV, shown(flag.value) or RouterMode.ROUND_ROBIN.value),)


def _not_advertised(part: Component) -> tuple[Blocker, ...]:
    if not part.advertised_mode:
        return ()
    flag = part.line.gated_flag(ROUTER_FLAG)
    where = ", ".join(flag.places) if flag else env_path(part.name)
    named = ROUTER_FLAG if flag else ROUTER_ENV
    message = f"Worker {shown(part.name)} advertises a router mode of its own, which overrides the frontend's"
    return (Blocker(message, f"remove {named} from {where} of worker {shown(part.name)}"),)


ROUTING_RULES: tuple[Rule, ...] = (
    newest_version,
    has_frontend,
    frontends_are_readable,
    mode_not_in_args,
    not_on_the_graph,
    not_advertised_by_workers,
)
