"""`kubectl kvgate simulate`: what a fabric of a given rate would add to the time to first token; nothing is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml
from rich.console import Console
from rich.text import Text

from kvgate.api.quantities import PositiveDecimal, PositiveDuration, Throughput
from kvgate.api.words import Outcome
from kvgate.app.output import printable, section
from kvgate.core import text
from kvgate.core.estimate import Demand, Load, Share, Transfer, break_even, load, longest_prompt, recompute_seconds
from kvgate.core.kvcache import KVBytesUnknown, KVLayout, declared_layout, kv_layout, parse_config
from kvgate.core.kvcache.words import REMEDY
from kvgate.edge.errors import EdgeError

EXAMPLE = "Qwen/Qwen3-0.6B"
"""The model that is meant where none is named: the one of the samples."""
HEADS = ("PROMPT", "KV BYTES", "ADDED TTFT", "OF IT WAITING", "BUDGET", "ESTIMATE", "NEEDS", "RECOMPUTE", "BREAK-EVEN")


@dataclass(frozen=True)
class Fabric:
    """The path that is imagined, and the load on it: requests per second over so many nodes of each side."""

    throughput: Throughput
    requests_per_second: PositiveDecimal | None = None
    skew: float = 1.0
    prefill_nodes: int = 1
    decode_nodes: int = 1


@dataclass(frozen=True)
class Model:
    """How much KV cache a token needs: a number, a config.json, or the example's where both are left out."""

    bytes_per_token: int | None = None
    config: Path | None = None
    block_tokens: int = 16
    decode_tensor_parallel: int = 1


@dataclass(frozen=True)
class Question:
    """Prompt sizes in tokens, the budget for each, and how fast a worker computes one anew, where that is known."""

    prompts: tuple[int, ...]
    budget: PositiveDuration
    prefill_tokens_per_second: int | None = None


def layout_of(model: Model) -> tuple[KVLayout, str]:
    """The layout of the KV cache and where it comes from. Raises EdgeError for a config that cannot be read."""
    if model.bytes_per_token is not None:
        source, found = "--kv-bytes", declared_layout(model.bytes_per_token)
    else:
        source, config = (str(model.config), _read(model.config)) if model.config else (EXAMPLE, _example())
        parsed = parse_config(config)
        found = parsed if isinstance(parsed, KVBytesUnknown) else kv_layout(parsed)
    if isinstance(found, KVBytesUnknown):
        raise EdgeError(f"{source}: {found.message.replace(REMEDY, 'give --kv-bytes instead')}")
    return found, "as --kv-bytes says" if source == "--kv-bytes" else f"{source}: {found.derivation}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EdgeError(f"{path}: cannot be read as text ({type(error).__name__})") from error


def _example() -> str:
    packaged = (resources.files("kvgate.app") / "samples" / "config.yaml").read_text(encoding="utf-8")
    return str(yaml.safe_load(packaged)["data"]["config.json"])


def simulate(fabric: Fabric, model: Model, question: Question, console: Console) -> bool:
    """Print the estimate of each prompt size; whether all stay within the budget."""
    layout, source = layout_of(model)
    rate = fabric.throughput.bytes_per_second
    transfer = Transfer(layout, model.block_tokens, model.decode_tensor_parallel, rate)
    busy = _load(fabric, transfer, question.prompts)
    wait = busy.wait_seconds if busy else 0.0
    rows = [_row(transfer, tokens, wait, question) for tokens in question.prompts]
    kv = f"KV cache {layout.bytes_per_token} B per token, {source}"
    console.print(Text(printable(f"{text.rate(rate)} per path; {kv}")))
    if busy:
        console.print(f"At the peak the busiest place, {busy.where}, is {text.percent(busy.utilization)} full")
    section(console, HEADS, rows)
    longest = longest_prompt(transfer, question.budget.seconds - wait) if math.isfinite(wait) else 0
    console.print(f"\nLongest prompt within {question.budget}: {longest} tokens")
    console.print("This is the move of the KV cache alone, at the rate given: what a fabric carries is measured.")
    return all(wait + transfer.seconds(tokens) <= question.budget.seconds for tokens in question.prompts)


def _load(fabric: Fabric, transfer: Transfer, prompts: tuple[int, ...]) -> Load | None:
    """At an even mix of the prompt sizes; None where no request rate is given."""
    if fabric.requests_per_second is None:
        return None
    shares = [Share(tokens, 1 / len(prompts)) for tokens in prompts]
    nodes = (fabric.prefill_nodes, fabric.decode_nodes)
    return load(transfer, shares, Demand(fabric.requests_per_second.number, fabric.skew, *nodes))


def _row(transfer: Transfer, tokens: int, wait: float, question: Question) -> tuple[str, ...]:
    kv_bytes, budget, rate = transfer.kv_bytes(tokens), question.budget.seconds, question.prefill_tokens_per_second
    added = transfer.seconds(tokens) + wait
    return (
        f"{tokens} tokens",
        text.size(kv_bytes),
        text.span(added),
        text.span(wait) if wait else "-",
        text.span(budget),
        (Outcome.PASS if added <= budget else Outcome.FAIL).value,
        text.rate(kv_bytes / (budget - wait)) if wait < budget else "-",
        text.span(recompute_seconds(tokens, rate)) if rate else "-",
        text.rate(break_even(kv_bytes, tokens, rate)) if rate else "-",
    )
