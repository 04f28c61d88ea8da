"""Foreign words as a page or a chart may show them."""

from __future__ import annotations

import html
import re

from kvgate.app.output import printable

_NO_XML = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")


def shown(words: object) -> str:
    """Printable, and in characters that UTF-8 has."""
    return _NO_XML.sub("?", printable(str(words))).encode("utf-8", "replace").decode("utf-8")


def escaped(words: object) -> str:
    """The same as HTML, in text and in attributes."""
    return html.escape(shown(words), quote=True)


def short_name(words: str, most: int) -> str:
    """The end of a long name tells more than its middle."""
    name = shown(words)
    if len(name) <= most:
        return name
    head = most // 2
    return f"{name[:head]}…{name[head + 1 - most :]}"
