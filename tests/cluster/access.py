"""What a test does with a running API server: kubectl, a Python client, tokens, CRDs and the audit log."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from tests.cluster.binaries import binary
from tests.cluster.waiting import eventually

Document = dict[str, Any]


@dataclass(frozen=True)
class AuditEvent:
    """One request that the API server completed; `resource` holds the subresource too, as in `pods/status`."""

    user: str
    user_agent: str
    verb: str
    resource: str
    namespace: str
    name: str
    status_code: int


@dataclass(frozen=True)
class Access:
    """One API server as one user."""

    directory: Path
    kubeconfig: Path
    server: str
    authority: Path
    audit_log: Path

    @property
    def token(self) -> str:
        """What the kubeconfig shows the server."""
        users = yaml.safe_load(self.kubeconfig.read_text())["users"]
        return str(users[0]["user"]["token"])

    def kubectl(
        self,
        *args: str | Path,
        input: str | None = None,  # noqa: A002  the word that subprocess.run uses for it
        check: bool = False,
        timeout_seconds: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run the kubectl that was built with this server; `check` raises AssertionError with its stderr."""
        argv = [str(binary("kubectl")), f"--kubeconfig={self.kubeconfig}", *map(str, args)]
        done = subprocess.run(argv, input=input, capture_output=True, text=True, timeout=timeout_seconds, check=False)
        assert not check or done.returncode == 0, f"kubectl {' '.join(map(str, args))}: {done.stderr}"
        return done

    def get(self, *args: str) -> Document:
        """`kubectl get ARGS -o json`, parsed."""
        found: Document = json.loads(self.kubectl("get", *args, "-o", "json", check=True).stdout)
        return found

    def apply(self, *documents: Document) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(documents), check=True)

    def api_client(self) -> client.ApiClient:
        made: client.ApiClient = config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]
        return made

    def mint_token(self, namespace: str, service_account: str, *, seconds: int = 3600) -> str:
        """A bound ServiceAccount token from the TokenRequest API, valid for `seconds` (600 or more)."""
        argv = ("create", "token", service_account, "-n", namespace, f"--duration={seconds}s")
        return self.kubectl(*argv, check=True).stdout.strip()

    def as_user(self, name: str, token: str) -> "Access":
        """The same server as the bearer of `token`, with a kubeconfig of its own called `name`."""
        path = self.directory / f"{name}.kubeconfig"
        write_kubeconfig(path, self.server, self.authority, token)
        return Access(self.directory, path, self.server, self.authority, self.audit_log)

    def load_crds(self, paths: Iterable[Path], *, strip_conversion: bool = True) -> list[str]:
        """Apply the CRDs in these YAML files and wait until they are served; returns their names.

        A conversion webhook belongs to an operator that does not run here, so it is stripped unless told otherwise.
        """
        found = [crd for path in paths for crd in yaml.safe_load_all(path.read_text()) if crd]
        crds = [_without_conversion(crd) if strip_conversion else crd for crd in found]
        self.apply(*crds)
        names = [str(crd["metadata"]["name"]) for crd in crds]
        self.wait_established(*names)
        return names

    def wait_established(self, *crds: str) -> None:
        """Until the CRDs are served. kubectl wait gives up at once on one that has no conditions yet."""
        waited = ("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in crds))
        eventually(lambda: self.kubectl(*waited).returncode == 0, 40)

    def audit_events(self, after_byte: int = 0) -> Iterator[AuditEvent]:
        """Every request that the server has completed so far, by anybody, oldest first; or those behind a mark."""
        with self.audit_log.open("rb") as lines:
            lines.seek(after_byte)
            for line in lines:
                if line.endswith(b"\n"):
                    yield _audit_event(json.loads(line))

    def audit_mark(self) -> int:
        """Where the audit log ends now, in bytes; a request that is being written just now counts as later."""
        with self.audit_log.open("rb") as log:
            return log.read().rfind(b"\n") + 1


def write_kubeconfig(path: Path, server: str, authority: Path, token: str) -> None:
    cluster = {"server": server, "certificate-authority": str(authority)}
    path.touch(mode=0o600)
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "user", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
                "current-context": "test",
            }
        )
    )


def _without_conversion(crd: Document) -> Document:
    return {**crd, "spec": {name: value for name, value in crd["spec"].items() if name != "conversion"}}


def _audit_event(raw: Mapping[str, Any]) -> AuditEvent:
    target = raw.get("objectRef", {})
    resource = "/".join(filter(None, (target.get("resource", ""), target.get("subresource", ""))))
    return AuditEvent(
        user=raw["user"].get("username", ""),
        user_agent=raw.get("userAgent", ""),
        verb=raw["verb"],
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status_code=raw.get("responseStatus", {}).get("code", 0),
    )
