"""Packs one image that holds Dynamo's frontend, router and mocker with the tiny model, and puts it on nodes.

It bears the name that the sample deployments give to a model server's image. Nothing in it needs a GPU.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.cluster.cache import CannotRunError, cache_root, fingerprint, made_once, say
from tests.cluster.harness import Cluster
from tests.cluster.images import Image, accounts, debian_layer, layer, pack
from tests.cluster.operator_image import python_minor
from tests.dynamo_stage.model import write_model
from tests.dynamo_stage.standin.samples import IMAGE

PACKAGES = ("ca-certificates", "libstdc++6", "python3")
LOCK = Path(__file__).with_name("requirements.txt")
CLAIMS = Path(__file__).with_name("claims.py")
SITE, MODEL, PROGRAMS = "opt/dynamo", "model", "opt/stage"
DYNAMO = Image(
    IMAGE,
    ["python3"],
    environment={
        "PYTHONPATH": f"/{SITE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": "/tmp",
    },
)


def dynamo_image() -> Path:
    """The archive, made once for each lock and model."""
    files = _own_files()
    named = [part for name, content, _ in files for part in (name, content)]
    key = fingerprint(*_recipe(), *named)
    return made_once(cache_root() / "images" / f"dynamo-{key}.oci.tar", lambda target: _pack(files, target))


def put_on(cluster: Cluster, *nodes: str) -> None:
    """Import the image into the nodes' containerd, where it is not there yet."""
    archive = dynamo_image()
    for name in nodes:
        ctr = ("ctr", "--address", str(cluster.nodes[name].state / "c.sock"), "--namespace", "k8s.io", "images")
        held = subprocess.run([*ctr, "list", "--quiet"], capture_output=True, text=True, check=True).stdout
        if IMAGE not in held.split():
            subprocess.run([*ctr, "import", str(archive)], capture_output=True, check=True)


def _pack(files: Sequence[tuple[str, bytes, int]], target: Path) -> None:
    pack(DYNAMO, [debian_layer(PACKAGES).read_bytes(), _dynamo_layer().read_bytes(), layer(files)], target)


def _own_files() -> list[tuple[str, bytes, int]]:
    with tempfile.TemporaryDirectory() as name:
        written = sorted(write_model(Path(name)).iterdir())
        model = [(f"{MODEL}/{path.name}", path.read_bytes(), 0o644) for path in written]
    return [*accounts("dynamo"), *model, (f"{PROGRAMS}/{CLAIMS.name}", CLAIMS.read_bytes(), 0o644)]


def _dynamo_layer() -> Path:
    key = fingerprint(*_recipe())
    return made_once(cache_root() / "images" / f"dynamo-site-{key}.tar", _install)


@cache
def _recipe() -> tuple[str | bytes, ...]:
    return python_minor(), LOCK.read_bytes(), *PACKAGES, Path(__file__).read_bytes()


def _install(target: Path) -> None:
    """With bytecode that does not ask for the source's time: a layer knows none."""
    say("fetching Dynamo's frontend and mocker, for an image")
    with tempfile.TemporaryDirectory() as name:
        site = Path(name)
        chosen = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", LOCK)
        _run("uv", "pip", "install", "--quiet", "--python-version", python_minor(), "--target", site, *chosen)
        if python_minor() == f"{sys.version_info.major}.{sys.version_info.minor}":
            shown = ("-s", site, "-p", f"/{SITE}", "--invalidation-mode", "unchecked-hash")
            _run("compileall", "-q", *shown, site)
        target.write_bytes(layer(_placed(site)))


def _placed(site: Path) -> Iterator[tuple[str, bytes, int]]:
    for path in sorted(path for path in site.rglob("*") if path.is_file()):
        yield f"{SITE}/{path.relative_to(site)}", path.read_bytes(), 0o644


def _run(*module: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", *map(str, module)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise CannotRunError(f"{module[0]} could not make Dynamo's image, and said last: {said[0]}")
