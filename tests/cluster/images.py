"""Packs container images without a Docker engine: Debian packages and our own files, as an OCI archive."""

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.binaries import binary
from tests.cluster.cache import CannotRunError, cache_root, fingerprint, made_once, say

PROBE_REFERENCE = "kvgate.dev/probe:test"
PAUSE_REFERENCE = "local.test/pause:1"
PROBES = Path(__file__).parents[2] / "probes"
PROBE_PACKAGES = (
    "python3", "iperf3", "ucx-utils", "python3-aiohttp", "python3-msgpack", "python3-prometheus-client", "python3-zmq",
)  # fmt: skip
PROBE_SOURCES = ("kvgate_probe", "kvgate_bench")
PROBE_USER = 65532
"""The operator's image runs as the same."""
PRUNED = ("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/perl", "usr/share/lintian/")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LAYER = "application/vnd.oci.image.layer.v1.tar"
ZIPPED = f"{LAYER}+gzip"
NOTE_PACKAGES = (
    'mkdir -p "$1/var/lib/dpkg/status.d"; for deb in "$1"/var/cache/apt/archives/*.deb; do '
    'dpkg-deb -f "$deb" > "$1/var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)"; done'
)
"""Which packages lie in an image stands where scanners look for it in images without a package manager."""
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Image:
    """What a Dockerfile says for Docker's users, said for the packer."""

    reference: str
    entrypoint: Sequence[str]
    user: str = f"{PROBE_USER}:{PROBE_USER}"
    environment: Mapping[str, str] = field(default_factory=dict)

    def config(self, layers: Sequence[bytes]) -> bytes:
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **self.environment}
        return _json(
            {
                "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": {
                    "User": self.user,
                    "Env": [f"{name}={value}" for name, value in variables.items()],
                    "Entrypoint": list(self.entrypoint),
                    "WorkingDir": "/",
                },
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in layers]},
                "history": [{"created_by": "tests.cluster.images"} for _ in layers],
            }
        )


PAUSE = Image(PAUSE_REFERENCE, ["/pause"])
PROBE = Image(
    PROBE_REFERENCE,
    ["python3", "-m", "kvgate_probe"],
    environment={"PYTHONPATH": "/opt/kvgate", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
)


def pause_image(directory: Path) -> Path:
    """Pack the container that holds a pod's namespaces open, into `directory`."""
    return pack(PAUSE, [layer([("pause", binary("pause").read_bytes(), 0o755)])], directory / "pause.tar")


def probe_image(directory: Path) -> Path:
    """Pack the walker as it is in this checkout, with what it needs of Debian's packages, into `directory`."""
    return pack(PROBE, probe_layers(), directory / "probe.tar")


def probe_layers() -> list[bytes]:
    files = accounts("probe")
    files += [(f"opt/kvgate/{p.relative_to(PROBES)}", p.read_bytes(), 0o644) for p in probe_sources()]
    return [debian_layer().read_bytes(), layer(files)]


def probe_sources() -> list[Path]:
    found = (path for package in PROBE_SOURCES for path in (PROBES / package).rglob("*"))
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts)


def accounts(user: str) -> list[tuple[str, bytes, int]]:
    """Files that name root and the one user."""
    no_shell = "/:/usr/sbin/nologin"
    passwd = f"root:x:0:0:root:{no_shell}\n{user}:x:{PROBE_USER}:{PROBE_USER}::{no_shell}\n"
    group = f"root:x:0:\n{user}:x:{PROBE_USER}:\n"
    return [("etc/passwd", passwd.encode(), 0o644), ("etc/group", group.encode(), 0o644)]


def pack(image: Image, layers: Sequence[bytes], target: Path, *, zipped: bool = False) -> Path:
    """Write an OCI archive to `target`; the same image and layers give the same bytes."""
    config = image.config(layers)
    blobs = [gzip.compress(layer, 6, mtime=0) for layer in layers] if zipped else layers
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, config),
            "layers": [_descriptor(ZIPPED if zipped else LAYER, blob) for blob in blobs],
        }
    )
    names = {"io.containerd.image.name": image.reference, "org.opencontainers.image.ref.name": image.reference}
    listed = {**_descriptor(MANIFEST, manifest), "annotations": names}
    index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]})
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", index)
        for blob in (*blobs, config, manifest):
            _add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
    return target


def debian_layer(packages: Sequence[str] = PROBE_PACKAGES) -> Path:
    """These packages and what they depend on, from this system's own release: downloaded once, then cached."""
    release = _os_release()
    key = fingerprint(
        release["ID"], release["VERSION_CODENAME"], platform.machine(), *packages, *PRUNED, NOTE_PACKAGES, "no times"
    )
    return made_once(cache_root() / "images" / f"debian-{key}.tar", lambda path: _bootstrap(release, packages, path))


def _bootstrap(release: Mapping[str, str], packages: Sequence[str], target: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        raise CannotRunError("an image needs mmdebstrap: install it with apt-get install mmdebstrap")
    if os.geteuid() != 0:
        raise CannotRunError("an image is made by mmdebstrap as root: run this as root")
    say(f"fetching {', '.join(packages)} and what they need, for an image")
    whole = target.with_name(f"{target.name}.whole.tar")
    components = "main,universe" if release["ID"] == "ubuntu" else "main"
    done = subprocess.run(
        [
            *("mmdebstrap", "--quiet", "--variant=extract", f"--components={components}"),
            *("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", f"--include={','.join(packages)}"),
            f"--extract-hook={NOTE_PACKAGES}",
            *(release["VERSION_CODENAME"], str(whole)),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        raise CannotRunError(f"mmdebstrap ended with exit code {done.returncode}, and said last: {said[0]}")
    _prune(whole, target)
    whole.unlink()


def _prune(whole: Path, target: Path) -> None:
    """Leave out what no program reads, device nodes, which the runtime makes itself, and when it was fetched: the same
    packages make the same bytes."""
    with tarfile.open(whole) as source, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as kept:
        for member in source:
            name = member.name.removeprefix("./")
            if name.startswith(PRUNED) or member.isdev():
                continue
            member.mtime, member.pax_headers = 0, {}
            kept.addfile(member, source.extractfile(member) if member.isreg() else None)


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines) if name}


def layer(files: Iterable[tuple[str, bytes, int]], links: Mapping[str, str] | None = None) -> bytes:
    """Files by name, content and mode, and symbolic links by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, content, mode in files:
            _add(made, name, content, mode)
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            made.addfile(member)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
