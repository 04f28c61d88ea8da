"""Where the partners are: a JSON file that may come late, grow, and be swapped whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Address:
    host: str
    port: int


class Peers(Protocol):
    def find(self, node: str) -> Address | None: ...


@dataclass(frozen=True)
class PeersFile:
    """A map of node to "address" or to {"address": ..., "port": ...}; read anew at each question."""

    path: Path
    default_port: int

    def find(self, node: str) -> Address | None:
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return self._address(known.get(node)) if isinstance(known, dict) else None

    def _address(self, entry: object) -> Address | None:
        if isinstance(entry, str) and entry:
            return Address(entry, self.default_port)
        if isinstance(entry, dict):
            host, port = entry.get("address"), entry.get("port", self.default_port)
            if isinstance(host, str) and host and isinstance(port, int) and 0 < port < 65536:
                return Address(host, port)
        return None
