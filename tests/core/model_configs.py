"""Model configs of the tests by name, and their cache layout or why it is unknown."""

from __future__ import annotations

from typing import Any

from kvgate.core.kvcache import KVBytesUnknown, KVLayout, kv_layout

Config = dict[str, Any]

VISION = {"num_hidden_layers": 27, "hidden_size": 1152, "num_attention_heads": 16}
TEXT: Config = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "dtype": "bfloat16",
}
LLAMA_8B: Config = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
QWEN3_4B: Config = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 2560,
    "torch_dtype": "bfloat16",
}
MISTRAL_24B: Config = {
    "model_type": "mistral",
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 5120,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
}
GPT_OSS_20B: Config = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}


def layout(config: Config, **asked: Any) -> KVLayout:
    result = kv_layout(config, **asked)
    assert isinstance(result, KVLayout), result
    return result


def unknown(config: Config, **asked: Any) -> KVBytesUnknown:
    result = kv_layout(config, **asked)
    assert isinstance(result, KVBytesUnknown), result
    assert result.message.endswith("supply spec.model.kvCache.bytesPerToken")
    return result
