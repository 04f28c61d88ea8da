"""Which keys of a config.json can change the KV cache, and which only sound as if they could."""

from __future__ import annotations

import re

CACHE_STEMS = re.compile(
    "attn|attention|kv|key_value|head|window|sliding|swa|chunk|layer_type|layers?_block|block_config|block_type"
    "|hybrid|pattern|mamba|ssm|conv|lora_rank|qk_|nope|index|compress|cache|linear_|state|shared|sharing|cross"
    "|sparse|sparsity|recurrent|rnn|lru|retention|kda|gdn|mla|period|interval|latent|memory|encoder|decoder"
    "|engram|pool|per_layer|group|stride|sink_|cla_"
)

HARMLESS_AFFIX = re.compile(
    "^(vision|image|img|video|audio|speech|talker|code2wav|mm|projector|multimodal|moe|router|mtp|rope|activation)_"
    "|_token(_id|_index)?$|_dropout(_prob)?$|_pdrop$|_bias$|_sink_bias$|_norm(_eps)?$|_layernorm$|_rope_theta$"
    "|_softmax_in_fp32$|softcapping$|_multiplier$|_gate(_type)?$|_intermediate_size$|_act(ivation)?$"
)

HARMLESS = frozenset(
    {
        # attention's arithmetic, not its memory
        "attention_value_scale", "attn_res_block_size", "query_pre_attn_scalar", "attn_temperature_tuning",
        "attn_scale", "floor_scale", "attn_config", "attn_implementation", "_attn_implementation",
        "_attn_implementation_autoset", "attn_impl", "attn_type", "attn_uses_sequence_id", "scale_attn_weights",
        "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx", "attention_softmax_in_fp32",
        "attention_layers_scaling", "parallel_attn", "num_ln_in_parallel_attn", "use_qk_norm", "qk_norm_type",
        "qk_layernorm", "qk_norm", "use_query_key_norm", "apply_query_key_layer_scaling", "use_flash_attn",
        "use_flash_attention", "qk_ln", "clip_qkv", "qkv_bias", "use_bidirectional_attention",
        "mla_use_nope", "mla_use_output_gate", "qk_head_dim", "q_lora_rank", "o_lora_rank", "o_groups",
        "num_attention_heads", "swa_num_attention_heads", "num_reward_heads", "output_attentions",
        "add_qkv_bias", "use_cache_quantization", "no_rope_layer_interval", "max_window_layers",
        "logits_soft_cap", "attn_logit_soft_cap", "attention_probs_dropout_prob", "rotary_emb_base",
        # indices that select, of which the cache holds no more than index_head_dim says
        "index_topk", "index_n_heads", "indexer_rope_interleave", "index_share_for_mtp_iteration",
        "ignore_index", "use_index_cache", "sparse_init_block", "sparse_local_block", "sparse_topk_blocks",
        "sparse_block_size", "sparse_num_index_heads", "sparse_score_type", "index_block_size",
        "index_topk_blocks", "index_local_blocks", "compress_rope_theta", "num_hash_layers",
        # experts, feed-forward, training and generation
        "decoder_sparse_step", "mlp_layer_types", "n_group", "topk_group", "num_expert_group", "use_grouped_topk",
        "n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size", "shared_intermediate_size",
        "shared_expert_gate", "moe_shared_expert_overlap", "latent_moe_use_norm", "num_experts_shared",
        "share_expert_dim", "chunk_size_feed_forward", "activation_sparsity_pattern",
        "hidden_size_per_layer_input", "vocab_size_per_layer_input", "use_cache", "cache_implementation",
        "output_hidden_states", "pruned_heads", "tie_encoder_decoder", "encoder_no_repeat_ngram_size",
        "decoder_start_token_id", "return_dict", "num_beam_groups", "use_unified_vision_chunk",
        "expand", "mamba_hidden_act", "mamba_proj_bias", "use_mamba_kernels", "use_conv_bias", "conv_bias",
        "mamba_chunk_size", "mamba_dt_rank", "mamba_conv_bias", "mamba_inner_layernorms", "time_step_rank",
        "expert_layer_period", "expert_layer_offset", "interleave_moe_layer_step", "calc_logits_for_entire_prompt",
        "gate_lower_bound", "use_full_rank_gate", "altup_active_idx", "head_dtype", "lm_head", "num_logits_to_keep",
        "forced_decoder_ids", "scale_embedding", "ffn_config",
        "embedding_head_dim", "classifier_head", "rotary_pct", "use_parallel_residual",
        "no_rope_layers",
    }
)  # fmt: skip

SUB_MODELS = frozenset(
    {
        "vision_config", "audio_config", "visual", "vision_tower_config", "vit_config", "speech_config",
        "talker_config", "code2wav_config", "token2wav_config", "projector_config", "img_processor",
        "embd_layer", "img_token_compression_config", "quantization_config", "compression_config",
        "rope_scaling", "rope_parameters", "generation_config", "auto_map", "task_specific_params", "id2label",
        "label2id", "vision_feature_layer", "vlm_config",
    }
)  # fmt: skip


def may_change_the_cache(key: str) -> bool:
    """Whether a key that nobody read could change the size of the KV cache."""
    if key in HARMLESS or key in SUB_MODELS or HARMLESS_AFFIX.search(key):
        return False
    return CACHE_STEMS.search(key.lower()) is not None
