"""The checkout as the tests of the frame see it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """Every file that git tracks or would track, relative to the root."""
    listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *listing], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return [Path(name) for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
