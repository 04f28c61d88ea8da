"""The workload container of a component, in one shape for both versions of the API."""

from __future__ import annotations

from dataclasses import dataclass

from kvgate.dynamo.document import Document, at, mapping, mappings, pairs, scalar, sequence, text
from kvgate.dynamo.words import MAIN

_ALPHA_PLAIN_RESOURCES = ("cpu", "memory")
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class EnvEntry:
    """One variable; `source` says where a value that the spec does not hold comes from."""

    name: str
    value: str = ""
    source: str = ""

    @property
    def readable(self) -> bool:
        return not self.source and "$(" not in self.value


@dataclass(frozen=True, order=True)
class Resource:
    section: str
    name: str
    quantity: str


@dataclass(frozen=True)
class Container:
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[EnvEntry, ...]
    resources: tuple[Resource, ...]
    env_is_list: bool = True

    def entries(self, name: str) -> tuple[EnvEntry, ...]:
        return tuple(entry for entry in self.env if entry.name == name)

    def entry(self, name: str) -> EnvEntry | None:
        """The entry that counts: Kubernetes lets the last of a name win."""
        found = self.entries(name)
        return found[-1] if found else None


def beta_container(component: Document) -> Container | None:
    """The container called `main`, wherever it stands in the list."""
    for container in mappings(at(component, "podTemplate", "spec", "containers")):
        if container.get("name") == MAIN:
            return _container(container, read_env(container.get("env")), ())
    return None


def alpha_container(service: Document) -> Container | None:
    main = at(service, "extraPodSpec", "mainContainer")
    if not mapping(main) and not mapping(service.get("resources")) and not sequence(service.get("envs")):
        return None
    env = merged_env(read_env(service.get("envs")), read_env(at(main, "env")))
    return _container(mapping(main), env, _alpha_resources(service))


def read_env(value: object) -> tuple[EnvEntry, ...]:
    return tuple(_env_entry(entry) for entry in mappings(value) if text(entry.get("name")))


def merged_env(below: tuple[EnvEntry, ...], above: tuple[EnvEntry, ...]) -> tuple[EnvEntry, ...]:
    """Both lists, where an entry of `above` hides those of its name in `below`."""
    hidden = {entry.name for entry in above}
    return (*(entry for entry in below if entry.name not in hidden), *above)


def _env_entry(entry: Document) -> EnvEntry:
    return EnvEntry(text(entry.get("name")), scalar(entry.get("value")), _value_from(entry.get("valueFrom")))


def _value_from(value: object) -> str:
    if value is None:
        return ""
    kinds = sorted(key for key in mapping(value) if isinstance(key, str))
    named = (f"{kind}({','.join(f'{key}={held}' for key, held in pairs(at(value, kind)))})" for kind in kinds)
    return ";".join(named) or "valueFrom"


def _container(main: Document, env: tuple[EnvEntry, ...], more: tuple[Resource, ...]) -> Container:
    return Container(
        image=text(main.get("image")),
        command=tuple(scalar(word) for word in sequence(main.get("command"))),
        args=tuple(scalar(word) for word in sequence(main.get("args"))),
        env=env,
        resources=tuple(sorted({*_resources(main.get("resources")), *more})),
        env_is_list=main.get("env") is None or isinstance(main.get("env"), list),
    )


def _resources(value: object) -> tuple[Resource, ...]:
    quantities = tuple(
        Resource(section, name, quantity)
        for section in ("limits", "requests")
        for name, quantity in pairs(at(value, section))
    )
    claims = tuple(Resource("claims", text(claim.get("name")), "") for claim in mappings(at(value, "claims")))
    return quantities + claims


def _alpha_resources(service: Document) -> tuple[Resource, ...]:
    found: list[Resource] = []
    for section in ("limits", "requests"):
        stated = mapping(at(service, "resources", section))
        gpu_name = text(stated.get("gpuType")) or _GPU
        named = [(name, name) for name in _ALPHA_PLAIN_RESOURCES] + [("gpu", gpu_name)]
        found += [Resource(section, name, scalar(stated[key])) for key, name in named if scalar(stated.get(key))]
        found += [Resource(section, name, quantity) for name, quantity in pairs(stated.get("custom"))]
    return tuple(found)
