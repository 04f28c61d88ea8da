"""Where costly things that can be made again are kept: outside the work tree, named by what they were made of."""

import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class CannotRunError(Exception):
    """This machine lacks something; the message is one line that says what, and who can add it."""


def cache_root() -> Path:
    if chosen := os.environ.get("KVGATE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvgate"


def fingerprint(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:16]


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return `target`, made beside it under another name and then renamed, so that half a file is never taken."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f".{target.name}.lock")):
        if not target.exists():
            unfinished = target.with_name(f".{target.name}.unfinished")
            make(unfinished)
            unfinished.replace(target)
    return target


@contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
