"""A v1beta1 deployment written as v1alpha1, as a team on an older Dynamo would have written it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
_ROLES = frozenset({"prefill", "decode"})


def as_alpha(document: Mapping[str, Any]) -> Document:
    """The list of components becomes a map of services, `main` a `mainContainer`, and its env the service's `envs`."""
    found = copy.deepcopy(dict(document))
    services = {part["name"]: _service(part) for part in found["spec"]["components"]}
    kept = {key: held for key, held in found["spec"].items() if key not in {"components", "env"}}
    graph = {"envs": found["spec"]["env"]} if "env" in found["spec"] else {}
    return found | {"apiVersion": "nvidia.com/v1alpha1", "spec": kept | graph | {"services": services}}


def _service(part: Document) -> Document:
    pod = part["podTemplate"]["spec"]
    main = dict(pod["containers"][0])
    envs, limits = main.pop("env", None), main.pop("resources", {}).get("limits", {})
    main.pop("name")
    role = part["type"]
    typed = {"componentType": "worker", "subComponentType": role} if role in _ROLES else {"componentType": role}
    rest = {key: held for key, held in pod.items() if key != "containers"}
    service: Document = {**typed, "replicas": part.get("replicas", 1)}
    service |= {"extraPodSpec": {**rest, "mainContainer": main}}
    service |= {"envs": envs} if envs else {}
    gpus = limits.get("nvidia.com/gpu")
    return service | ({"resources": {"limits": {"gpu": gpus}}} if gpus else {})
