"""Builds Kubernetes, etcd, kind, Helm, what enforces policies and the pause container from Go modules, once each."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.cache import CannotRunError, cache_root, fingerprint, made_once, say

GOBINS = Path(__file__).parents[1] / "gobins"
OLDEST_GO = (1, 26)


@dataclass(frozen=True)
class GoModule:
    directory: str
    packages: Mapping[str, str]
    linker_flags: str = ""

    @property
    def source(self) -> Path:
        return GOBINS / self.directory

    @property
    def key(self) -> str:
        sources = sorted(p for p in self.source.iterdir() if p.name in {"go.mod", "go.sum", "main.go"})
        return fingerprint(self.linker_flags, *(p.read_bytes() for p in sources))


def kubernetes_version() -> str:
    stated = (GOBINS / "kubernetes/go.mod").read_text()
    required = re.search(r"^require k8s\.io/kubernetes (v\S+)$", stated, re.MULTILINE)
    assert required is not None, "tests/gobins/kubernetes/go.mod requires no k8s.io/kubernetes"
    return required[1]


def _kubernetes_linker_flags() -> str:
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


def _helm_linker_flags() -> str:
    """Helm's own version, and the version of Kubernetes that it takes for a chart's where it asks no cluster."""
    stated = re.search(r"^require helm\.sh/helm/v3 (v\S+)$", (GOBINS / "helm/go.mod").read_text(), re.MULTILINE)
    assert stated is not None, "tests/gobins/helm/go.mod requires no helm.sh/helm/v3"
    major, minor, _ = kubernetes_version().removeprefix("v").split(".")
    values = {"helm.sh/helm/v3/internal/version.version": stated[1]}
    for package in ("lint/rules", "chartutil"):
        place = f"helm.sh/helm/v3/pkg/{package}"
        values |= {f"{place}.k8sVersionMajor": major, f"{place}.k8sVersionMinor": minor}
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


KUBERNETES_NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
MODULES = (
    GoModule("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    GoModule(
        "kubernetes",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_NAMES},
        _kubernetes_linker_flags(),
    ),
    GoModule("kind", {"kind": "sigs.k8s.io/kind"}),
    GoModule("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}, _helm_linker_flags()),
    GoModule("netpol", {"netpol": "."}, "-s -w"),
    GoModule("pause", {"pause": "."}, "-s -w"),
)


def binary(name: str) -> Path:
    """The path of a built program, building it first when the cache has none."""
    module = next(m for m in MODULES if name in m.packages)
    target = cache_root() / "bin" / module.key / name
    return made_once(target, lambda unfinished: _build(module, name, unfinished))


def build_all() -> None:
    for module in MODULES:
        for name in module.packages:
            say(f"{name}: {binary(name)}")


def go() -> str:
    """The Go compiler on PATH. Raises CannotRunError when there is none, or one that is too old."""
    advice = "install it, or run `make test`, which brings its own"
    found = shutil.which("go")
    wanted = ".".join(map(str, OLDEST_GO))
    if found is None:
        raise CannotRunError(f"Go {wanted} or newer is not on PATH: {advice}")
    said = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"go(\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < OLDEST_GO:
        raise CannotRunError(f"Go on PATH is {said.strip()}, and {wanted} is the oldest that works: {advice}")
    return found


def _build(module: GoModule, name: str, target: Path) -> None:
    compiler = go()
    say(f"building {name} from tests/gobins/{module.directory}: minutes the first time, seconds after")
    began = time.monotonic()
    argv = [compiler, "build", "-trimpath", "-ldflags", module.linker_flags, "-o", str(target)]
    env = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run([*argv, module.packages[name]], cwd=module.source, env=env, check=False)
    if done.returncode != 0:
        raise CannotRunError(f"go build of {name} failed with exit code {done.returncode}; its own words are above")
    say(f"built {name} in {time.monotonic() - began:.0f} s")
