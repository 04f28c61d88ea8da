"""Findings about a manifest that both switches share: each a small function of the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvgate.dynamo.argv import Flag
from kvgate.dynamo.component import Component
from kvgate.dynamo.document import shown
from kvgate.dynamo.shape import Target
from kvgate.dynamo.steps import Blocker
from kvgate.dynamo.words import MAIN, V1BETA1

Rule = Callable[[Target], tuple[Blocker, ...]]


def newest_version(target: Target) -> tuple[Blocker, ...]:
    """A manifest can be written anew; a cluster whose API server gave it as v1alpha1 serves nothing newer."""
    if target.api_version == V1BETA1 or target.resource_version:
        return ()
    message = f"{shown(target.name)} is written as v1alpha1, where a list of variables has one owner"
    return (Blocker(message, f"write the deployment as {V1BETA1}"),)


def has_main(part: Component) -> tuple[Blocker, ...]:
    if part.container is not None:
        return ()
    where = f"spec.components[name={shown(part.name)}].podTemplate.spec.containers"
    return (Blocker(f"{shown(part.name)} has no container {MAIN}", f"add the container {MAIN} to {where}"),)


def can_be_read(part: Component, what: str) -> tuple[Blocker, ...]:
    if part.container is None or part.determinable:
        return ()
    name = shown(part.name)
    message = f"{what} of {name} cannot be determined: its command hides the flags (launcher, file or expansion)"
    remedy = (
        f"start {name} by 'python3 -m dynamo.…' with its flags in args, or leave its command to the Dynamo operator"
    )
    return (Blocker(message, remedy),)


def one_readable_entry(part: Component, env: str) -> tuple[Blocker, ...]:
    """Our entry must be the only one of its name, and hold its value itself."""
    name = shown(part.name)
    if part.container is not None and not part.container.env_is_list:
        return (Blocker(f"The env of {name} is no list", f"write {env_path(part.name)} as a list of name and value"),)
    own = part.container.entries(env) if part.container else ()
    if len(own) > 1:
        return (Blocker(f"{name} names {env} {len(own)} times", f"keep one entry {env} in {env_path(part.name)}"),)
    entry = part.effective(env)
    if entry is None or entry.readable:
        return ()
    held = "valueFrom" if entry.source else "an expansion $(…)"
    return (Blocker(f"{env} of {name} is set by {held}", f"give {env} of {name} a plain value"),)


def not_assigned_in_shell(part: Component, env: str) -> tuple[Blocker, ...]:
    if not part.line.assigns(env):
        return ()
    name = shown(part.name)
    remedy = f"take {env}= out of the shell string and set it in {env_path(part.name)}"
    return (Blocker(f"{name} sets {env} in a shell string, which overrides its env", remedy),)


def flag_in_args(part: Component, flag: Flag, env: str, value: str) -> Blocker:
    """A flag that beats the variable: which words to remove, and which entry says the same."""
    name = shown(part.name)
    places = ", ".join(dict.fromkeys(flag.places))
    words = " ".join(shown(word) for word in flag.words)
    remedy = f"in {name}, remove '{words}' from {places} and set {env}={value} in {env_path(part.name)}"
    return Blocker(f"{name} sets '{words}' in {places}, which overrides {env}", remedy)


def env_path(component: str) -> str:
    return f"spec.components[name={shown(component)}].podTemplate.spec.containers[name={MAIN}].env"


def each(parts: Iterable[Component], *rules: Callable[[Component], tuple[Blocker, ...]]) -> tuple[Blocker, ...]:
    return tuple(blocker for part in parts for rule in rules for blocker in rule(part))
