"""The log: one JSON object per line, with our own tracebacks in it and libraries' errors in a few words."""

from __future__ import annotations

import gc
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kopf
import pytest

from kvgate.app.operator import watching
from kvgate.app.operator.handlers import log_in, register
from kvgate.app.operator.intake import Intake
from kvgate.app.operator.logs import LOGGER, LONGEST_FOREIGN, JSONLines, threads_confess
from kvgate.app.operator.watching import settings
from tests.app.operator.memory_ground import until
from tests.app.operator.test_command import KUBECONFIG


def line(logger: str, message: str, error: BaseException | None = None) -> dict[str, str]:
    about = (type(error), error, error.__traceback__) if error else None
    text = JSONLines().format(logging.LogRecord(logger, logging.ERROR, "f.py", 1, message, (), about))
    assert "\n" not in text
    read = json.loads(text)
    assert isinstance(read, dict)
    return read


def unreachable() -> OSError:
    """As aiohttp raises it where nobody listens."""
    try:
        try:
            raise ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 6443)")
        except OSError as inner:
            raise OSError("Cannot connect to host 10.0.0.1:6443") from inner
    except OSError as error:
        return error


def test_a_librarys_error_is_named_without_its_traceback() -> None:
    found = line("kopf.objects", "Watcher for nodes has failed: cannot connect\nTraceback: …", unreachable())

    assert "traceback" not in found
    assert found["error"] == "OSError: ConnectionRefusedError"
    assert found["message"] == "Watcher for nodes has failed: cannot connect"


def test_a_librarys_message_is_cut() -> None:
    assert len(line("kopf", "x" * 10_000)["message"]) == LONGEST_FOREIGN


def test_a_fault_of_ours_keeps_its_place() -> None:
    found = line("kvgate", "the turn failed by a fault of kvgate's", unreachable())

    assert "unreachable" in found["traceback"]
    assert "error" not in found


@pytest.mark.parametrize("logger", ["kopf", "kvgate"])
def test_without_an_error_there_is_neither(logger: str) -> None:
    assert {"traceback", "error"} & set(line(logger, "hello")) == set()


def test_causes_that_go_round_come_to_an_end() -> None:
    error = unreachable()
    error.__cause__ = error

    assert line("kopf", "no", error)["error"] == "OSError"


def test_a_thread_that_breaks_is_told_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    before = threading.excepthook
    with threads_confess(), caplog.at_level(logging.ERROR, LOGGER.name):
        thread = threading.Thread(target=broken, name="rate")
        thread.start()
        thread.join()

    (record,) = caplog.records
    told = json.loads(JSONLines().format(record))
    assert (told["message"], told["thread"]) == ("a thread of the operator broke", "rate")
    assert "ZeroDivisionError" in told["traceback"]
    assert threading.excepthook is before


def test_while_the_api_server_cannot_be_reached_the_log_is_short_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf's own words for it, by its real watches; it gives up at once here, and not after 7 s."""

    def hasty(executor: ThreadPoolExecutor, **more: bool) -> kopf.OperatorSettings:
        made = settings(executor, **more)
        made.networking.error_backoffs = (0.05,)
        return made

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(JSONLines().format(record))  # type: ignore[method-assign]
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setattr(watching, "settings", hasty)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    def registry() -> kopf.OperatorRegistry:
        made = kopf.OperatorRegistry()
        register(made, Intake(lambda _: None))
        log_in(made, str(tmp_path / "kubeconfig"))
        return made

    watches = watching.Watching(registry, (), lambda: None)
    thread = threading.Thread(target=watches.run, daemon=True)
    logging.getLogger().addHandler(handler)
    try:
        thread.start()
        until(lambda: any("the watches ended" in line for line in lines), 30)
    finally:
        watches.stop()
        thread.join(30)
        gc.collect()  # what asyncio says of tasks that nobody awaited, it says when they go
        logging.getLogger().removeHandler(handler)

    told = [json.loads(line) for line in lines]
    assert [line for line in lines if "\n" in line or len(line) > 500] == []
    assert [line for line in told if "traceback" in line] == []
    assert any(line.get("error", "").startswith("ClientConnectorError") for line in told)
