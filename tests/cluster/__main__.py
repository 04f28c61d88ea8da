"""`python -m tests.cluster build|up|down`: the tests' Kubernetes, for a person to play with."""

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

from tests.cluster import binaries, harness, images, leftovers, operator_image
from tests.cluster.cache import CannotRunError, say
from tests.cluster.controlplane import ADMIN_KUBECONFIG
from tests.cluster.leftovers import Ledger, states

DEFAULT_STATE_NAME = "cluster"


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 done, 1 something failed on the way, 2 this machine cannot."""
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "build":
                build()
            case "up":
                up(options.state, tuple(options.rates.split(",")))
            case _:
                down(options.state)
    except CannotRunError as error:
        say(f"cannot {options.command}: {error}")
        return 2
    except (RuntimeError, OSError) as error:
        say(f"{options.command} failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: what was started is ended")
        return 130
    return 0


def build() -> None:
    """Build every program, and as root fetch what the images are made of."""
    binaries.build_all()
    if os.geteuid() == 0:
        say(f"base of the probe's image: {images.debian_layer()}")
        say(f"layers of the operator's image: {', '.join(map(str, operator_image.build_layers()))}")
    else:
        say("not root: the images are left out, which only the tier cluster needs")


def up(state: Path, rates: tuple[str, ...]) -> None:
    """Start a cluster and leave it running; one that already runs there is left as it is."""
    harness.check_machine()
    leftovers.clear_abandoned()
    if _is_kept(state) and leftovers.still_whole(state):
        say(f"a cluster already runs in {state}; end it with: {_command('down', state)}")
        _print_export(state)
        return
    if state.exists():
        leftovers.clear(state)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ledger = Ledger.open(state)
    try:
        cluster = harness.start_cluster(ledger, rates)
        ledger.own(kept=True)
    except BaseException:
        leftovers.clear(state)
        raise
    links = ", ".join(f"{name} {rate}" for name, rate in zip(cluster.nodes, rates, strict=True))
    say(f"{len(rates)} nodes Ready after {cluster.seconds_until_ready:.1f} s; links: {links}")
    say(f"each holds the probe's image as {images.PROBE_REFERENCE}")
    say(f"kubectl of the same version: {binaries.binary('kubectl')}; end the cluster with: {_command('down', state)}")
    _print_export(state)


def down(state: Path) -> None:
    """End the cluster in `state`, and clear whatever killed runs have left."""
    for cleared in leftovers.clear_abandoned():
        say(f"cleared what a killed run left in {cleared}")
    if not state.exists():
        say("no cluster runs" if state == _default_state() else f"no cluster runs in {state}")
        return
    _is_kept(state)
    leftovers.clear(state)
    say("the cluster is ended and cleared")


def _is_kept(state: Path) -> bool:
    """Whether a finished `up` left a cluster there; raises CannotRunError while another process still starts it."""
    owner = Ledger(state).owner()
    if owner is None or not owner.answers():
        return False
    if not owner.kept:
        raise CannotRunError(f"process {owner.pid} is using {state}: wait for it, or end it first")
    return True


def _print_export(state: Path) -> None:
    print(f"export KUBECONFIG={shlex.quote(str(state / ADMIN_KUBECONFIG))}", flush=True)


def _command(name: str, state: Path) -> str:
    asked = f"python -m tests.cluster {name}"
    return asked if state == _default_state() else f"{asked} --state {shlex.quote(str(state))}"


def _default_state() -> Path:
    return states() / DEFAULT_STATE_NAME


def _absolute(text: str) -> Path:
    return Path(text).absolute()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build every program and image part into the cache")
    for name, help_text in (("up", "start a cluster, print its KUBECONFIG"), ("down", "end it and clear")):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--state", type=_absolute, default=_default_state(), help="a directory of its own")
        if name == "up":
            rates = ",".join(harness.DEFAULT_RATES)
            command.add_argument("--rates", default=rates, help="one node per rate, as tc writes it: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
