"""Packs the operator's image as `operator/Dockerfile` makes it: Debian's Python, the locked dependencies, our wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.cluster.cache import CannotRunError, cache_root, fingerprint, made_once, say
from tests.cluster.images import Image, accounts, debian_layer, layer, pack

ROOT = Path(__file__).parents[2]
REPOSITORY, TAG = "kvgate.dev/operator", "test"
PACKAGES = ("ca-certificates", "python3")
HOME = "opt/kvgate"
INTERPRETER = f"/{HOME}/bin/python3"
OPERATOR = Image(
    f"{REPOSITORY}:{TAG}",
    [f"/{HOME}/bin/kvgate"],
    environment={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
)
LOCK, PROJECT = ROOT / "requirements.lock", ROOT / "pyproject.toml"
SOURCES = ("operator/kvgate", "probes/kvgate_bench", "probes/kvgate_probe")
OF_THIS_BUILD = (b"direct_url.json", b"uv_cache.json")
"""Where the wheel lay and when: left out, so that two builds are the same."""
NOT_A_PIN = re.compile(r"^ *(--hash=|#)")


def operator_image(directory: Path) -> Path:
    """Pack the operator as it is in this checkout, into `directory`."""
    return pack(OPERATOR, [path.read_bytes() for path in build_layers()], directory / "operator.tar")


def build_layers() -> tuple[Path, ...]:
    """Make what is not in the cache yet."""
    return debian_layer(PACKAGES), dependencies_layer(), kvgate_layer()


def dependencies_layer() -> Path:
    """What kvgate itself needs, in the versions of the lock: fetched once, then cached."""
    key = fingerprint(*_recipe(), LOCK.read_bytes(), PROJECT.read_bytes())
    return made_once(cache_root() / "images" / f"operator-dependencies-{key}.tar", _install_dependencies)


def kvgate_layer() -> Path:
    """The wheel of this checkout, installed, and the interpreter that runs it."""
    named = [part for path in sources() for part in (str(path.relative_to(ROOT)), path.read_bytes())]
    key = fingerprint(*_recipe(), PROJECT.read_bytes(), (ROOT / "README.md").read_bytes(), *named)
    return made_once(cache_root() / "images" / f"operator-kvgate-{key}.tar", _install_kvgate)


def sources() -> list[Path]:
    """What the wheel is built of."""
    found = (path for place in SOURCES for path in (ROOT / place).rglob("*"))
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def constraints() -> str:
    """The pins of the lock without their hashes, as the Dockerfile takes them."""
    lines = (line for line in LOCK.read_text().splitlines() if not NOT_A_PIN.match(line))
    return "\n".join(line.rstrip("\\ ") for line in lines) + "\n"


@cache
def python_minor() -> str:
    """The version of Debian's Python, such as 3.11."""
    with tarfile.open(debian_layer(PACKAGES)) as base:
        found = (re.fullmatch(r"(?:\./)?usr/bin/python(3\.\d+)", name) for name in base.getnames())
        return next(match[1] for match in found if match)


def _recipe() -> tuple[str, bytes]:
    return python_minor(), Path(__file__).read_bytes()


def _install_dependencies(target: Path) -> None:
    say("fetching what kvgate needs, for the operator's image")
    with tempfile.TemporaryDirectory() as name:
        pins, site = Path(name) / "constraints.txt", Path(name) / "site"
        pins.write_text(constraints())
        _install(site, "--constraint", pins, "--requirement", PROJECT)
        target.write_bytes(layer(_placed(site)))


def _install_kvgate(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        built, site = Path(name) / "wheel", Path(name) / "site"
        _run("build", "--wheel", "--no-isolation", "--outdir", built, ROOT)
        _install(site, "--no-deps", *built.glob("*.whl"))
        links = {f"{HOME}/bin/python3": "/usr/bin/python3"}
        target.write_bytes(layer([*accounts("kvgate"), *_environment(), *_placed(site)], links))


def _environment() -> list[tuple[str, bytes, int]]:
    """What `python3 -m venv` writes."""
    told = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python_minor()}\n"
    return [(f"{HOME}/pyvenv.cfg", told.encode(), 0o644)]


def _install(site: Path, *what: str | Path) -> None:
    """Compiled as pip does it, but with bytecode that does not ask for the source's time: a layer knows none."""
    _run("uv", "pip", "install", "--quiet", "--python-version", python_minor(), "--target", site, *what)
    if python_minor() == f"{sys.version_info.major}.{sys.version_info.minor}":
        shown_as = ("-s", site, "-p", f"/{_packages()}", "--invalidation-mode", "unchecked-hash")
        _run("compileall", "-q", "-j", "0", *shown_as, site)


def _run(*module: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", *map(str, module)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise CannotRunError(f"{module[0]} could not make the operator's image, and said last: {said[0]}")


def _packages() -> str:
    return f"{HOME}/lib/python{python_minor()}/site-packages"


def _recorded(content: bytes) -> bytes:
    return b"".join(line for line in content.splitlines(True) if not any(name in line for name in OF_THIS_BUILD))


def _placed(site: Path) -> Iterator[tuple[str, bytes, int]]:
    """An installed tree as it lies in the image, its commands run by the image's interpreter."""
    for path in sorted(path for path in site.rglob("*") if path.is_file()):
        within = path.relative_to(site)
        if path.name.encode() in OF_THIS_BUILD:
            continue
        if within.parts[0] == "bin":
            _, _, rest = path.read_bytes().partition(b"\n")
            yield f"{HOME}/{within}", f"#!{INTERPRETER}\n".encode() + rest, 0o755
        else:
            content = path.read_bytes()
            yield f"{_packages()}/{within}", _recorded(content) if path.name == "RECORD" else content, 0o644
