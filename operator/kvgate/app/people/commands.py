"""The commands about pools of a cluster: each reads its words, calls one function, and ends in an exit code."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from kvgate.api.words import Capability
from kvgate.app.helping import Command
from kvgate.app.people import approve as approving
from kvgate.app.people.cluster import Cluster, cluster_flags
from kvgate.app.people.explain import condition_of, print_condition
from kvgate.app.people.states import passed
from kvgate.app.people.status import print_pool, print_pools
from kvgate.app.terminal import console, errors
from kvgate.edge.errors import EdgeError

NOT_PASSED, FINE = 1, 0


@click.command(cls=Command, examples=("kubectl kvgate status -A", "kubectl kvgate status qwen3 -n serving"))
@click.argument("pool", default="")
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
@click.argument("pool")
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
@click.argument("pool")
@click.option(
    "--capability",
    required=True,
    type=click.Choice([one.value for one in Capability], case_sensitive=False),
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
@click.argument("pool")
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
@click.argument("pool")
@cluster_flags
def suspend(pool: str, cluster: Cluster) -> int:
    """Let kvgate rest: nothing is measured, enabled or rolled back.

    What is on stays on. Where a repository owns the pool's manifest, set spec.suspend there too.
    """
    return _rest(pool, cluster, suspended=True)


@click.command(cls=Command, examples=("kubectl kvgate resume qwen3 -n serving",))
@click.argument("pool")
@cluster_flags
def resume(pool: str, cluster: Cluster) -> int:
    """Let kvgate go on with a suspended pool."""
    return _rest(pool, cluster, suspended=False)


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


LOOKING = (status, explain)
ACTING = (approve, measure, suspend, resume)
