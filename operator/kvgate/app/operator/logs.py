"""What the operator says while it runs: one JSON object per line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from kvgate.app.settings_values import LogLevel

LOGGER = logging.getLogger("kvgate")
_FIELDS = "kvgate_fields"
_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


class JSONLines(logging.Formatter):
    """Time, severity, logger and message, then the fields that the caller gave; a traceback stays in its line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def say(level: int, message: str, **fields: str | float) -> None:
    """One line; `message` is always one of our own sentences, and what varies is a field."""
    LOGGER.log(level, message, extra={_FIELDS: fields})


def confess(message: str, error: BaseException, **fields: str | float) -> None:
    """One line with the traceback in it, of a fault that is ours."""
    LOGGER.error(message, exc_info=error, extra={_FIELDS: fields})


def set_up_logs(level: LogLevel) -> None:
    """Ours from `level`; kopf's and the HTTP libraries' warnings and errors alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it warns that it hears no signals
    LOGGER.setLevel(_LEVELS[level])
