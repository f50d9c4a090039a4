"""Configs of Hugging Face models: their networks, and messages about configs that are not supported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tessel_core.errors import InputError
from tessel_core.formats.fields import looks_like_config
from tessel_core.networks.graphs.table import GRAPHS
from tessel_core.networks.huggingface import config_network

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0",
    "use_cache": True,
    "vocab_size": 128256,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": LLAMA,
    "llama-3.2-1b": {
        **LLAMA,
        "head_dim": 64,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "tie_word_embeddings": True,
    },
    "mistral-7b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "model_type": "mistral",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "qwen2.5-7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "max_position_embeddings": 131072,
        "max_window_layers": 28,
        "model_type": "qwen2",
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "rope_theta": 1000000.0,
        "sliding_window": 131072,
        "tie_word_embeddings": False,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": 152064,
    },
    "qwen3-32b": {
        "attention_bias": False,
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "layer_types": ["full_attention"] * 64,
        "model_type": "qwen3",
        "num_attention_heads": 64,
        "num_hidden_layers": 64,
        "num_key_value_heads": 8,
        "rope_theta": 1000000,
        "sliding_window": None,
        "vocab_size": 151936,
    },
    "gemma-2-9b": {
        "attn_logit_softcapping": 50.0,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": 30.0,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "max_position_embeddings": 8192,
        "model_type": "gemma2",
        "num_attention_heads": 16,
        "num_hidden_layers": 42,
        "num_key_value_heads": 8,
        "query_pre_attn_scalar": 256,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "sliding_window_size": 0,
        "vocab_size": 256000,
    },
    "phi-3-mini": {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "max_position_embeddings": 4096,
        "model_type": "phi3",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "sliding_window": 2047,
        "vocab_size": 32064,
    },
    "mixtral-8x7b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "model_type": "mixtral",
        "num_attention_heads": 32,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.02,
        "sliding_window": None,
        "vocab_size": 32000,
    },
    "qwen3-30b-a3b": {
        "decoder_sparse_step": 1,
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "mlp_only_layers": [],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "rope_theta": 1000000.0,
        "vocab_size": 151936,
    },
    "deepseek-v3": {
        "aux_loss_alpha": 0.001,
        "ep_size": 1,
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "model_type": "deepseek_v3",
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "n_group": 8,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "quantization_config": {"fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]},
        "rope_theta": 10000,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_group": 4,
        "topk_method": "noaux_tc",
        "v_head_dim": 128,
        "vocab_size": 129280,
    },
    "deepseek-v2-lite": {
        "first_k_dense_replace": 1,
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "kv_lora_rank": 512,
        "model_type": "deepseek_v2",
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_attention_heads": 16,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 27,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 102400,
    },
}
"""Published configs, without most of the fields that change nothing."""


def text(config: dict[str, Any]) -> bytes:
    return json.dumps(config).encode()


@pytest.mark.parametrize("preset", CONFIGS)
def test_a_published_config_is_the_preset(preset: str) -> None:
    found = config_network(text(CONFIGS[preset]), "config.json")
    wanted = GRAPHS[found.family].presets[preset]
    unused = {} if not getattr(wanted, "experts", 0) or wanted.dense_layers else {"inner": wanted.inner}
    assert replace(found.spec, sequence=wanted.sequence, **unused) == wanted
    assert looks_like_config(text(CONFIGS[preset]))


def test_the_sequence_is_that_of_the_positions_up_to_a_limit() -> None:
    assert config_network(text(LLAMA), "c").spec.sequence == 8192
    assert config_network(text({**LLAMA, "max_position_embeddings": 2048}), "c").spec.sequence == 2048


@pytest.mark.parametrize(
    ("changes", "where", "why"),
    [
        ({"model_type": "lama"}, "config.json: model_type", "'lama' is not a known architecture, did you mean llama"),
        ({"model_type": "falcon_mamba"}, "config.json: model_type", "choose from llama, mistral"),
        ({"num_hidden_layers": None}, "config.json: num_hidden_layers", "."),
        ({"num_hidden_layers": -3}, "config.json: num_hidden_layers", "."),
        ({"num_hidden_layers": 10**9}, "config.json: num_hidden_layers", "must be between 1 and 1000"),
        ({"hidden_size": "wide"}, "config.json: hidden_size", "."),
        ({"num_attention_heads": 33}, "config.json: num_attention_heads", "must divide hidden_size"),
        ({"attention_bias": True}, "config.json: attention_bias", "must be false for this architecture, got true"),
        ({"hidden_act": "relu2"}, "config.json: hidden_act", "must be"),
        ({"num_local_experts": 8}, "config.json: num_local_experts", "changes the computation but is not supported"),
        ({"n_shared_experts": 1}, "config.json: n_shared_experts", "changes the computation but is not supported"),
        ({"model_type": "mistral", "mlp_bias": True}, "config.json: mlp_bias", "changes the computation"),
        ({"partial_rotary_factor": 0.5}, "config.json: partial_rotary_factor", "must be 1"),
        ({"ssm_state_size": 16}, "config.json: ssm_state_size", "changes the computation"),
    ],
    ids=str,
)
def test_fields_that_are_wrong_or_not_understood_are_named(changes: dict[str, Any], where: str, why: str) -> None:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None or key not in LLAMA}
    with pytest.raises(InputError, match=why) as caught:
        config_network(text(config), "config.json")
    assert str(caught.value).startswith(where) or "num_hidden_layers" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention"] * 32, "model_type": "qwen3"},
        {"unsloth_fixed": True, "_name_or_path": "x", "num_experts": 0, "mup_enabled": None},
    ],
    ids=str,
)
def test_fields_that_change_nothing_are_read_over(changes: dict[str, Any]) -> None:
    network = config_network(text({**LLAMA, **changes}), "config.json")
    assert network.spec.layers == LLAMA["num_hidden_layers"]


def test_a_layer_of_another_attention_is_named() -> None:
    config = {**CONFIGS["qwen3-32b"], "layer_types": ["full_attention"] * 63 + ["linear_attention"]}
    with pytest.raises(InputError, match=r"layer_types\[63\]"):
        config_network(text(config), "config.json")


def test_what_is_no_config() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(InputError, match="nested more than 16 levels deep"):
        config_network(text({**LLAMA, "extra": deep}), "config.json")
    with pytest.raises(InputError, match="is not JSON"):
        config_network(b'{"model_type"', "config.json")
    with pytest.raises(InputError, match="'model_type' is missing"):
        config_network(b"{}", "config.json")
    assert not looks_like_config(b'{"format": "tessel-graph", "operators": []}')
    assert not looks_like_config(b"\x08\x07")
