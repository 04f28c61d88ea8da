"""Canary prompts for a Dynamo frontend: needles in salted text, the request that carries them, and its event stream.

Mock workers answer at random unless a recorded answer is named; each prompt names one by its seed, which engines that
record nothing pass over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvgate.core.serving import Exam, ExamKind, Pair
from kvgate.dynamo.document import Document, at, mapping, mappings, parsed_json, text, whole

ANSWER_TOKENS, FIRST_TOKENS = 16, 4
"""More than one token always: the first may be the prefill worker's own."""
REPLAY = "output_replay_id:kvgate-{seed}:0"
TOKENS_PER_WORD = 1.3
"""Where the search for the right length begins; the tokenizer's own count ends it."""
LENGTH_TOLERANCE = 0.05
_WORDS = (
    "harbor", "lantern", "meadow", "copper", "window", "thunder", "garden", "silver", "bridge", "forest", "marble",
    "winter", "candle", "river", "button", "ladder", "pepper", "violin", "saddle", "market", "island", "velvet",
    "orange", "tunnel", "feather", "basket", "cotton", "mirror", "pocket", "anchor", "barrel", "walnut",
)  # fmt: skip
_PER_BLOCK = 12
_NAMES = ("vault", "archive", "station", "gate", "locker", "tower", "cellar", "depot")


@dataclass(frozen=True)
class Question:
    """One prompt to ask: its size, its needle, and the worker pair and the frontend that are to serve it, by index.

    Questions of one `salt` share their whole prompt, and no other does.
    """

    tokens: int
    seed: int
    frontend: int
    salt: int
    round: int = 0
    pair: Pair | None = None


def questions(exam: Exam, pairs: tuple[Pair, ...], frontends: int) -> tuple[Question, ...]:
    """All that the exam asks, in order. Without pairs the router chooses."""
    match exam.kind:
        case ExamKind.TTFT:
            asked = _timed(exam, pairs)
        case ExamKind.REPEATS:
            asked = _repeated(exam, frontends)
        case _:
            asked = _answered(exam, pairs)
    spread = (replace(q, frontend=index % frontends) for index, q in enumerate(asked))
    return tuple(asked) if exam.kind is ExamKind.REPEATS else tuple(spread)


def _timed(exam: Exam, pairs: tuple[Pair, ...]) -> list[Question]:
    """As many as there are seeds, and some before them for each pair to warm up; the pairs in turn."""
    held = pairs or (None,)
    asked: list[Question] = []
    for tokens, seeds in exam.seeds:
        count = len(seeds) + exam.warm_up * len(held)
        asked += [
            Question(tokens, seeds[index % len(seeds)], 0, len(asked) + index, pair=held[index % len(held)])
            for index in range(count if seeds else 0)
        ]
    return asked


def _repeated(exam: Exam, frontends: int) -> list[Question]:
    each = [(tokens, seed, front) for tokens, seeds in exam.seeds for seed in seeds for front in range(frontends)]
    return [
        Question(tokens, seed, front, salt, number)
        for salt, (tokens, seed, front) in enumerate(each)
        for number in range(exam.rounds)
    ]


def _answered(exam: Exam, pairs: tuple[Pair, ...]) -> list[Question]:
    each = [
        (tokens, seed, number, pair)
        for number in range(exam.rounds)
        for tokens, seeds in exam.seeds
        for seed in seeds
        for pair in (pairs or (None,))
    ]
    return [Question(tokens, seed, 0, salt, number, pair) for salt, (tokens, seed, number, pair) in enumerate(each)]


