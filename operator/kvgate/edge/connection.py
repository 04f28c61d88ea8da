"""The connection to the API server: the kubeconfig's where one is given, else the pod's own ServiceAccount's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes import client, config

from kvgate.edge.errors import EdgeError

CALL_SECONDS = 5.0
"""How long any one call may take; it is never repeated by itself."""
_MISSHAPEN = (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError)
"""What the reader of kubeconfigs raises for a file that is none."""


def credentials(kubeconfig: str = "") -> client.Configuration:
    """Whom to ask, and as whom, for a `Client`. Raises EdgeError where nothing that can be read says it."""
    configuration = client.Configuration()
    try:
        if kubeconfig:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig, client_configuration=configuration, persist_config=False
            )
        else:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        where = kubeconfig or "the pod's ServiceAccount"
        raise EdgeError(f"{where}: holds no credentials for a cluster; set KUBECONFIG, or run in a pod") from error
    except _MISSHAPEN as error:
        raise _unreadable(kubeconfig, error) from error
    configuration.retries = False
    return configuration


@dataclass(frozen=True)
class Login:
    """Which cluster a person means, as whom, and in which namespace where none is named."""

    configuration: client.Configuration
    namespace: str


def login(kubeconfig: str = "", context: str = "") -> Login:
    """As kubectl reads it: the named file, else those of $KUBECONFIG, else ~/.kube/config. Raises EdgeError."""
    configuration, where = client.Configuration(), kubeconfig or _meant()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig or None,
            context=context or None,
            client_configuration=configuration,
            persist_config=False,
        )
        contexts, active = config.list_kube_config_contexts(kubeconfig or None)  # type: ignore[no-untyped-call]
        chosen = next((entry for entry in contexts if entry["name"] == context), active)
        namespace = str(chosen["context"].get("namespace") or "default")
    except (config.ConfigException, OSError) as error:
        named = " of that name" if context else ""
        missing = not any(Path(path).expanduser().exists() for path in where.split(os.pathsep))
        what = f"{where}: " + ("there is no such file" if missing else f"holds no context{named} that can be used")
        raise EdgeError(f"{what}; give --kubeconfig and --context, or set KUBECONFIG") from error
    except _MISSHAPEN as error:
        raise _unreadable(where, error) from error
    configuration.retries = False
    return Login(configuration, namespace)


def _meant() -> str:
    """What is read where no file is named; $KUBECONFIG may name several."""
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _unreadable(where: str, error: Exception) -> EdgeError:
    return EdgeError(f"{where}: is no kubeconfig that can be read ({type(error).__name__})")
