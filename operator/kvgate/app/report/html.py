"""The few elements that the page is made of. What is put between tags must be escaped already."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence

from kvgate.app.report.names import escaped

Html = str


def element(tag: str, inner: Html, style: str = "") -> Html:
    classes = f' class="{style}"' if style else ""
    return f"<{tag}{classes}>{inner}</{tag}>"


def join(parts: Iterable[Html]) -> Html:
    return "\n".join(part for part in parts if part)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[int] = ()) -> Html:
    """Of plain words, which it escapes; nothing where there are no rows. `numbers` are columns set to the right."""
    listed, right = list(rows), frozenset(numbers)
    if not listed:
        return ""
    head = "".join(f'<th scope="col"{_right(n, right)}>{escaped(word)}</th>' for n, word in enumerate(heads))
    body = "\n".join(f"<tr>{_cells(row, right)}</tr>" for row in listed)
    title = element("caption", escaped(caption)) if caption else ""
    inner = f"{title}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{inner}</table></div>'


def _cells(row: Sequence[object], right: frozenset[int]) -> Html:
    first, *rest = (escaped(cell) for cell in row)
    others = "".join(f"<td{_right(n, right)}>{cell}</td>" for n, cell in enumerate(rest, 1))
    return f'<th scope="row">{first}</th>{others}'


def _right(place: int, right: frozenset[int]) -> str:
    return ' class="n"' if place in right else ""


def definitions(pairs: Iterable[tuple[str, object]]) -> Html:
    """Names and values; those without a value are left out."""
    listed = ((name, value) for name, value in pairs if value not in {None, ""})
    return element("dl", "".join(f"<div><dt>{escaped(n)}</dt><dd>{escaped(v)}</dd></div>" for n, v in listed))


def picture(svg: Mapping[str, bytes], alternative: str) -> Html:
    """The light or the dark drawing, as the reader's system asks; both stand in the page."""
    light, dark = (f"data:image/svg+xml;base64,{base64.b64encode(svg[name]).decode()}" for name in ("light", "dark"))
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    return f'<picture>{source}<img src="{light}" alt="{escaped(alternative)}"></picture>'
