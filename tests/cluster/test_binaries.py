"""The cache of what is built from Go modules."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.binaries import GoModule, binary
from tests.cluster.cache import CannotRunError, cache_root, made_once

PRETEND_GO = """\
#!/bin/sh
[ "$1" = env ] && echo {version} && exit
exit {build_code}
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a directory that is all of PATH."""
    path = tmp_path / "programs"
    path.mkdir()
    monkeypatch.setenv("PATH", f"{path}:/bin")
    monkeypatch.setenv("KVGATE_CACHE", str(tmp_path / "cache"))
    return path


def install_go(programs: Path, version: str, build_code: int = 0) -> None:
    (programs / "go").write_text(PRETEND_GO.format(version=version, build_code=build_code))
    (programs / "go").chmod(0o755)


def write(text: str, path: Path) -> None:
    path.write_text(text)


def test_without_go_one_line_says_what_to_do(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))

    with pytest.raises(CannotRunError, match=r"^Go 1\.26 or newer is not on PATH: install it, or run `make test`"):
        binary("etcd")


def test_a_go_that_is_too_old_is_refused_before_it_builds(programs: Path) -> None:
    install_go(programs, "go1.19.8")

    with pytest.raises(CannotRunError, match=r"^Go on PATH is go1\.19\.8, and 1\.26 is the oldest that works"):
        binary("etcd")


def test_a_build_that_fails_leaves_no_binary(programs: Path) -> None:
    install_go(programs, "go1.26.0", build_code=3)

    with pytest.raises(CannotRunError, match="go build of etcd failed with exit code 3"):
        binary("etcd")
    assert not list((cache_root() / "bin").rglob("etcd"))


def test_a_file_cut_short_by_a_kill_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    (tmp_path / ".thing.unfinished").write_text("hal")

    made = made_once(tmp_path / "thing", partial(write, "whole"))

    assert made.read_text() == "whole"


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "thing").write_text("first")

    made = made_once(tmp_path / "thing", partial(write, "second"))

    assert made.read_text() == "first"


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "linker flags"])
def test_a_change_asks_for_another_build(changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(binaries.GOBINS / "etcd", tmp_path / "etcd")
    monkeypatch.setattr(binaries, "GOBINS", tmp_path)
    module = GoModule("etcd", {"etcd": "go.etcd.io/etcd/server/v3"})
    before = module.key
    if changed == "linker flags":
        module = replace(module, linker_flags="-s")
    else:
        (tmp_path / "etcd" / changed).open("a").write("// changed\n")

    assert module.key != before


def test_every_staging_module_is_replaced_by_the_release_of_the_same_number() -> None:
    version = binaries.kubernetes_version().replace("v1.", "v0.", 1)
    lines = (binaries.GOBINS / "kubernetes/go.mod").read_text().splitlines()
    replaced = [line.split() for line in lines if "=>" in line]

    assert len(replaced) >= 30
    assert [words for words in replaced if words[1:] != ["=>", words[0], version]] == []