def prompt(seed: int, salt: str, words: int) -> str:
    """A text of about so many words with a code in one of its blocks, and the question for that code at its end.

    The salt stands first, so that no cache holds any of it; what the seed decides does not depend on the salt.
    """
    draw = _draws(seed)
    name, code = _NAMES[next(draw) % len(_NAMES)], " ".join(f"{next(draw) % 100:02d}" for _ in range(8))
    blocks = [" ".join(_WORDS[next(draw) % len(_WORDS)] for _ in range(_PER_BLOCK)) for _ in range(words // _PER_BLOCK)]
    rest = " ".join(_WORDS[next(draw) % len(_WORDS)] for _ in range(words % _PER_BLOCK))
    place = next(draw) % (len(blocks) + 1)
    needle = f"The code of the {name} is {code}."
    body = ".\n".join((*blocks[:place], needle, *blocks[place:], rest))
    return f"Note {salt}.\n{body}\nWhat is the code of the {name}? Answer with the eight numbers alone."


def _draws(seed: int) -> Iterator[int]:
    """Whole numbers that the seed decides, without end."""
    counter = 0
    while True:
        digest = hashlib.sha256(f"{seed}/{counter}".encode()).digest()
        yield from (int.from_bytes(digest[at_ : at_ + 4], "big") for at_ in range(0, 32, 4))
        counter += 1


def request(exam: Exam, question: Question, salt: str, words: int) -> Document:
    """The JSON body of a streaming chat request that asks for proof of who served it."""
    nvext: dict[str, object] = {
        "extra_fields": ["worker_id", "timing"],
        "annotations": [REPLAY.format(seed=question.seed)],
        **_pinned(question.pair),
    }
    return {
        "model": exam.model,
        "messages": [{"role": "user", "content": prompt(question.seed, salt, words)}],
        "max_tokens": ANSWER_TOKENS if exam.kind is ExamKind.ANSWERS else FIRST_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "nvext": nvext,
    }


def _pinned(pair: Pair | None) -> dict[str, object]:
    prefill, decode = pair or (None, None)
    if decode is None:
        return {} if prefill is None else {"prefill_worker_id": prefill}
    if prefill is None or prefill == decode:
        return {"backend_instance_id": decode}
    return {"prefill_worker_id": prefill, "decode_worker_id": decode}


@dataclass(frozen=True)
class Heard:
    """What of an answer has arrived. `parts` are its pieces of text, `ended` whether the stream said so."""

    parts: tuple[str, ...] = ()
    pair: Pair = (None, None)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    router_hit_rate: float | None = None
    error: str = ""
    ended: bool = False

    @property
    def answer(self) -> str:
        """A digest of what came after the first piece; empty where nothing did."""
        rest = "".join(self.parts[1:])
        return hashlib.sha256(rest.encode(errors="replace")).hexdigest()[:12] if rest else ""


def hear(heard: Heard, line: str) -> Heard:
    """The answer with one more line of the event stream."""
    name, _, value = line.strip().partition(":")
    value = value.strip()
    if name == "event" and value == "error":
        return replace(heard, error="StreamError")
    if name != "data":
        return heard
    if value == "[DONE]":
        return replace(heard, ended=True)
    event = parsed_json(value)
    if event is None:
        return replace(heard, error="Unreadable")
    return _with_event(heard, event)


def _with_event(heard: Heard, event: Document) -> Heard:
    piece = "".join(_piece(choice) for choice in mappings(event.get("choices")))
    workers, timing = at(event, "nvext", "worker_id"), mapping(at(event, "nvext", "timing"))
    usage = mapping(event.get("usage"))
    rate = timing.get("kv_hit_rate")
    found = (_id(at(workers, "prefill_worker_id")), _id(at(workers, "decode_worker_id")))
    cached = whole(at(usage, "prompt_tokens_details", "cached_tokens"))
    return replace(
        heard,
        parts=(*heard.parts, piece) if piece else heard.parts,
        pair=_pair(found) if found != (None, None) else heard.pair,
        prompt_tokens=whole(usage.get("prompt_tokens")) if usage else heard.prompt_tokens,
        cached_tokens=cached if usage else heard.cached_tokens,
        router_hit_rate=float(rate) if isinstance(rate, int | float) else heard.router_hit_rate,
        error="StreamError" if "error" in event else heard.error,
    )


def _piece(choice: Document) -> str:
    delta = mapping(choice.get("delta"))
    return text(delta.get("reasoning_content")) + text(delta.get("content"))


def _pair(found: Pair) -> Pair:
    """A worker that does both may name itself once."""
    prefill, decode = found
    return (decode if prefill is None else prefill, prefill if decode is None else decode)


def _id(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64 else None


def next_words(tokens: int, tried: tuple[tuple[int, int], ...]) -> int:
    """How many words to try next for a prompt of so many tokens, from (words, tokens) pairs that were counted.

    The count is nearly linear in the words, so the line through the last two points is followed.
    """
    if not tried:
        return max(round(tokens / TOKENS_PER_WORD) - 40, 0)
    words, counted = tried[-1]
    earlier, before = tried[-2] if len(tried) > 1 else (0, 0)
    slope = (counted - before) / (words - earlier) if words != earlier and counted > before else TOKENS_PER_WORD
    return max(round(words + (tokens - counted) / max(slope, 0.1)), 0)


def fits(tokens: int, words: int, counted: int) -> bool:
    """Within 5 %, or the shortest prompt there is."""
    return abs(counted - tokens) <= LENGTH_TOLERANCE * tokens or (words == 0 and counted > tokens)
