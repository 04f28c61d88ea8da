"""Traces from which a mock worker answers, so that answers are the same each time and can be wrong on purpose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.dynamo_stage import model


def write_trace(path: Path, answers: Mapping[str, Sequence[str]]) -> Path:
    """Write session → the words it is answered with (of `model.WORDS`), each session of one turn."""
    path.write_text("".join(f"{json.dumps(_line(session, words))}\n" for session, words in answers.items()), "utf-8")
    return path


def annotation(session: str, turn: int = 0) -> str:
    """What a request carries in `nvext.annotations` to be answered from the trace."""
    return f"output_replay_id:{session}:{turn}"


def _line(session: str, words: Sequence[str]) -> dict[str, object]:
    return {
        "session_id": session,
        "timestamp": 0,
        "input_length": model.BLOCK_SIZE_TOKENS,
        "output_length": len(words),
        "hash_ids": [0],
        "output_token_ids": [model.token_id(word) for word in words],
    }
