"""Canary prompts: what is asked of whom, the text, and the event stream that answers."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.core.serving import Exam, ExamKind, Pair
from kvgate.dynamo.canary import Heard, Question, fits, hear, next_words, prompt, questions, request

PAIRS: tuple[Pair, ...] = ((1, 3), (1, 4), (2, 3), (2, 4))


def exam(kind: ExamKind, seeds: int = 4, **fields: object) -> Exam:
    sizes = ((100, tuple(range(seeds))), (1000, tuple(range(10, 10 + seeds))))
    return Exam("exam", kind, "tiny", sizes, **fields)  # type: ignore[arg-type]


def test_answers_are_asked_of_every_pair_in_every_round() -> None:
    asked = questions(exam(ExamKind.ANSWERS, rounds=3), PAIRS, 2)
    assert len(asked) == 2 * 4 * 4 * 3
    assert set(Counter((q.tokens, q.pair) for q in asked).values()) == {12}
    assert len({(q.tokens, q.salt) for q in asked}) == len(asked), "no two share a salt"
    assert set(Counter(q.frontend for q in asked).values()) == {48}


def test_without_pairs_the_router_chooses() -> None:
    assert {q.pair for q in questions(exam(ExamKind.ANSWERS), (), 1)} == {None}


def test_times_are_asked_beyond_the_warm_up_of_every_pair() -> None:
    asked = questions(exam(ExamKind.TTFT, seeds=30, warm_up=3), PAIRS, 2)
    per_size = Counter(q.tokens for q in asked)
    assert per_size == {100: 30 + 12, 1000: 30 + 12}
    assert [q.pair for q in asked[:4]] == list(PAIRS)
    assert len({(q.tokens, q.salt) for q in asked}) == len(asked)


def test_repeats_go_through_every_frontend_with_the_same_salt() -> None:
    asked = questions(exam(ExamKind.REPEATS, seeds=2, rounds=2), (), 3)
    salts: dict[int, set[tuple[int, int, int]]] = {}
    for q in asked:
        salts.setdefault(q.salt, set()).add((q.tokens, q.seed, q.frontend))
    assert len(asked) == 2 * 2 * 3 * 2
    assert all(len(same) == 1 for same in salts.values())
    assert Counter(q.frontend for q in asked) == {0: 8, 1: 8, 2: 8}


def test_a_prompt_holds_its_needle_once_and_depends_on_its_seed_alone_but_for_the_salt() -> None:
    text = prompt(7, "aaaa", 100)
    other = prompt(7, "bbbb", 100)
    assert text.removeprefix("Note aaaa.\n") == other.removeprefix("Note bbbb.\n")
    name = text.rsplit("the code of the ", 1)[1].split("?")[0]
    assert text.count(f"The code of the {name} is ") == 1
    assert prompt(8, "aaaa", 100) != text


def test_needles_lie_in_different_blocks() -> None:
    places = {prompt(seed, "s", 240).split("The code of")[0].count("\n") for seed in range(40)}
    assert len(places) > 10


@given(st.integers(0, 2**31), st.integers(0, 400))
def test_a_prompt_has_about_the_asked_words(seed: int, words: int) -> None:
    assert abs(len(prompt(seed, "salt", words).split()) - len(prompt(seed, "salt", 0).split()) - words) <= 1


PINS: dict[str, tuple[Pair | None, dict[str, object]]] = {
    "nobody": (None, {}),
    "a split pair": ((1, 2), {"prefill_worker_id": 1, "decode_worker_id": 2}),
    "a worker that does both": ((2, 2), {"backend_instance_id": 2}),
}


@pytest.mark.parametrize(("pair", "pins"), PINS.values(), ids=PINS)
def test_a_request_pins_its_pair_and_asks_who_served(pair: Pair | None, pins: dict[str, object]) -> None:
    body = request(exam(ExamKind.ANSWERS), Question(100, 7, 0, 0, pair=pair), "salt", 50)
    assert body["nvext"] == {
        "extra_fields": ["worker_id", "timing"],
        "annotations": ["output_replay_id:kvgate-7:0"],
        **pins,
    }
    assert (body["stream"], body["temperature"], body["max_tokens"]) == (True, 0, 16)


def test_a_time_to_first_token_is_asked_with_more_than_one_token() -> None:
    """With one token the prefill worker alone could answer, and nothing would cross the fabric."""
    body = request(exam(ExamKind.TTFT), Question(100, 7, 0, 0), "salt", 50)
    assert isinstance(body["max_tokens"], int)
    assert body["max_tokens"] > 1


def data(**event: object) -> str:
    return f"data: {json.dumps(event)}"


def piece(text: str) -> str:
    return data(
        choices=[{"delta": {"content": text}}],
        nvext={"worker_id": {"prefill_worker_id": 11, "decode_worker_id": 2**63}},
    )


STREAM = (
    data(choices=[{"delta": {"role": "assistant", "content": ""}}]),
    "",
    piece("4"),
    piece("1 07"),
    data(choices=[{"delta": {}, "finish_reason": "length"}], nvext={"timing": {"kv_hit_rate": 0.25}}),
    data(choices=[], usage={"prompt_tokens": 101, "prompt_tokens_details": {"cached_tokens": 16}}),
    "data: [DONE]",
)


def heard(*lines: str) -> Heard:
    found = Heard()
    for line in lines:
        found = hear(found, line)
    return found


def test_a_stream_is_heard_to_its_end() -> None:
    found = heard(*STREAM)
    assert (found.parts, found.pair, found.ended, found.error) == (("4", "1 07"), (11, 2**63), True, "")
    assert (found.prompt_tokens, found.cached_tokens, found.router_hit_rate) == (101, 16, 0.25)


def test_the_first_token_is_not_part_of_the_answer() -> None:
    assert heard(piece("4"), piece("1 07")).answer == heard(piece("9"), piece("1 "), piece("07")).answer != ""
    assert heard(piece("4"), piece("1 08")).answer != heard(piece("4"), piece("1 07")).answer
    assert heard(piece("4")).answer == ""


def test_a_reasoning_model_answers_too() -> None:
    assert heard(data(choices=[{"delta": {"reasoning_content": "hm"}}])).parts == ("hm",)


def test_a_worker_that_names_itself_once_did_both() -> None:
    assert heard(data(choices=[], nvext={"worker_id": {"decode_worker_id": 5}})).pair == (5, 5)


ODD = {
    "an error event": ("event: error", "StreamError"),
    "an error in the data": ('data: {"error": {"message": "x"}}', "StreamError"),
    "no JSON": ("data: {", "Unreadable"),
    "a comment": (": keep-alive", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("line", "error"), ODD.values(), ids=ODD)
def test_other_lines_are_told_or_passed_over(line: str, error: str) -> None:
    assert hear(Heard(), line).error == error


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(st.fixed_dictionaries({}, optional={"choices": anything, "nvext": anything, "usage": anything}) | st.text())
def test_any_line_is_heard_without_raising(event: object) -> None:
    assert isinstance(hear(Heard(), event if isinstance(event, str) else f"data: {json.dumps(event)}"), Heard)


TOKENIZERS = {"words of 1.3 tokens": 1.3, "words of letters": 6.4, "long words": 0.7}


@pytest.mark.parametrize("each", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("tokens", [200, 3000, 120_000])
def test_the_length_is_found_by_the_tokenizers_own_count(each: float, tokens: int) -> None:
    tried: tuple[tuple[int, int], ...] = ()
    for _ in range(8):
        words = next_words(tokens, tried)
        counted = round(60 * each + words * each) + 40
        if fits(tokens, words, counted):
            assert counted <= 1.05 * tokens or words == 0
            return
        tried = (*tried, (words, counted))
    raise AssertionError(tried)


def test_a_size_below_the_shortest_prompt_gets_the_shortest() -> None:
    assert next_words(10, ((0, 90),)) == 0
    assert fits(10, 0, 90)
    assert not fits(10, 5, 90)
