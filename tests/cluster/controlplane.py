"""Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler on one address of this machine."""

import secrets
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster.access import Access, write_kubeconfig
from tests.cluster.binaries import binary
from tests.cluster.leftovers import Ledger
from tests.cluster.processes import Process, ending

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}
ADMIN_KUBECONFIG = "admin.kubeconfig"
LOOPBACK = "127.0.0.1"
PORTS = range(20000, 30000)  # below the range that outgoing connections take theirs from


@dataclass(frozen=True)
class Credentials:
    """One certificate is the server's and its client's at the kubelets; clients in Rust refuse a self-signed one."""

    authority: Path
    certificate: Path
    key: Path
    service_account_key: Path
    tokens: Path
    admin_token: str


def start_control_plane(ledger: Ledger, address: str) -> Access:
    """Returns once the API server says that it is ready, as a cluster administrator."""
    credentials = _make_credentials(ledger.state, address)
    etcd = _start_etcd(ledger)
    port = free_port(address)
    api_server = _start_api_server(ledger, credentials, etcd, (address, port))
    access = _admin(ledger.state, credentials, f"https://{address}:{port}")
    wait_until(
        lambda: _says_ready(access.server, credentials),
        watch=(api_server, ledger.state / "kube-apiserver.log"),
        seconds=60,
    )
    _start_controllers(ledger, credentials, access.kubeconfig)
    return access


def free_port(address: str) -> int:
    """A TCP port that nothing listens on now. Another program may still take it first, and the start then says so."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex((address, port)) != 0 and _binds(address, port):
                return port


def wait_until(ready: Callable[[], bool], *, watch: tuple[Process, Path], seconds: float) -> None:
    """Poll `ready`; raises RuntimeError with the end of the log when the watched process has ended or time is up."""
    process, log = watch
    deadline = time.monotonic() + seconds
    while not ready():
        if not process.runs():
            raise RuntimeError(f"{log.stem} ended{ending(process)} before it was ready; its log ends:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{log.stem} was not ready after {seconds:.0f} s; its log ends:\n{tail(log)}")
        time.sleep(0.1)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _binds(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _make_credentials(state: Path, address: str) -> Credentials:
    made = Credentials(
        authority=state / "authority.crt",
        certificate=state / "server.crt",
        key=state / "server.key",
        service_account_key=state / "service-account.key",
        tokens=state / "tokens.csv",
        admin_token=secrets.token_urlsafe(24),
    )
    _openssl("genrsa", "-out", made.service_account_key, "2048")
    signing_key = state / "authority.key"
    request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    _openssl(
        *(*request, "-subj", "/CN=kvgate-tests-authority", "-addext", "keyUsage=critical,keyCertSign"),
        *("-keyout", signing_key, "-out", made.authority),
    )
    _openssl(
        *(*request, "-subj", "/O=system:masters/CN=kvgate-tests", "-CA", made.authority, "-CAkey", signing_key),
        *("-addext", f"subjectAltName=IP:{address},DNS:kubernetes.default.svc"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-addext", "keyUsage=critical,digitalSignature,keyEncipherment"),
        *("-addext", "extendedKeyUsage=serverAuth,clientAuth"),
        *("-keyout", made.key, "-out", made.certificate),
    )
    made.tokens.touch(mode=0o600)
    made.tokens.write_text(f"{made.admin_token},admin,admin,system:masters\n")
    return made


def _openssl(*args: str | Path) -> None:
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


def _start_etcd(ledger: Ledger) -> str:
    client, peer = (f"http://{LOOPBACK}:{free_port(LOOPBACK)}" for _ in range(2))
    ledger.start(
        "etcd",
        binary("etcd"),
        f"--data-dir={ledger.state / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    )
    return client


def _start_api_server(ledger: Ledger, credentials: Credentials, etcd: str, at: tuple[str, int]) -> Process:
    policy = ledger.state / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(AUDIT_POLICY))
    return ledger.start(
        "kube-apiserver",
        binary("kube-apiserver"),
        f"--etcd-servers={etcd}",
        f"--bind-address={at[0]}",
        f"--advertise-address={at[0]}",
        f"--secure-port={at[1]}",
        f"--tls-cert-file={credentials.certificate}",
        f"--tls-private-key-file={credentials.key}",
        f"--kubelet-client-certificate={credentials.certificate}",
        f"--kubelet-client-key={credentials.key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--token-auth-file={credentials.tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={credentials.service_account_key}",
        f"--service-account-key-file={credentials.service_account_key}",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--endpoint-reconciler-type=none",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={ledger.state / 'audit.jsonl'}",
        "--audit-log-mode=blocking",
    )


def _start_controllers(ledger: Ledger, credentials: Credentials, kubeconfig: Path) -> None:
    common = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
    ledger.start(
        "kube-controller-manager",
        binary("kube-controller-manager"),
        *common,
        f"--service-account-private-key-file={credentials.service_account_key}",
        f"--root-ca-file={credentials.authority}",
    )
    ledger.start("kube-scheduler", binary("kube-scheduler"), *common)


def _admin(state: Path, credentials: Credentials, server: str) -> Access:
    kubeconfig = state / ADMIN_KUBECONFIG
    write_kubeconfig(kubeconfig, server, credentials.authority, credentials.admin_token)
    return Access(state, kubeconfig, server, credentials.authority, state / "audit.jsonl")


def _says_ready(server: str, credentials: Credentials) -> bool:
    trust = ssl.create_default_context(cafile=str(credentials.authority))
    asked = urllib.request.Request(f"{server}/readyz", headers={"Authorization": f"Bearer {credentials.admin_token}"})
    try:
        with urllib.request.urlopen(asked, timeout=2, context=trust) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
