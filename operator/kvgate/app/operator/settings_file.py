"""The operator's settings from a file that may change while it runs, as a mounted ConfigMap does."""

from __future__ import annotations

import logging
from pathlib import Path

from kvgate.app.operator.logs import say
from kvgate.app.settings import Settings, read_settings
from kvgate.edge.errors import EdgeError


class SettingsFile:
    """The last settings that could be read. Without a path: the defaults."""

    def __init__(self, path: Path | None) -> None:
        """Raises EdgeError for a file that cannot be read or holds no settings."""
        self._path = path
        self._text = _read(path) if path else "{}"
        self._current = _parsed(path, self._text)

    def current(self) -> Settings:
        return self._current

    def refresh(self) -> bool:
        """Take what the file says now; whether that changed anything. Settings that cannot be used are not taken."""
        if self._path is None:
            return False
        try:
            text = _read(self._path)
            if text == self._text:
                return False
            self._text = text
            self._current = _parsed(self._path, text)
        except EdgeError as error:
            say(logging.ERROR, "the settings cannot be used; the former ones stay", reason=str(error))
            return False
        say(logging.INFO, "settings taken")
        return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EdgeError(f"{path}: cannot be read") from error


def _parsed(path: Path | None, text: str) -> Settings:
    read = read_settings(text)
    if not isinstance(read, Settings):
        raise EdgeError(f"{path}: {read[0]}")
    return read
