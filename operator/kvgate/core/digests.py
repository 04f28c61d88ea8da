"""SHA-256, by which what was given or kept is known again."""

from __future__ import annotations

import hashlib


def digest(text: str) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()
