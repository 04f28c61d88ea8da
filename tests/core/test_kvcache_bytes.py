"""Bytes of a sequence: whole blocks, capped windows, state once, and the copies that decode ranks pull."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvgate.core.kvcache import (
    Family,
    KVBytesUnknown,
    KVLayout,
    Reason,
    Window,
    declared_layout,
    kv_layout,
    parse_config,
)

MIB = 2**20
QWEN3_06B = """{
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
  "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
  "max_position_embeddings": 40960, "vocab_size": 300, "torch_dtype": "bfloat16", "hidden_act": "silu",
  "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": true
}"""


def qwen3_06b() -> KVLayout:
    config = parse_config(QWEN3_06B)
    assert not isinstance(config, KVBytesUnknown)
    result = kv_layout(config)
    assert isinstance(result, KVLayout)
    return result


def made(**facts: object) -> KVLayout:
    plain = {
        "family": Family.GQA,
        "bytes_per_token": 10,
        "windows": (),
        "state_bytes": 0,
        "dtype": "bfloat16",
        "dtype_source": "a test",
        "derivation": "",
    }
    return KVLayout(**{**plain, **facts})  # type: ignore[arg-type]


def test_3216_tokens_of_qwen3_06b_are_351_75_mib() -> None:
    assert qwen3_06b().bytes_per_token == 114_688
    assert qwen3_06b().bytes_for(3216, 16) == 368_836_608
    assert qwen3_06b().bytes_for(3216, 16) / MIB == 351.75


@pytest.mark.parametrize(
    ("layout", "block_tokens", "ranks", "size"),
    [
        pytest.param(qwen3_06b(), 16, 1, 32_768, id="keys of one layer in a block: 16 x 8 x 128 x 2 B"),
        pytest.param(qwen3_06b(), 32, 1, 65_536, id="of a larger block more"),
        pytest.param(qwen3_06b(), 16, 4, 8_192, id="ranks share the heads out"),
        pytest.param(qwen3_06b(), 16, 32, 4_096, id="but no head is cut"),
        pytest.param(
            made(bytes_per_token=1152 * 61, full_layers=61, is_mla=True), 64, 8, 73_728, id="a latent is one, and whole"
        ),
        pytest.param(
            made(bytes_per_token=0, windows=(Window(40_960, 1024),), windowed_layers=10, kv_heads=8),
            16,
            1,
            32_768,
            id="layers with windows, where there are no others",
        ),
        pytest.param(made(family=Family.DECLARED), 16, 1, None, id="a declared number knows no layers"),
    ],
)
def test_one_transfer_is_what_one_layers_keys_take_in_a_block(
    layout: KVLayout, block_tokens: int, ranks: int, size: int | None
) -> None:
    assert layout.descriptor_bytes(block_tokens, ranks) == size


@pytest.mark.parametrize(("tokens", "seconds"), [(3216, 3.382), (1608, 1.700)])
def test_seconds_at_104_mib_per_second(tokens: int, seconds: float) -> None:
    assert qwen3_06b().bytes_for(tokens, 16) / (104 * MIB) == pytest.approx(seconds, rel=0.01)


def test_200_ms_at_104_mib_per_second_hold_176_tokens() -> None:
    budget = 0.2 * 104 * MIB
    assert qwen3_06b().bytes_for(176, 16) <= budget < qwen3_06b().bytes_for(177, 16)


def test_the_derivation_is_one_line_with_layers_heads_dim_dtype_and_source() -> None:
    assert qwen3_06b().derivation == (
        "GQA, 28 layers: 28 × 8 KV heads × (128 + 128) × 2 B = 114,688 B/token; bfloat16 (torch_dtype)"
    )


@pytest.mark.parametrize(
    ("tokens", "block", "expected"),
    [
        pytest.param(0, 16, 0, id="no tokens, no bytes"),
        pytest.param(1, 16, 160, id="one token moves its block"),
        pytest.param(16, 16, 160, id="a full block is one block"),
        pytest.param(17, 16, 320, id="one more token, one more block"),
        pytest.param(17, 1, 170, id="blocks of one token"),
        pytest.param(17, 0, 170, id="a block of nothing counts as one token"),
        pytest.param(-5, 16, 0, id="less than no tokens"),
    ],
)
def test_tokens_move_in_whole_blocks(tokens: int, block: int, expected: int) -> None:
    assert made().bytes_for(tokens, block) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param(10, 16 * 110 + 1000, id="below the window"),
        pytest.param(128, 128 * 110 + 1000, id="the window exactly"),
        pytest.param(3216, 3216 * 10 + 128 * 100 + 1000, id="beyond the window"),
    ],
)
def test_a_window_stops_growing_and_a_state_is_paid_once(tokens: int, expected: int) -> None:
    layout = made(windows=(Window(bytes_per_token=100, tokens=128),), state_bytes=1000)
    assert layout.bytes_for(tokens, 16) == expected


def test_bytes_that_ranks_do_not_share_out_are_copied_to_each() -> None:
    layout = made(kv_heads=4, bytes_per_token=100, copied_bytes_per_token=10)
    assert layout.replication(1) == 1
    assert layout.replication(4) * 100 == pytest.approx(90 + 4 * 10)
    assert layout.replication(8) * 100 == pytest.approx(2 * 90 + 8 * 10)


@pytest.mark.parametrize("ranks", [-1, 0, 1])
def test_fewer_than_one_rank_is_one(ranks: int) -> None:
    assert made(kv_heads=2).replication(ranks) == 1
    assert made(is_mla=True).replication(ranks) == 1


def test_a_declared_number_is_taken_as_it_is() -> None:
    layout = declared_layout(114_688)
    assert isinstance(layout, KVLayout)
    assert layout.bytes_for(3216, 16) == 368_836_608
    assert layout.replication(8) == 1
    assert "not added" in layout.warnings[0]
    assert "114,688 B/token" in layout.derivation


@pytest.mark.parametrize("number", [0, -1, True])
def test_a_declared_number_that_is_not_above_zero_is_unknown(number: int) -> None:
    result = declared_layout(number)
    assert isinstance(result, KVBytesUnknown)
    assert result.reason is Reason.BAD_VALUE


def test_every_published_config_has_a_derivation_that_adds_up() -> None:
    models = json.loads((Path(__file__).parents[1] / "data" / "model-configs.json").read_text(encoding="utf-8"))
    for name, entry in models.items():
        result = kv_layout(entry["config"])
        if isinstance(result, KVBytesUnknown):
            continue
        unbounded = [part for part in result.derivation.split("; ") if "B/token" in part and "up to" not in part]
        said = sum(int(part.split("= ")[1].split(" B/token")[0].replace(",", "")) for part in unbounded)
        assert said == result.bytes_per_token, name
        assert result.dtype in result.derivation
        assert "\n" not in result.derivation
