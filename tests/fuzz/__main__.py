"""`python -m tests.fuzz`: KVGATE_FUZZ_EXAMPLES spoilt texts over all readers of foreign text; the table goes to
benchmarks/results/fuzz.md."""

from __future__ import annotations

import os
import sys
import time

from benchmarks.tables import publish
from tests.fuzz.parsers import PARSERS, fuzz

TEXTS = int(os.environ.get("KVGATE_FUZZ_EXAMPLES", "120000"))
SEED = int(os.environ.get("KVGATE_FUZZ_SEED", "20261130"))
HEADS = ("what is read", "inputs", "taken as whole", "crashes or broken laws", "seconds", "law")


def main() -> bool:
    rows, broken = [], 0
    each = -(-TEXTS // len(PARSERS))
    for parser in PARSERS:
        began = time.monotonic()
        told = fuzz(parser, SEED, each)
        broken += len(told.crashes)
        for crash in sorted(set(told.crashes))[:5]:
            print(f"{parser.name}: {crash}", file=sys.stderr)
        seconds = f"{time.monotonic() - began:.1f}"
        rows.append((parser.name, f"{each:,}", f"{told.taken:,}", str(len(told.crashes)), seconds, parser.law))
    publish(
        "fuzz",
        "Spoilt input",
        f"Real texts, spoilt from seed {SEED}: cut, torn, doubled, spliced, shuffled, made binary, or with other "
        "values. Some spoilt texts are still whole, such as one with a word of its log changed; they are taken, "
        f"and must keep the law. {each * len(PARSERS):,} inputs in all; limit: no crash, no broken law.",
        HEADS,
        rows,
    )
    return not broken


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
