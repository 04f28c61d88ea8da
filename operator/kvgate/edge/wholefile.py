"""A file that is written whole or not at all: a reader never sees half of it, and a failure leaves what was there."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from kvgate.edge.errors import EdgeError
from kvgate.edge.yamlfiles import PARTIAL


def write_whole(path: Path, content: bytes) -> None:
    """Beside its place first, then into it; a device or a pipe is written as it is. Raises EdgeError."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        raise EdgeError(f"{path}: cannot be written ({error.strerror or 'input/output error'})") from error


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=PARTIAL, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """That of the file that is replaced, else what the process gives new files."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
