"""Packs what krew installs as dist/krew/kubectl-kvgate.zip: the bytes that the manifest names, on every machine."""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "manifests" / "krew" / "kubectl-kvgate"
MANIFEST = ROOT / "manifests" / "krew" / "kvgate.yaml"
EPOCH = (2026, 1, 1, 0, 0, 0)


def packed() -> bytes:
    """Stored and not compressed, so that no version of zlib changes a byte."""
    written = BytesIO()
    entry = zipfile.ZipInfo(PLUGIN.name, EPOCH)
    entry.create_system, entry.external_attr = 3, 0o100755 << 16
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(entry, PLUGIN.read_bytes())
    return written.getvalue()


def main() -> int:
    target = ROOT / "dist" / "krew"
    target.mkdir(parents=True, exist_ok=True)
    (target / "kubectl-kvgate.zip").write_bytes(packed())
    shutil.copy(MANIFEST, target)
    sys.stdout.write(f"{target / 'kubectl-kvgate.zip'}  sha256 {hashlib.sha256(packed()).hexdigest()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
