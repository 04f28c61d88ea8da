"""What is sent and when: from a trace, or made up, to token prompts that only their own run shares."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kvgate_bench.trace import HASH_TOKENS, TraceError, TraceRequest
from kvgate_bench.wire import ACTIVE_FAMILIES, ARMS, MOST_CACHE_SHARE, SALT_BLOCKS, Plan

SHARED_SHARE = 0.9


@dataclass(frozen=True)
class Due:
    """A request of a run: when, of which family, which blocks, and how much of it the run will have sent before."""

    arrival_seconds: float
    family: int
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]
    hash_tokens: int
    repeated_tokens: int


@dataclass(frozen=True)
class Salt:
    """What keeps the prompts of one run apart from those of every other: its seed, block and arm."""

    seed: int
    block: int
    arm: str

    def __str__(self) -> str:
        return f"{self.seed}/{self.block}/{self.arm}"


def requests_of(plan: Plan, trace: Sequence[TraceRequest] | None) -> tuple[tuple[Due, ...], ...]:
    """The requests of each block, without their arrivals: of a trace that is long enough, one part after the other, of
    a shorter one its beginning each time. Raises TraceError where the plan cannot be kept."""
    size, hash_tokens = plan.requests_per_run, HASH_TOKENS if trace is not None else plan.block_tokens
    whole = built_in(plan) if trace is None else trace
    if len(whole) < size:
        raise TraceError(f"the trace has {len(whole)} requests, a run needs {size}")
    families = {ids: number for number, ids in enumerate(dict.fromkeys(request.hash_ids[0] for request in whole))}
    enough = len(whole) >= plan.blocks * size
    parts = [whole[start : start + size] for start in (block * size * enough for block in range(plan.blocks))]
    found = tuple(_dues(plan, part, families, hash_tokens) for part in parts)
    needed, most = max(map(partial(cache_blocks, plan), found)), MOST_CACHE_SHARE * plan.cache_blocks
    if needed > most:
        what = f"a run would fill {needed} KV blocks, more than 20% of one worker's {plan.cache_blocks}"
        raise TraceError(f"{what}: give a trace with shorter prompts or more reuse, or fewer requests per run")
    return found


def built_in(plan: Plan) -> tuple[TraceRequest, ...]:
    """Families that come and go at an even pace: nine tenths of a prompt are its family's, the rest is its own."""
    rng = random.Random(f"{plan.seed}/families")  # noqa: S311 -- a load, not a secret
    fresh = itertools.count()
    ages = range(1, ACTIVE_FAMILIES + 1)
    active = [_family(plan, rng, fresh, max(1, plan.family_size * age // ACTIVE_FAMILIES)) for age in ages]
    made = []
    for _ in range(plan.blocks * plan.requests_per_run):
        place = rng.randrange(len(active))
        family = active[place]
        own = -(-family.tokens // plan.block_tokens) - len(family.shared)
        made.append(TraceRequest(family.tokens, plan.output_tokens, (*family.shared, *itertools.islice(fresh, own))))
        left = family.left - 1
        active[place] = replace(family, left=left) if left else _family(plan, rng, fresh, plan.family_size)
    return tuple(made)


@dataclass(frozen=True)
class _Family:
    """A family of the built-in workload: the hash IDs that its prompts share, their length, and how many are left."""

    shared: tuple[int, ...]
    tokens: int
    left: int


def _family(plan: Plan, rng: random.Random, fresh: Iterator[int], left: int) -> _Family:
    tokens = rng.choice(plan.prompts)
    shared = max(1, int(tokens * SHARED_SHARE) // plan.block_tokens)
    return _Family(tuple(itertools.islice(fresh, shared)), tokens, left)


def _dues(plan: Plan, part: Sequence[TraceRequest], families: Mapping[int, int], hash_tokens: int) -> tuple[Due, ...]:
    sent: set[int] = set()
    found = []
    for request in part:
        keys = _prefixes(request.hash_ids)
        known = sum(1 for _ in itertools.takewhile(sent.__contains__, keys))
        found.append(
            Due(
                arrival_seconds=0.0,
                family=families[request.hash_ids[0]],
                input_tokens=request.input_tokens,
                output_tokens=min(request.output_tokens, plan.output_tokens),
                hash_ids=request.hash_ids,
                hash_tokens=hash_tokens,
                repeated_tokens=_repeated(plan, min(known * hash_tokens, request.input_tokens)),
            )
        )
        sent.update(keys)
    return tuple(found)


def _prefixes(hash_ids: Sequence[int]) -> list[int]:
    """One key per block, of it and all before it: a KV block is found again only behind the same blocks."""
    return list(itertools.accumulate(hash_ids, lambda before, own: hash((before, own)), initial=0))[1:]


def _repeated(plan: Plan, shared_tokens: int) -> int:
    """Tokens of whole KV blocks, salt included, that the run has sent before."""
    tokens = SALT_BLOCKS * plan.block_tokens + shared_tokens if shared_tokens else 0
    return tokens // plan.block_tokens * plan.block_tokens


def cache_blocks(plan: Plan, requests: Sequence[Due]) -> int:
    """KV blocks that one run fills if nothing is evicted: salts, prompts and answers."""
    prefixes = {key for due in requests for key in _prefixes(due.hash_ids)}
    per_hash = -(-max(due.hash_tokens for due in requests) // plan.block_tokens)
    answers = sum(-(-due.output_tokens // plan.block_tokens) for due in requests)
    return len(prefixes) * per_hash + SALT_BLOCKS * len({due.family for due in requests}) + answers


def arrivals(plan: Plan, block: int) -> tuple[float, ...]:
    """Seconds from the start of a run, the same for both arms of a block: a Poisson stream at the plan's rate."""
    rng = random.Random(f"{plan.seed}/{block}/arrivals")  # noqa: S311
    moments, at = [], 0.0
    for _ in range(plan.requests_per_run):
        at += rng.expovariate(plan.requests_per_second)
        moments.append(at)
    return tuple(moments)


def order(plan: Plan, block: int) -> tuple[str, ...]:
    """Which arm goes first, by coin."""
    heads = random.Random(f"{plan.seed}/{block}/order").random() < 0.5  # noqa: S311
    return ARMS if heads else ARMS[::-1]


def prompt(plan: Plan, due: Due, salt: Salt) -> list[int]:
    """Token IDs: the salt of the run and family, then each block as PRNG(seed, block, arm, hash ID) gives it."""
    tokens = list(_tokens(plan, f"{salt}/salt/{due.hash_ids[0]}", SALT_BLOCKS * plan.block_tokens))
    for hash_id in due.hash_ids:
        tokens += _tokens(plan, f"{salt}/{hash_id}", due.hash_tokens)
    return tokens[: SALT_BLOCKS * plan.block_tokens + due.input_tokens]


def _tokens(plan: Plan, seed: str, count: int) -> Iterator[int]:
    rng = random.Random(seed)  # noqa: S311
    span = plan.last_token - plan.first_token + 1
    return (plan.first_token + int(rng.random() * span) for _ in range(count))


def samples(requests: Sequence[Due], count: int) -> tuple[Due, ...]:
    """Requests at evenly spaced ranks of length: their mean is near the workload's."""
    ordered = sorted(requests, key=lambda due: due.input_tokens)
    places = [int((number + 0.5) / count * len(ordered)) for number in range(count)]
    return tuple(ordered[place] for place in places)
