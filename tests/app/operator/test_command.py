"""`kvgate operator` as it is asked for, and what it says when it cannot begin."""

import socket
from pathlib import Path

import pytest

from kvgate.app.cli import main

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    return path


def test_without_a_cluster_it_says_where_it_looked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert main(["operator"]) == 2
    assert "the pod's ServiceAccount" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"clusters: [1,\n", id="broken YAML"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"{clusters: 3, contexts: x, current-context: x}", id="values of another type"),
        pytest.param(b"[]", id="a list"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_said_in_one_line(
    kubeconfig: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig.write_bytes(content)

    assert main(["operator", "--kubeconfig", str(kubeconfig)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kvgate: error: {kubeconfig}: is no kubeconfig")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["a*", "!a", "A", "a,b", "", "x" * 64])
def test_a_namespace_is_a_name_and_no_pattern(kubeconfig: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--kubeconfig", str(kubeconfig), "-n", name]) == 2
    assert "must be named exactly" in capsys.readouterr().err


def test_settings_that_cannot_be_used_are_said_before_anything_begins(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("wokers: 2")

    assert main(["operator", "--kubeconfig", str(kubeconfig), "--settings", str(settings)]) == 2
    assert "wokers" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        assert main(["operator", "--kubeconfig", str(kubeconfig), "--health-port", port]) == 2
    assert f"port {port} for health cannot be had" in capsys.readouterr().err
