"""The commands about pools of a cluster: each reads its words, calls one function, and ends in an exit code."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from kvgate.api.quantities import PositiveDecimal, PositiveDuration, Quantity, Throughput
from kvgate.api.words import Capability
from kvgate.app.helping import Command
from kvgate.app.output import printable
from kvgate.app.people import approve as approving
from kvgate.app.people import simulate as simulating
from kvgate.app.people.audit import transitions
from kvgate.app.people.checklist import Facts, readiness
from kvgate.app.people.cluster import Cluster, cluster_flags
from kvgate.app.people.completion import completion, pool_names
from kvgate.app.people.explain import condition_of, print_condition
from kvgate.app.people.states import passed
from kvgate.app.people.status import print_pool, print_pools
from kvgate.app.terminal import console, errors
from kvgate.edge.errors import EdgeError

NOT_PASSED, FINE = 1, 0
_COUNT, _FILE = click.IntRange(1, 1 << 30), click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=Command, examples=("kubectl kvgate status -A", "kubectl kvgate status qwen3 -n serving"))
@click.argument("pool", default="", shell_complete=pool_names)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="The pools of every namespace.")
@cluster_flags
def status(pool: str, cluster: Cluster, *, everywhere: bool) -> int:
    """Say what is on, what is held, why, who must act, and since when.

    Exits 0 when every gated capability of every pool shown passes, 1 when one does not.
    """
    if pool and everywhere:
        raise click.UsageError("a pool has one namespace: give -n instead of --all-namespaces")
    at = cluster.place(everywhere=everywhere)
    if pool:
        one = at.desk.pool(at.namespace, pool)
        print_pool(one, _now(), console(), _called())
        return FINE if passed(one) else NOT_PASSED
    found = at.desk.pools(at.namespace)
    if not found:
        errors().print(f"no InferencePool of kvgate.dev in {at.namespace or 'any namespace'}")
    print_pools(found, _now(), console(), everywhere=everywhere)
    return FINE if all(passed(one) for one in found) else NOT_PASSED


@click.command(cls=Command, examples=("kubectl kvgate explain qwen3", "kubectl kvgate explain qwen3 FabricMeasured"))
@click.argument("pool", shell_complete=pool_names)
@click.argument("condition", default="")
@cluster_flags
def explain(pool: str, condition: str, cluster: Cluster) -> int:
    """Say what a condition means: its message, its criteria with numbers, and what to do.

    Without CONDITION, the one that the pool waits for. A capability's name stands for what was judged of it. Exits 0
    when every gated capability of the pool passes, 1 when one does not.
    """
    at = cluster.place()
    found = at.desk.pool(at.namespace, pool)
    print_condition(found, condition_of(found, condition), _now(), console())
    return FINE if passed(found) else NOT_PASSED


@click.command(
    cls=Command,
    examples=(
        "kubectl kvgate approve qwen3 --capability Disaggregation --reason 'CHG-4711, reviewed by the network team'",
    ),
)
@click.argument("pool", shell_complete=pool_names)
@click.option(
    "--capability",
    required=True,
    type=click.Choice([one.value for one in Capability]),
    help="What to approve.",
)
@click.option("--reason", required=True, help="Why, in free words: for the auditor.")
@click.option("--attest", multiple=True, metavar="WORD", help="Vouch for this attestation; may be said again.")
@click.option("--accept", multiple=True, metavar="REASON", help="Accept this Inconclusive reason; may be said again.")
@click.option("--expires", default=approving.USUAL_LIFE, show_default=True, help="30d, 12h or a time; at most 90 days.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_flags
def approve(
    pool: str,
    capability: str,
    reason: str,
    attest: tuple[str, ...],
    accept: tuple[str, ...],
    expires: str,
    cluster: Cluster,
    *,
    yes: bool,
) -> int:
    """Approve the plan that waits, as the user of the kubeconfig.

    Shows the plan, the evidence and the difference to the deployment, asks, and creates a GateApproval that is bound
    to the plan's hash. Where no plan waits, or it asks for more than was said, nothing is created.
    """
    wish = approving.Wish(Capability(capability), reason, attest, accept, expires)
    at = cluster.place()
    found = at.desk.pool(at.namespace, pool)
    entry = approving.waiting(found, wish)
    spec = approving.approval(found, entry, wish, at.desk.me(), approving.expiry(expires, _now()))
    approving.print_plan(found, at.desk.target(found), spec, console())
    if not yes and not _agreed(f"Approve {spec.capability} of {found.key} as {spec.approver}?"):
        errors().print("nothing was approved")
        return NOT_PASSED
    approving.same_plan(at.desk.pool(at.namespace, pool), found, spec)
    name = at.desk.approve(at.namespace, spec)
    click.echo(f"gateapproval.kvgate.dev/{name} created; kubectl delete gapp {name} -n {at.namespace} revokes it")
    return FINE


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise EdgeError("there is no terminal to ask at: give --yes to approve without being asked")
    return click.confirm(question, err=True)


@click.command(cls=Command, examples=("kubectl kvgate measure qwen3 -n serving",))
@click.argument("pool", shell_complete=pool_names)
@cluster_flags
def measure(pool: str, cluster: Cluster) -> int:
    """Ask for a sweep now.

    Sets the annotation kvgate.dev/measure-requested-at. The sweep begins when its turn comes, whatever the interval.
    """
    at = cluster.place()
    found = at.desk.pool(at.namespace, pool)
    stamp = at.desk.ask_for_sweep(found, _now())
    click.echo(f"asked for a sweep of {found.key}; it has begun when status.lastHandledMeasureAt is {stamp}")
    if found.spec.suspend:
        errors().print("the pool is suspended: no sweep begins until it is resumed")
    return FINE


@click.command(cls=Command, examples=("kubectl kvgate suspend qwen3 -n serving",))
@click.argument("pool", shell_complete=pool_names)
@cluster_flags
def suspend(pool: str, cluster: Cluster) -> int:
    """Let kvgate rest: nothing is measured, enabled or rolled back.

    What is on stays on. Where a repository owns the pool's manifest, set spec.suspend there too.
    """
    return _rest(pool, cluster, suspended=True)


@click.command(cls=Command, examples=("kubectl kvgate resume qwen3 -n serving",))
@click.argument("pool", shell_complete=pool_names)
@cluster_flags
def resume(pool: str, cluster: Cluster) -> int:
    """Let kvgate go on with a suspended pool."""
    return _rest(pool, cluster, suspended=False)


@click.command(
    cls=Command,
    examples=(
        "kubectl kvgate simulate --throughput 25GB/s --prompt 8000",
        "kubectl kvgate simulate --throughput 10Gbit/s --prompt 3000 --prompt 8000 --model config.json --budget 1s",
    ),
)
@click.option("--throughput", required=True, help="What one path carries, with its unit: 25GB/s, 200Gbit/s.")
@click.option("--prompt", "prompts", required=True, multiple=True, type=_COUNT, help="Tokens; may be said again.")
@click.option("--model", type=_FILE, help="The model's config.json. [Qwen/Qwen3-0.6B's]")
@click.option("--kv-bytes", type=_COUNT, help="Bytes of KV cache per token, instead of --model.")
@click.option("--block-tokens", type=_COUNT, default=16, show_default=True, help="The engine's block size.")
@click.option("--decode-tp", type=_COUNT, default=1, show_default=True, help="Ranks of a decode worker.")
@click.option("--budget", default="200ms", show_default=True, help="The most that may be added.")
@click.option("--requests", help="Requests per second at the peak: adds the wait for a busy path.")
@click.option("--nodes", type=_COUNT, default=1, show_default=True, help="Nodes of each side, with --requests.")
@click.option("--prefill-rate", type=_COUNT, help="Tokens per second of a prefill worker: adds the break-even.")
def simulate(  # noqa: PLR0913
    throughput: str,
    prompts: tuple[int, ...],
    model: Path | None,
    *,
    kv_bytes: int | None,
    block_tokens: int,
    decode_tp: int,
    budget: str,
    requests: str | None,
    nodes: int,
    prefill_rate: int | None,
) -> int:
    """Estimate offline what a split would add to the time to first token.

    By the formulas of the gate, for a fabric that nobody measured. Exits 0 when every prompt size fits the budget,
    1 when one does not.
    """
    if model is not None and kv_bytes is not None:
        raise click.UsageError("--model and --kv-bytes both say how large the KV cache is: give one of them")
    peak = _quantity("--requests", PositiveDecimal, requests) if requests is not None else None
    rate = _quantity("--throughput", Throughput, throughput)
    fabric = simulating.Fabric(rate, peak, prefill_nodes=nodes, decode_nodes=nodes)
    size = simulating.Model(kv_bytes, model, block_tokens, decode_tp)
    asked = simulating.Question(prompts, _quantity("--budget", PositiveDuration, budget), prefill_rate)
    return FINE if simulating.simulate(fabric, size, asked, console()) else NOT_PASSED


Q = TypeVar("Q", bound=Quantity)


def _quantity(flag: str, kind: type[Q], written: str) -> Q:
    try:
        return kind.parse(written)
    except ValueError as error:
        said = str(error).replace(" in quotes", "").replace('"', "")  # quotes are YAML's, not a shell's
        raise click.UsageError(f"{flag} {said}") from error


@click.command(cls=Command, examples=("kubectl kvgate checklist qwen3 -n serving > readiness.md",))
@click.argument("pool", shell_complete=pool_names)
@cluster_flags
def checklist(pool: str, cluster: Cluster) -> int:
    """Print a readiness list for a review, as Markdown.

    What was measured and what was not, on which class of fabric, approvals, when a rollback was tried, and where the
    runbook stands: to attach to a change request. Exits 0 when every gated capability passes, 1 when one does not.
    """
    at = cluster.place()
    found = at.desk.pool(at.namespace, pool)
    facts = Facts(found, at.desk.approvals(found), at.desk.fabric_class(found), _now())
    click.echo("\n".join(readiness(facts)))
    return FINE if passed(found) else NOT_PASSED


@click.command(cls=Command, examples=("kubectl kvgate audit qwen3 -n serving",))
@click.argument("pool", shell_complete=pool_names)
@click.option("--all", "everything", is_flag=True, help="All transitions that the status keeps, not the last alone.")
@cluster_flags
def audit(pool: str, cluster: Cluster, *, everything: bool) -> int:
    """Explain the last transition in plain words.

    From status.history, the approvals, and the Events that the cluster still keeps.
    """
    at = cluster.place()
    found = at.desk.pool(at.namespace, pool)
    told = transitions(found, at.desk.approvals(found), at.desk.events(found))
    for number, story in enumerate(told if everything else told[:1]):
        click.echo("\n" * bool(number) + "\n".join(printable(line) for line in story))
    return FINE


def _rest(pool: str, cluster: Cluster, *, suspended: bool) -> int:
    at = cluster.place()
    found = at.desk.pool(at.namespace, pool)
    word = "suspended" if suspended else "resumed"
    if found.spec.suspend is suspended:
        click.echo(f"inferencepool.kvgate.dev/{pool} was {'suspended' if suspended else 'not suspended'} already")
        return FINE
    at.desk.set_suspended(found, suspended=suspended)
    click.echo(f"inferencepool.kvgate.dev/{pool} {word}")
    return FINE


def _now() -> datetime:
    return datetime.now(UTC)


def _called() -> str:
    return click.get_current_context().find_root().command_path


LOOKING = (status, explain, audit, checklist, simulate)
ACTING = (approve, measure, suspend, resume)
INSTALLING = (completion,)
