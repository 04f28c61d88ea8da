"""What a shell, and kubectl for its plugin, may offer in the place of the last word; how kubectl finds the plugin."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from krew import packed
from kvgate import __version__
from kvgate.app.cli import cli
from kvgate.app.people.completion import NO_FILES, for_kubectl
from tests.app.people.conftest import Bench
from tests.app.yard import kvgate
from tests.cluster.binaries import binary

ROOT = Path(__file__).parents[3]
KREW = ROOT / "manifests" / "krew"


def offered(*words: str) -> list[str]:
    *found, end = for_kubectl(cli, list(words))
    assert end == NO_FILES
    return [word.split("\t")[0] for word in found]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        pytest.param(("sta",), ["status"], id="a command"),
        pytest.param(("s",), ["simulate", "status", "suspend"], id="several commands"),
        pytest.param(("approve", "--cap"), ["--capability"], id="a flag"),
        pytest.param(("approve", "--capability", "R"), ["Routing"], id="a word of a closed set"),
        pytest.param(("status", "--kubeconfig", "/none", ""), [], id="pools of a cluster that cannot be asked"),
    ],
)
def test_what_may_stand_there(words: tuple[str, ...], wanted: list[str]) -> None:
    assert sorted(offered(*words)) == wanted


@pytest.mark.api
def test_pools_are_offered_by_name(bench: Bench) -> None:
    flags = ("--kubeconfig", str(bench.yard.access.kubeconfig), "-n", bench.yard.namespace)
    assert offered("explain", *flags, "q") == ["qwen3"]
    assert offered("explain", *flags, "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_is_told_how_to_complete(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvgate("completion", shell) == 0
    said = capsys.readouterr().out
    assert f"_KVGATE_COMPLETE={shell}_complete" in said


@pytest.mark.api
def test_kubectl_finds_the_plugin_and_asks_it_what_may_stand_there(bench: Bench, tmp_path: Path) -> None:
    """The console scripts as an installer writes them, beside the real kubectl."""
    scripts = {"kubectl-kvgate": "cli:run", "kubectl_complete-kvgate": "people.completion:run_for_kubectl"}
    for name, place in scripts.items():
        module, function = place.split(":")
        script = f"#!{sys.executable}\nfrom kvgate.app.{module} import {function}\n{function}()\n"
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:/bin:/usr/bin", "PYTHONPATH": str(ROOT / "operator")}

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        line = [str(binary("kubectl")), *words, *bench.kvgate()]
        return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=60, check=False)

    found = kubectl("kvgate", "status", "qwen3")
    assert f"InferencePool {bench.yard.namespace}/qwen3" in found.stdout, found.stderr
    assert 'unknown command "bogus" for "kubectl kvgate"' in kubectl("kvgate", "bogus").stderr
    asked = [str(binary("kubectl")), "__complete", "kvgate", "resu"]
    told = subprocess.run(asked, capture_output=True, text=True, env=environment, timeout=60, check=False).stdout
    assert told.splitlines()[0].startswith("resume")


def test_krews_plugin_hands_over_to_kvgate_and_says_what_is_missing(tmp_path: Path) -> None:
    played = tmp_path / "kvgate"
    played.write_text('#!/bin/sh\necho "$@"\n')
    played.chmod(0o755)
    for path, code, said in ((f"{tmp_path}:/bin", 0, "status -A\n"), ("/bin:/none", 2, "kvgate: error: ")):
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            [KREW / "kubectl-kvgate", "status", "-A"], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == code
        assert (done.stdout or done.stderr).startswith(said)


def test_krews_manifest_names_the_plugin_by_its_file() -> None:
    plugin = yaml.safe_load((KREW / "kvgate.yaml").read_text(encoding="utf-8"))
    assert (plugin["kind"], plugin["metadata"]["name"]) == ("Plugin", "kvgate")
    for platform in plugin["spec"]["platforms"]:
        assert platform["bin"] == "kubectl-kvgate"
        assert (KREW / platform["bin"]).stat().st_mode & 0o111
        assert platform["sha256"] == hashlib.sha256(packed()).hexdigest(), "the plugin changed: run make krew"
    assert plugin["spec"]["version"] == f"v{__version__}"
