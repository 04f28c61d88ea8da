"""What the operator says while it runs: one JSON object per line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from kvgate.app.settings_values import LogLevel

LOGGER = logging.getLogger("kvgate")
_FIELDS = "kvgate_fields"
LONGEST_FOREIGN, MOST_CAUSES = 200, 5
"""Characters of a library's message, and exceptions of a chain, that are told."""
_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


class JSONLines(logging.Formatter):
    """Time, severity, logger and message, then the fields that the caller gave. A traceback of ours stays in its line;
    of a library's error, which tells of the network far more often than of a fault, the kinds are named."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info and _is_ours(record):
            line["traceback"] = self.formatException(record.exc_info)
        elif record.exc_info:
            line["error"] = _kinds(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=str)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == LOGGER.name


def _message(record: logging.LogRecord) -> str:
    """A library's message may hold all that an exception says: its first line is enough, and not all of a long one."""
    message = record.getMessage()
    return message if _is_ours(record) else (message.splitlines() or [""])[0][:LONGEST_FOREIGN]


def _kinds(error: BaseException | None) -> str:
    """An exception and what it was raised from, by their names: `ClientConnectorError: ConnectionRefusedError`."""
    found: list[str] = []
    while error is not None and len(found) < MOST_CAUSES:
        found.append(type(error).__name__)
        error = error.__cause__ or error.__context__
    return ": ".join(dict.fromkeys(found))


def say(level: int, message: str, **fields: str | float | list[str]) -> None:
    """One line; `message` is always one of our own sentences, and what varies is a field."""
    LOGGER.log(level, message, extra={_FIELDS: fields})


def confess(message: str, error: BaseException, **fields: str | float) -> None:
    """One line with the traceback in it, of a fault that is ours."""
    LOGGER.error(message, exc_info=error, extra={_FIELDS: fields})


@contextmanager
def threads_confess() -> Iterator[None]:
    """While it lasts, what ends a thread that nobody waits for is a line of the log, and not a bare traceback."""

    def told(about: threading.ExceptHookArgs) -> None:
        if about.exc_value is not None and not isinstance(about.exc_value, SystemExit):
            confess("a thread of the operator broke", about.exc_value, thread=about.thread.name if about.thread else "")

    before, threading.excepthook = threading.excepthook, told
    try:
        yield
    finally:
        threading.excepthook = before


def set_up_logs(level: LogLevel) -> None:
    """Ours from `level`; kopf's and the HTTP libraries' warnings and errors alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it warns that it hears no signals
    LOGGER.setLevel(_LEVELS[level])
