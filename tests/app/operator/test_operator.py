"""How the whole operator ends: in order, when asked; with a failure, when a part of it breaks. No cluster is needed:
the watches find nobody to talk to, and begin anew until the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvgate.app.operator import main
from kvgate.app.operator.intake import Known
from kvgate.app.operator.leadership import Leadership
from kvgate.app.operator.main import Operator, OperatorOptions
from kvgate.app.operator.settings_file import SettingsFile
from kvgate.edge.leases import LeaseRecord
from tests.app.operator.memory_ground import MemoryGround, pool, until
from tests.app.operator.test_command import KUBECONFIG
from tests.app.operator.test_leadership import OneLease
from tests.core import cases

KEY = "serving/qwen3"


class Trial:
    """An operator whose Lease and ground are kept in memory, running in a thread."""

    def __init__(self, kubeconfig: Path, lease: OneLease, ground: MemoryGround, settings: Path | None = None) -> None:
        self.lease = lease
        leadership = Leadership(lease, "me", time.monotonic, lambda: datetime.now(UTC))
        options = OperatorOptions(kubeconfig=str(kubeconfig), health_port=0)
        self.operator = Operator(options, SettingsFile(settings), leadership, ground)
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.code = self.operator.run()

    def ask(self, key: str) -> None:
        self.operator._queue.add(key)

    def end(self) -> None:
        self.operator.hear(15, None)


@contextmanager
def trial(kubeconfig: Path, lease: OneLease, ground: MemoryGround, settings: Path | None = None) -> Iterator[Trial]:
    running = Trial(kubeconfig, lease, ground, settings)
    try:
        yield running
    finally:
        running.end()
        running.thread.join(30)


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def test_a_turn_in_progress_ends_before_the_lease_is_let_go(kubeconfig: Path) -> None:
    told: list[str] = []

    class Slow(OneLease):
        def replace(self, record: LeaseRecord, now: datetime) -> LeaseRecord:
            told.extend(["let go"] if not record.holder else [])
            return super().replace(record, now)

    def slowly(call: str, key: str) -> None:
        if call == "write_status":
            time.sleep(1)
        told.append(call)

    ground = MemoryGround({KEY: pool(KEY)}, before=slowly)
    with trial(kubeconfig, Slow(), ground) as running:
        running.ask(KEY)
        until(lambda: "observe" in told)
        running.end()
        running.thread.join(30)

        assert running.code == 0
    assert told[0] == "observe"
    assert told[-1] == "let go"
    assert "carry_out" in told


def test_no_turn_begins_after_it_was_asked_to_end(kubeconfig: Path) -> None:
    ground = MemoryGround({KEY: pool(KEY)})
    with trial(kubeconfig, OneLease(), ground) as running:
        running.ask(KEY)
        until(lambda: ground.count("observe", KEY) > 0)
        running.end()
        running.thread.join(30)
        before = len(ground.calls)
        running.ask(KEY)
        time.sleep(0.5)

        assert len(ground.calls) == before


def test_a_part_that_breaks_ends_the_whole_with_a_failure(kubeconfig: Path) -> None:
    class Broken(OneLease):
        def read(self) -> LeaseRecord | None:
            raise ZeroDivisionError

    with trial(kubeconfig, Broken(), MemoryGround()) as running:
        running.thread.join(30)

        assert running.code == 1


def test_without_an_api_server_it_waits_alive_and_is_not_ready(kubeconfig: Path) -> None:
    with trial(kubeconfig, OneLease(away=True), MemoryGround()) as running:
        time.sleep(1)

        assert running.code is None
        assert running.operator._beats.hanging() == ()
        assert not running.operator._is_ready()
        running.lease.away = False
        until(running.operator._is_ready)


def test_when_its_settings_change_every_pool_is_looked_at(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "REFRESH_SECONDS", 0.05)
    settings, keys = tmp_path / "settings.yaml", ("serving/a", "serving/b")
    settings.write_text("{}")
    resting = {key: replace(pool(key), spec=cases.spec({"suspend": True})) for key in keys}
    ground = MemoryGround(dict(resting))
    with trial(kubeconfig, OneLease(), ground, settings) as running:
        for key in keys:
            running.operator._intake.pool("serving", key.partition("/")[2], Known("target"))
            until(lambda key=key: ground.count("write_status", key) == 1)  # type: ignore[misc]
        before = {key: ground.count("observe", key) for key in keys}
        settings.write_text("probe: {image: r.example.com/p:1}")

        for key in keys:
            until(lambda key=key: ground.count("observe", key) > before[key])  # type: ignore[misc]
