"""The command line: each command reads its words, calls one function, and turns the answer into an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

import click

from kvgate import __version__
from kvgate.api.crds import render
from kvgate.api.reference import reference as api_reference
from kvgate.app import demo as demonstration
from kvgate.app import demo_routing
from kvgate.app.evaluate import checks_of, evaluate_files
from kvgate.app.helping import Commands
from kvgate.app.lint import lint_files
from kvgate.app.output import Format, print_reports, printable
from kvgate.app.people import commands as people
from kvgate.app.pipelines import FORMS
from kvgate.app.rates import rates
from kvgate.app.reconcile import reconcile_directory
from kvgate.app.report.command import report
from kvgate.app.terminal import console, errors
from kvgate.edge.errors import EdgeError
from kvgate.edge.signals import orderly_end

USAGE, NOT_PASSED, FINE = 2, 1, 0
PROGRAM, PLUGIN = "kvgate", "kubectl kvgate"
INTERRUPTED, PIPE_CLOSED = 130, 141
"""What a shell shows for a process that SIGINT or SIGPIPE ended."""

_GROUPS = {
    "Try it": ("demo",),
    "Before you merge": ("lint", "evaluate"),
    "On a directory of manifests": ("reconcile",),
    "Ask about pools of a cluster": (*(str(command.name) for command in people.LOOKING), "report"),
    "Act on pools of a cluster": tuple(str(command.name) for command in people.ACTING),
    "Run the operator": ("operator",),
    "Installation": ("crds", "completion", "version"),
}


@click.group(
    cls=Commands,
    sections=_GROUPS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def cli(context: click.Context) -> None:
    """kvgate gates NVIDIA Dynamo's disaggregated serving and KV routing on measured fabric evidence."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


_output = click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Format]),
    default=Format.TABLE.value,
    show_default=True,
    help="How to print the verdict.",
)
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"kvgate {__version__}")


@cli.command(examples=("kvgate crds | kubectl apply --server-side -f -",))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write one file per kind there.")
@click.option("--reference", type=click.Path(dir_okay=False, path_type=Path), help="Write the API reference there.")
def crds(out: Path | None, reference: Path | None) -> None:
    """Print the CustomResourceDefinitions, ready for kubectl apply."""
    documents = render()
    if out is None and reference is None:
        click.echo("".join(f"---\n{document}" for document in documents.values()), nl=False)
    if out is not None:
        for name, document in documents.items():
            _write(out / name, document)
    if reference is not None:
        _write(reference, api_reference())


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EdgeError(f"{path}: cannot be written ({error.strerror})") from error


@cli.command(examples=("kvgate lint pool.yaml approval.yaml",))
@click.argument("files", nargs=-1, required=True, type=_file)
@click.option(
    "-o", "--output", type=click.Choice(["text", *FORMS]), default="text", show_default=True,
    help="sarif is for code scanning, junit for test reports.",
)  # fmt: skip
def lint(files: tuple[Path, ...], output: str) -> int:
    """Say what the API server would refuse, without an API server.

    Prints one line for each complaint about a kind of kvgate.dev; other kinds are passed over. Exits 0 when there is
    nothing to say, 1 when there is.
    """
    found = lint_files(files)
    if output in FORMS:
        click.echo(FORMS[output](found.checks))
    else:
        for line in found.lines:
            click.echo(line)
    if not found.checks:
        click.echo(
            f"{PROGRAM}: note: nothing was checked: no document of kvgate.dev in {', '.join(map(str, files))}", err=True
        )
    return NOT_PASSED if found.lines else FINE


@cli.command(
    examples=(
        "kubectl get kvpool qwen3 -o yaml > pool.yaml",
        "kubectl get fabrep -o yaml > evidence.yaml",
        "kvgate evaluate --pool pool.yaml --evidence evidence.yaml --target deployment.yaml",
    )
)
@click.option("--pool", required=True, type=_file, help="The InferencePool; its ConfigMaps and approvals may join it.")
@click.option("--evidence", required=True, type=_file, multiple=True, help="FabricReports and BenchmarkReports.")
@click.option("--target", type=_file, help="The DynamoGraphDeployment; without it only the criteria are judged.")
@click.option(
    "-o", "--output", type=click.Choice([*(form.value for form in Format), *FORMS]), default=Format.TABLE.value,
    show_default=True, help="How to print the verdict; sarif is for code scanning, junit for test reports.",
)  # fmt: skip
def evaluate(pool: Path, evidence: tuple[Path, ...], target: Path | None, output: str) -> int:
    """Give the operator's verdict offline.

    Exits 0 when every gated capability passes, 1 when one does not, 2 when a file cannot be read.
    """
    reports = evaluate_files(pool, evidence, target, datetime.now(UTC))
    if output in FORMS:
        click.echo(FORMS[output](checks_of(reports, pool)))
    else:
        print_reports(reports, Format(output), console())
    return FINE if all(report.passed for report in reports) else NOT_PASSED


