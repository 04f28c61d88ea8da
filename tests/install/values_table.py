"""The table of values in the chart's README, from values.yaml and its comments; run as a program, it writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import yaml

from tests.install.plane import ROOT

CHART = ROOT / "charts" / "kvgate"
README = CHART / "README.md"
BEGIN, END = "<!-- values: python -m tests.install.values_table -->", "<!-- end of values -->"
WHOLE = ("settings", "resources", "nodeSelector")
"""What is shown as one value, however much it holds."""


def table() -> str:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    root = yaml.compose("\n".join(lines))
    assert isinstance(root, yaml.MappingNode)
    rows = [f"| `{name}` | `{value}` | {told} |" for name, value, told in _rows(root, lines, "")]
    return "\n".join(["| value | default | what it is |", "|---|---|---|", *rows])


def _rows(node: yaml.MappingNode, lines: Sequence[str], path: str) -> Iterator[tuple[str, str, str]]:
    """Each value with what the comments above it and above its parents' first line say."""
    for key, value in node.value:
        name, told = f"{path}{key.value}", _comment(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and name not in WHOLE:
            inner = list(_rows(value, lines, f"{name}."))
            first = inner[0]
            yield (first[0], first[1], " ".join(filter(None, (told, first[2]))))
            yield from inner[1:]
        else:
            yield name, _shown(value), told


def _comment(lines: Sequence[str], line: int) -> str:
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(found)


def _shown(node: yaml.Node) -> str:
    return json.dumps(yaml.safe_load(yaml.serialize(node))).replace("|", "\\|")


def readme() -> str:
    """The README with the table as it should be."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
