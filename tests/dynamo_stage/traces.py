"""A trace in Mooncake's format whose prompts repeat, so that routing by KV cache has something to gain."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from kvgate_bench.trace import HASH_TOKENS

TOGETHER = 4
OUTPUT_TOKENS = 2


def reuse_trace(count: int, family_size: int, shared_blocks: int = 15) -> list[dict[str, object]]:
    """Four conversations at a time, each asked `family_size` times, all but the last block of a prompt shared."""
    rng, fresh = random.Random(5), iter(range(1 << 30))
    active: list[tuple[list[int], int]] = []
    lines = []
    tokens = (shared_blocks + 1) * HASH_TOKENS
    for number in range(count):
        while len(active) < TOGETHER:
            age = family_size * (len(active) + 1) // TOGETHER if number < TOGETHER else family_size
            active.append(([next(fresh) for _ in range(shared_blocks)], age))
        place = rng.randrange(TOGETHER)
        shared, left = active.pop(place)
        line: dict[str, object] = {"timestamp": number, "input_length": tokens, "output_length": OUTPUT_TOKENS}
        lines.append(line | {"hash_ids": [*shared, next(fresh)]})
        if left > 1:
            active.insert(place, (shared, left - 1))
    return lines


def written(trace: Sequence[dict[str, object]]) -> str:
    """As JSON lines."""
    return "\n".join(map(json.dumps, trace))
