"""One JSON document of a file, as `kubectl get -o json` saves it, read within limits of its own."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from kvgate.edge.yamlfiles import Document, FileProblem, FileReason

MAX_JSON_BYTES = 512 * 1024 * 1024
"""What the evidence of a million paths, two samples each, fits into."""
_SNIFFED = 64


def read_json(path: Path) -> Document | FileProblem | None:
    """The document of a file that begins as a JSON object does; None for any other, which may be YAML or missing."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(path.stat().st_mode) or not file.read(_SNIFFED).lstrip().startswith(b"{"):
                return None
            file.seek(0)
            content = file.read(MAX_JSON_BYTES + 1)
    except OSError:
        return None
    if len(content) > MAX_JSON_BYTES:
        what = f"{path} is larger than the limit of {MAX_JSON_BYTES:,} bytes; save fewer reports"
        return FileProblem(path, FileReason.TOO_LARGE, what)
    return _document(path, content)


def _document(path: Path, content: bytes) -> Document | FileProblem | None:
    """None for what only begins like JSON: YAML's own reader says what is wrong with it."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return Document(path, 0, body) if isinstance(body, dict) else None
