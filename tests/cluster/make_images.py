"""`make images`: the operator's and the probes' images as OCI archives with their bills, without a Docker engine."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvgate import __version__
from tests.cluster.bills import bill
from tests.cluster.cache import CannotRunError
from tests.cluster.images import PROBE, Image, pack, probe_layers
from tests.cluster.operator_image import OPERATOR, build_layers

MIB = 1 << 20


@dataclass(frozen=True)
class Made:
    """An archive on disk: what a registry would know the image by, and its sizes in bytes, packed and unpacked."""

    archive: Path
    digest: str
    packed: int
    unpacked: int

    def __str__(self) -> str:
        return f"{self.archive}  {self.digest}  {self.packed / MIB:.0f} MiB, {self.unpacked / MIB:.0f} MiB unpacked"


def make(directory: Path) -> tuple[Made, ...]:
    """Write both images, and beside each its bill, into `directory`. Of one checkout and one state of the caches, the
    same bytes each time."""
    directory.mkdir(parents=True, exist_ok=True)
    operator = [path.read_bytes() for path in build_layers()]
    return (
        _made(directory, "kvgate-operator", OPERATOR, operator),
        _made(directory, "kvgate-probe", PROBE, probe_layers()),
    )


def _made(directory: Path, name: str, image: Image, layers: Sequence[bytes]) -> Made:
    named = replace(image, reference=f"{name}:{__version__}")
    archive = pack(named, layers, directory / f"{name}.tar", zipped=True)
    (directory / f"{name}.spdx.json").write_text(bill(named.reference, layers), encoding="utf-8")
    return Made(archive, digest_of(archive), archive.stat().st_size, sum(map(len, layers)))


def digest_of(archive: Path) -> str:
    with tarfile.open(archive) as packed:
        index = packed.extractfile("index.json")
        assert index is not None
        return str(json.load(index)["manifests"][0]["digest"])


def main(argv: Sequence[str]) -> int:
    try:
        for made in make(Path(argv[0] if argv else "dist/images")):
            print(made)
    except CannotRunError as reason:
        print(reason, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
