"""The estimate against hand calculations: bytes, seconds, load, wait, and the longest prompt."""

from __future__ import annotations

import math

import pytest

from kvgate.core.estimate import Demand, Load, Share, Transfer, load, longest_prompt
from kvgate.core.evidence import Uplink
from kvgate.core.kvcache import JSON, KVLayout, kv_layout
from tests.core.cases import BYTES_PER_TOKEN, MIB, layout, uplink

WITHIN = 0.01
LINK = 104 * MIB


def transfer(bytes_per_second: float = LINK, bytes_per_token: int = BYTES_PER_TOKEN, ranks: int = 1) -> Transfer:
    return Transfer(layout(bytes_per_token), 16, ranks, bytes_per_second)


def unit(bytes_per_second: float = 16.0) -> Transfer:
    """One byte per token and blocks of one token: seconds by mental arithmetic."""
    return Transfer(layout(1), 1, 1, bytes_per_second)


def demand(requests_per_second: float, skew: float = 1.0, prefill: int = 1, decode: int = 1, *ups: Uplink) -> Demand:
    return Demand(requests_per_second, skew, prefill, decode, ups)


def test_3216_tokens_are_351_75_mebibytes_to_the_byte() -> None:
    assert transfer().kv_bytes(3216) == 351.75 * MIB


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        pytest.param(3216, 3.382, id="3216 tokens at 104 MiB/s take 3.382 s"),
        pytest.param(1608, 1.700, id="1608 tokens, a block and a half short of whole, take 1.700 s"),
    ],
)
def test_seconds_of_a_transfer(tokens: int, seconds: float) -> None:
    assert transfer().seconds(tokens) == pytest.approx(seconds, rel=WITHIN)


@pytest.mark.parametrize(
    ("tokens", "blocks"),
    [
        pytest.param(1, 1, id="one token moves a whole block"),
        pytest.param(16, 1, id="a full block is one block"),
        pytest.param(17, 2, id="one token more is two blocks"),
    ],
)
def test_whole_blocks_cross_the_wire(tokens: int, blocks: int) -> None:
    assert transfer().kv_bytes(tokens) == blocks * 16 * BYTES_PER_TOKEN


def heads(count: int) -> KVLayout:
    config: dict[str, JSON] = {
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": count,
        "head_dim": 128,
        "torch_dtype": "bfloat16",
    }
    found = kv_layout(config)
    assert isinstance(found, KVLayout), found
    return found


@pytest.mark.parametrize(
    ("kv_heads", "ranks", "copies"),
    [
        pytest.param(8, 1, 1, id="one rank pulls one copy"),
        pytest.param(8, 8, 1, id="as many ranks as heads share one copy"),
        pytest.param(8, 16, 2, id="twice as many ranks as heads pull every byte twice"),
    ],
)
def test_ranks_beyond_the_heads_multiply_the_bytes(kv_heads: int, ranks: int, copies: int) -> None:
    size = heads(kv_heads)
    assert Transfer(size, 16, ranks, LINK).kv_bytes(16) == copies * size.bytes_for(16, 16)


@pytest.mark.parametrize(
    ("budget_seconds", "tokens"),
    [
        pytest.param(0.200, 176, id="200 ms at 104 MiB/s hold 176 tokens"),
        pytest.param(16 * BYTES_PER_TOKEN / LINK, 16, id="exactly one block's time holds one block"),
        pytest.param(0.99 * 16 * BYTES_PER_TOKEN / LINK, 0, id="less than one block's time holds none"),
        pytest.param(0.0, 0, id="no budget holds none"),
    ],
)
def test_the_longest_prompt_is_in_whole_blocks(budget_seconds: float, tokens: int) -> None:
    assert longest_prompt(transfer(), budget_seconds) == tokens


def test_the_longest_prompt_fits_and_the_next_block_does_not() -> None:
    longest = longest_prompt(transfer(), 1.0)
    assert transfer().seconds(longest) <= 1.0 < transfer().seconds(longest + 16)


def test_the_wait_is_the_pollaczek_khinchine_mean_of_a_hand_calculation() -> None:
    """λ 0.25/s, S of 1 s (half the requests) and 3 s: E[S] 2, E[S²] 5, ρ 0.5, wait 0.25·5/(2·0.5) = 1.25 s."""
    found = load(unit(), (Share(16, 0.5), Share(48, 0.5)), demand(0.25))
    assert found.utilization == pytest.approx(0.5)
    assert found.wait_seconds == pytest.approx(1.25)


def test_skew_loads_the_busiest_node_and_lengthens_its_wait() -> None:
    """λ 0.2/s × 1.25 = 0.25/s on the busiest node, S 2 s: ρ 0.5, wait 0.25·4/(2·0.5) = 1 s."""
    found = load(unit(), (Share(32, 1.0),), demand(0.2, skew=1.25))
    assert found.utilization == pytest.approx(0.5)
    assert found.wait_seconds == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("asked", "utilization", "where"),
    [
        pytest.param(demand(0.5, 1.0, 1, 4), 0.5, "prefill nodes", id="fewer prefill nodes are the busiest place"),
        pytest.param(demand(0.5, 1.0, 4, 1), 0.5, "decode nodes", id="fewer decode nodes are the busiest place"),
        pytest.param(demand(0.5, 1.0, 2, 2), 0.25, "prefill nodes", id="two nodes on each side share the load"),
        pytest.param(
            demand(0.5, 1.0, 4, 4, uplink(10.0)), 0.8, "uplink spine", id="a thin uplink is busier than the nodes"
        ),
        pytest.param(
            demand(0.5, 1.0, 4, 4, uplink(10.0, 0.5)), 0.4, "uplink spine", id="half the traffic half fills the uplink"
        ),
        pytest.param(
            demand(0.5, 2.0, 4, 4, uplink(80.0)), 0.25, "prefill nodes", id="skew does not load an uplink, only nodes"
        ),
        pytest.param(
            demand(0.5, 1.0, 4, 4, uplink(80.0), Uplink("leaf", 10.0, 1.0)),
            0.8,
            "uplink leaf",
            id="of two uplinks the busier",
        ),
    ],
)
def test_the_busiest_place_is_judged(asked: Demand, utilization: float, where: str) -> None:
    """16 bytes per request at 16 B/s: S is 1 s, so one node at 0.5 requests/s is half full."""
    found = load(unit(), (Share(16, 1.0),), asked)
    assert found.utilization == pytest.approx(utilization)
    assert found.where == where


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(demand(1.0), id="a node that is exactly full"),
        pytest.param(demand(2.0), id="a node asked for twice what it carries"),
        pytest.param(demand(0.1, 1.0, 1, 1, uplink(1.0)), id="an uplink that is full while the nodes idle"),
    ],
)
def test_a_full_place_makes_wait_without_end(asked: Demand) -> None:
    assert load(unit(), (Share(16, 1.0),), asked).wait_seconds == math.inf


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(uplink(0.0), id="an uplink of 0 B/s"),
        pytest.param(uplink(-1.0), id="an uplink of less than nothing"),
        pytest.param(uplink(math.nan), id="an uplink whose aggregate is not a number"),
        pytest.param(uplink(math.inf), id="an uplink without end"),
        pytest.param(uplink(1e9, math.nan), id="a traffic share that is not a number"),
        pytest.param(uplink(1e9, -0.5), id="a traffic share below nothing"),
    ],
)
def test_an_uplink_that_says_nothing_counts_as_full(broken: Uplink) -> None:
    found = load(unit(), (Share(16, 1.0),), demand(0.1, 1.0, 1, 1, broken))
    assert found == Load(math.inf, "uplink spine", math.inf)
