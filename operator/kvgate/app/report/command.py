"""`kvgate report`: reads its words, gathers, and writes one file or none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import click

from kvgate.app.helping import Command
from kvgate.app.people.cluster import Cluster, cluster_flags
from kvgate.app.report import parameters, rows
from kvgate.app.report.gathering import gathered
from kvgate.app.report.subject import Subject
from kvgate.edge.errors import EdgeError
from kvgate.edge.wholefile import write_whole

FINE = 0
STDOUT = "-"


class Form(StrEnum):
    HTML = "html"
    JSONL = "jsonl"
    CSV = "csv"
    MOCKER = "mocker"
    AICONFIGURATOR = "aiconfigurator"
    POLICY = "kv-transfer-policy"


@click.command(
    cls=Command,
    examples=(
        "kubectl kvgate report qwen3 -n serving -o report.html",
        "kubectl get kvpool,fabrep -o json > saved.json",
        "kvgate report saved.json -o report.html",
        "kvgate report saved.json --format csv | column -ts,",
    ),
)
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice([form.value for form in Form]), default=Form.HTML.value, show_default=True,
    help="A page, all of it as lines, a row per path, or parameters for another tool.",
)  # fmt: skip
@click.option("-o", "--output", default=STDOUT, show_default=True, help="The file; it is written whole or not at all.")
@cluster_flags
def report(sources: tuple[str, ...], form: str, output: str, cluster: Cluster) -> int:
    """Show what a pool's fabric was measured to carry: a page to attach to a ticket, a table, or parameters.

    A file holds FabricReports as kubectl prints them, and best the InferencePool too. A pool is read from the cluster,
    where nothing is changed. Exits 0 when the report is written, whatever it says, and 2 when it can't be.
    """
    now = datetime.now(UTC)
    write = _writer(Form(form), now)
    content = write(gathered(sources, cluster, now)).encode("utf-8", "replace")
    if output != STDOUT:
        write_whole(Path(output), content)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    return FINE


def _writer(form: Form, now: datetime) -> Callable[[Sequence[Subject]], str]:
    """Raises EdgeError at once where this format needs what is not installed."""
    if form is Form.HTML:
        return _page(now)
    return {
        Form.JSONL: rows.json_lines,
        Form.CSV: rows.comma_separated,
        Form.MOCKER: lambda subjects: parameters.mocker(_only(subjects)),
        Form.AICONFIGURATOR: lambda subjects: parameters.aiconfigurator(_only(subjects)),
        Form.POLICY: lambda subjects: parameters.kv_transfer_policy(_only(subjects)),
    }[form]


def _page(now: datetime) -> Callable[[Sequence[Subject]], str]:
    try:
        from kvgate.app.report.page import page  # noqa: PLC0415  matplotlib is an extra, and takes a second to load
    except ImportError as error:
        what = "--format html draws with matplotlib, which is not installed: pip install 'kvgate[report]'"
        raise EdgeError(f"{what}; --format csv and jsonl need nothing more") from error
    return lambda subjects: page(subjects, now)


def _only(subjects: Sequence[Subject]) -> Subject:
    if len(subjects) > 1:
        names = ", ".join(subject.key for subject in subjects[:3])
        raise EdgeError(
            f"this format is of one pool, and {len(subjects)} are given ({names}); name one, or give its file"
        )
    return subjects[0]
