"""Proves that a built wheel stands alone: installs it in a virtual environment of its own and runs it elsewhere."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

COMMANDS: Sequence[Sequence[str]] = (("version",), ("crds", "--help"))


def install(wheel: Path, folder: Path) -> Path:
    """Makes an environment in `folder` with this wheel, where dependencies alone come from ours; gives its commands.

    Our site-packages join through a .pth file, in which the editable install's own .pth is not read, so the
    checkout stays out of reach.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    purelib = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    _run([*pip, "--no-deps", "--no-index", "--ignore-installed", str(wheel)], folder)
    return folder / "bin"


def _run(command: Sequence[str], folder: Path) -> str:
    """The command's standard output; its standard error is shown and a failure raises CalledProcessError."""
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def kvgate(commands: Path, arguments: Sequence[str]) -> str:
    """What the installed wheel's `kvgate` prints, run in a folder that isn't the checkout."""
    return _run([str(commands / "kvgate"), *arguments], commands.parent)


def main(folder: str) -> int:
    wheel = next(Path(folder).resolve().glob("kvgate-*.whl"), None)
    if wheel is None:
        print(f"no wheel of kvgate in {folder}", file=sys.stderr)
        return 2
    try:
        _prove(wheel)
    except subprocess.CalledProcessError as failure:
        print(f"{wheel.name}: {failure.cmd[0]} ended with {failure.returncode} (see above)", file=sys.stderr)
        return 1
    return 0


def _prove(wheel: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="kvgate-wheel-") as scratch:
        commands = install(wheel, Path(scratch))
        for arguments in COMMANDS:
            print(f"kvgate {' '.join(arguments)}: {kvgate(commands, arguments).splitlines()[0]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