@cli.command(examples=("kvgate demo --keep demo", "kvgate reconcile -f demo"))
@click.option(
    "-f", "--filename", "folder", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of manifests.",
)  # fmt: skip
@click.option("--settings", type=_file, help="The operator's settings, as YAML or as its ConfigMap.")
@_output
def reconcile(folder: Path, settings: Path | None, output: str) -> int:
    """Measure, judge and patch the pools of a directory, as the operator does in a cluster.

    Nodes are v1 Node manifests annotated with the network namespace that plays them. Status and evidence are kept
    in .kvgate beside the manifests. Exits 0 when every gated capability passes, 1 when one does not.
    """
    reports = reconcile_directory(folder, rates(settings, errors()), _now, errors())
    print_reports(reports, Format(output), console())
    return FINE if reports and all(report.passed for report in reports) else NOT_PASSED


@cli.command(examples=("kvgate operator --kubeconfig ~/.kube/config -n serving",))
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Serve this namespace; may be said again. [all]")
@click.option("--settings", type=_file, help="The operator's settings; changes to the file are noticed.")
@click.option("--kubeconfig", envvar="KUBECONFIG", default="", help="Outside a pod. [$KUBECONFIG]")
@click.option("--lease-namespace", default="kube-system", show_default=True, help="Where the Lease is kept.")
@click.option("--health-port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="0 for any.")
def operator(
    namespaces: tuple[str, ...], settings: Path | None, kubeconfig: str, lease_namespace: str, health_port: int
) -> int:
    """Serve the pools of a cluster.

    Runs until SIGTERM or SIGINT; then turns in progress end, and the Lease is let go. Of several operators on one
    Lease, one acts at a time.
    """
    from kvgate.app.operator.cluster import serve  # noqa: PLC0415  kopf takes longer to load than a lint to run
    from kvgate.app.operator.main import OperatorOptions  # noqa: PLC0415

    return serve(OperatorOptions(namespaces, settings, kubeconfig, lease_namespace, health_port))


@cli.command(examples=("kvgate demo", "kvgate demo --keep demo -o json", "kvgate demo routing"))
@click.argument("which", type=click.Choice(["links", "routing"]), default="links")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Work in this directory and leave it.")
@click.option("--dynamo-python", type=_file, help="For routing: the Python with ai-dynamo. [dynamo-python]")
@_output
def demo(which: str, keep: Path | None, dynamo_python: Path | None, output: str) -> int:
    """Measure two real links, hold one pool and open the other.

    It needs iperf3 and half a minute, and no cluster. As root it makes two pairs of network namespaces with shaped
    links, else the same in a user namespace; where neither may be, it says so and uses loopback. `routing` instead
    runs NVIDIA Dynamo's frontends and mock workers here, with KV events and without, and says what the gate of KV
    routing makes of both, in a minute and a half. Exits 0 when both pools end as expected.
    """
    form = Format(output)
    if which == "routing":
        ended = demo_routing.run(dynamo_python, keep, form, console(), errors(), _now)
    else:
        ended = demonstration.run(keep, form, console(), errors(), _now)
    return FINE if ended else NOT_PASSED


for _command in (*people.LOOKING, report, *people.ACTING, *people.INSTALLING):
    cli.add_command(_command)


def _now() -> datetime:
    return datetime.now(UTC)


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run one command of what the reader calls `program`. Returns 0, 1 (not passed) or 2 (usage, unreadable input):
    never a traceback for either."""
    try:
        with orderly_end():
            result = cli.main(args=arguments, prog_name=program, standalone_mode=False)
            _flush()
    except click.exceptions.Abort:
        return _refused("stopped", INTERRUPTED)
    except BrokenPipeError:
        return _silenced()
    except click.ClickException as error:
        return _refused(error.format_message(), USAGE)
    except EdgeError as error:
        return _refused(str(error), USAGE)
    except OSError as error:
        return _refused(_unusable(error), USAGE)
    return result if isinstance(result, int) else FINE


def _refused(message: str, code: int) -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"kvgate: error: {printable(' '.join(message.split()))}\n")
    return code


def _unusable(error: OSError) -> str:
    """One line for a file that nobody closer to it has named. What is buffered for stdout may be what found no room."""
    if error.filename is None and error.errno in {errno.ENOSPC, errno.EIO, errno.EDQUOT}:
        _silenced()
        return f"stdout cannot be written ({error.strerror})"
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}cannot be used ({error.strerror or 'input/output error'})"


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _silenced() -> int:
    """Nobody reads any more: what is still buffered goes nowhere, and no complaint follows."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return PIPE_CLOSED


def run() -> None:
    """The console script. Where the terminal's encoding lacks a character, a question mark stands for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    called = Path(sys.argv[0]).stem.replace("-", " ")
    sys.exit(main(program=PLUGIN if called == PLUGIN else PROGRAM))
