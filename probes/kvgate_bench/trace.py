"""Traces in Mooncake's format: JSON lines with timestamp, input_length, output_length and hash_ids; gzip allowed.

Each hash ID stands for HASH_TOKENS tokens; prompts that begin with the same IDs begin with the same tokens.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

HASH_TOKENS = 512
MOST_BYTES = 64 * 1024 * 1024
"""Of a trace, unpacked."""
MOST_PROMPT_TOKENS = 1 << 20
_GZIP = b"\x1f\x8b"


class TraceError(ValueError):
    """A trace that cannot be used; the message never repeats its content."""


@dataclass(frozen=True)
class TraceRequest:
    """One request of a trace: its lengths in tokens, and the IDs of its prompt's blocks in order."""

    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]


def read_trace(raw: bytes, most: int) -> tuple[TraceRequest, ...]:
    """The first `most` requests in the order of their timestamps. Raises TraceError."""
    lines = _unpacked(raw).splitlines()
    found = [_request(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise TraceError("the trace holds no request")
    return tuple(request for _, request in sorted(found, key=lambda entry: entry[0]))[:most]


def _unpacked(raw: bytes) -> str:
    try:
        if raw.startswith(_GZIP):
            unpacker = zlib.decompressobj(wbits=31)
            raw = unpacker.decompress(raw, MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise TraceError(f"the trace is larger than {MOST_BYTES} bytes unpacked; give a part of it")
        return raw.decode()
    except (zlib.error, UnicodeDecodeError):
        raise TraceError("the trace is neither UTF-8 text nor gzip") from None


def _request(number: int, line: str) -> tuple[float, TraceRequest]:
    try:
        entry = json.loads(line)
        moment, asked = entry["timestamp"], entry["input_length"]
        given, ids = entry["output_length"], entry["hash_ids"]
    except (ValueError, KeyError, TypeError, RecursionError):
        what = "needs timestamp, input_length, output_length and hash_ids"
        raise TraceError(f"line {number} of the trace {what}") from None
    wholes = [asked, given, *ids] if isinstance(ids, list) else [None]
    if not all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in wholes):
        raise TraceError(f"line {number} of the trace: lengths and hash_ids must be whole numbers from 0")
    if isinstance(moment, bool) or not isinstance(moment, int | float) or not moment >= 0:
        raise TraceError(f"line {number} of the trace: timestamp must be a number from 0")
    if not 1 <= asked <= MOST_PROMPT_TOKENS or not (len(ids) - 1) * HASH_TOKENS < asked <= len(ids) * HASH_TOKENS:
        raise TraceError(f"line {number} of the trace: input_length must fit its hash_ids, {HASH_TOKENS} tokens each")
    return float(moment), TraceRequest(asked, max(1, given), tuple(ids))
