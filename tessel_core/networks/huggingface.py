"""Read the sizes of a network from the `config.json` of a Hugging Face model.

The file may have fields that this module does not know. If the name of such a field suggests that it changes the
computation, the file is refused. Otherwise the field is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tessel_core.errors import InputError, nearest
from tessel_core.formats.fields import Fields, read_with
from tessel_core.networks.decoder import DecoderSpec
from tessel_core.networks.llama import GEMMA_STYLE, LlamaSpec
from tessel_core.networks.moe import SIGMOID, SOFTMAX, MoeSpec
from tessel_core.options import OptionError, check_options

MAX_DEPTH = 16
"""Largest allowed nesting depth of values in a config. Real configs have three or four levels."""
MAX_SEQUENCE = 8192
"""Upper limit of the default sequence length.

Configs may allow more positions, but pretraining seldom uses more tokens.
"""
_IGNORED = re.compile(
    r"dropout|initializer|token_id|_token$|eps$|epsilon|aux_loss|output_|return_|use_cache|cache_impl|attn_impl|dtype|"
    r"^_|version|rope_(scaling|theta|parameters)|original_max|max_window_layers|pretraining_tp|problem_type|chunk_size_feed|"
    r"label|quantization|nextn|^ep_size$|seq_aux|routed_scaling|scoring_func|topk_method|topk_group|n_group|norm_topk|"
    r"jitter|auto_map|architectures|is_(en|de)coder|prun|length|beam|penalty|temperature|top_[kp]$|bad_words|finetuning|"
    r"query_pre_attn|add_cross|cross_attention_hidden|embd_pdrop|resid_pdrop"
)
"""Names of fields that change neither shapes nor work.

Fields for groups of experts are ignored, too: tokens choose among all experts.
"""
_COSTLY = re.compile(
    r"num_|n_|size|dim|width|depth|rank|layer|head|hidden|inter|window|attn|attention|mlp|ffn|bias|norm|expert|moe|"
    r"router|share|block|conv|ssm|mamba|state|gate|act|residual|position|embed|tie|stride|every|freq|interval|skip|parallel"
)
"""Parts of field names that suggest an effect on the amount of computation."""
_GEMMA_ACTIVATION = "gelu_pytorch_tanh"


@dataclass(frozen=True)
class NamedNetwork:
    """A network by family and spec, with a name for display."""

    family: str
    spec: Any
    name: str


def config_network(data: bytes, name: str) -> NamedNetwork:
    """Return the network of a config.

    Raises InputError if the data is not a JSON object, the architecture is unknown, a field is missing or invalid, or
    an unknown field may change the cost.
    """

    def reader(fields: Fields) -> NamedNetwork:
        """Return the network of the parsed config."""
        _check_depth(fields)
        kind = fields.text("model_type")
        if kind not in _READERS:
            hint = nearest(kind, list(_READERS), f"choose from {', '.join(_READERS)}")
            raise InputError("model_type", f"{kind!r} is not a known architecture, {hint}")
        config = _Config(fields)
        spec = _READERS[kind](config)
        config.refuse_others()
        try:
            check_options(spec)
        except OptionError as error:
            raise InputError(config.read_as.get(error.field, error.field), error.why) from None
        stem = PurePath(name).stem
        display_name = kind if stem == "config" else stem
        return NamedNetwork("moe" if isinstance(spec, MoeSpec) else "llama", spec, display_name)

    return read_with(reader, data, name)


def _check_depth(fields: Fields) -> None:
    """Raise InputError if values are nested too deeply."""
    for name in fields.named():
        level, values = 1, [fields.get(name, None)]
        while values:
            level += 1
            if level > MAX_DEPTH:
                raise InputError(name[:60], f"is nested more than {MAX_DEPTH} levels deep")
            parts = (
                each.values() if isinstance(each, dict) else each for each in values if isinstance(each, dict | list)
            )
            values = [each for part in parts for each in part]


class _Config:
    """The fields of a config. It records which fields were read."""

    def __init__(self, fields: Fields) -> None:
        self._fields, self._read = fields, {"model_type"}
        self.read_as: dict[str, str] = {}
        """For each option, the field from which it was read."""

    def _given(self, name: str) -> bool:
        self._read.add(name)
        return self._fields.has(name) and not self._fields.is_null(name)

    def number(self, name: str, option: str = "", default: int | None = None, least: int = 1) -> int:
        """Return an integer field. With a `default`, the field may be missing or null."""
        self.read_as[option or name] = name
        if default is not None and not self._given(name):
            return default
        self._read.add(name)
        return self._fields.integer(name, least=least)

    def real(self, name: str, default: float) -> float:
        return self._fields.number(name) if self._given(name) else default

    def truth(self, name: str, default: bool) -> bool:
        return self._fields.truth(name) if self._given(name) else default

    def text(self, name: str, default: str) -> str:
        return self._fields.text(name) if self._given(name) else default

    def must_be(self, name: str, *allowed: object) -> None:
        """Raise InputError if the field is present and has none of the `allowed` values."""
        if self._given(name) and self._fields.get(name, None) not in allowed:
            actual = json.dumps(self._fields.get(name, None))[:60]
            wanted = " or ".join(json.dumps(each) for each in allowed)
            raise InputError(name, f"must be {wanted} for this architecture, got {actual}")

    def layer_types(self, windowed: Callable[[int], bool], layers: int) -> None:
        """Raise InputError if a layer has a kind of attention that the family does not have in this layer.

        `windowed` returns whether a layer of the family has a window.
        """
        if not self._given("layer_types"):
            return
        kinds = [kind for kind, _ in self._fields.items("layer_types")]
        wanted = ["sliding_attention" if windowed(i) else "full_attention" for i in range(layers)]
        if kinds != wanted:
            place = next(
                (i for i, pair in enumerate(zip(kinds, wanted, strict=False)) if pair[0] != pair[1]), len(kinds)
            )
            raise InputError(f"layer_types[{place}]", "is not the attention of this architecture in this layer")

    def refuse_others(self) -> None:
        """Raise InputError for a field that was not read, if its name suggests that it changes the cost."""
        for name in self._fields.named():
            value = self._fields.get(name, None)
            costs = _COSTLY.search(name.lower()) and not _IGNORED.search(name.lower())
            if name not in self._read and costs and value not in (None, False, 0, [], {}):
                raise InputError(name, "changes the computation but is not supported, so the cost is unknown")


def _decoder(config: _Config, *activations: str, tied: bool = False) -> dict[str, Any]:
    """Return the sizes that all decoders have.

    Activation functions are those in `activations`, by default only SiLU.
    """
    heads = config.number("num_attention_heads", "heads")
    hidden = config.number("hidden_size", "hidden")
    config.must_be("hidden_act", *(activations or ("silu", "swish")))
    config.must_be("partial_rotary_factor", 1, 1.0)
    return {
        "layers": config.number("num_hidden_layers", "layers"),
        "hidden": hidden,
        "heads": heads,
        "inner": config.number("intermediate_size", "inner"),
        "vocabulary": config.number("vocab_size", "vocabulary"),
        "sequence": min(MAX_SEQUENCE, config.number("max_position_embeddings", "sequence", MAX_SEQUENCE)),
        "tied": config.truth("tie_word_embeddings", tied),
        "rotary_base": config.real("rope_theta", 10_000.0),
    }


def _grouped(config: _Config, common: Mapping[str, Any]) -> dict[str, Any]:
    """Return `common` with the number of heads, the number of key-value heads, and the head size."""
    heads, hidden = common["heads"], common["hidden"]
    size = config.number("head_dim", "head_size", 0, least=0)
    if not size and hidden % heads:
        raise InputError("num_attention_heads", f"must divide hidden_size, which is {hidden:,}, got {heads:,}")
    return {
        **common,
        "kv_heads": config.number("num_key_value_heads", "kv_heads", heads),
        "head_size": size or hidden // heads,
    }


def _window(config: _Config, default: bool) -> int:
    used = config.truth("use_sliding_window", default)
    window = config.number("sliding_window", "window", 0, least=0)
    return window if used else 0


def _llama(config: _Config) -> LlamaSpec:
    sizes = _grouped(config, _decoder(config))
    config.must_be("attention_bias", False)
    config.must_be("mlp_bias", False)
    return LlamaSpec(**sizes)


def _mistral(config: _Config) -> LlamaSpec:
    return LlamaSpec(**_grouped(config, _decoder(config)), window=_window(config, True))


def _qwen2(config: _Config) -> LlamaSpec:
    return _layered(
        config, LlamaSpec(**_grouped(config, _decoder(config)), qkv_bias=True, window=_window(config, False))
    )


def _qwen3(config: _Config) -> LlamaSpec:
    config.must_be("attention_bias", False)
    return _layered(
        config, LlamaSpec(**_grouped(config, _decoder(config)), qk_norm=True, window=_window(config, False))
    )


def _layered(config: _Config, spec: LlamaSpec) -> LlamaSpec:
    """Return the spec. Raises InputError unless all layers are equal.

    A window that begins only after some layers is refused.
    """
    if spec.window:
        config.must_be("max_window_layers", 0)
    config.layer_types(lambda layer: bool(spec.window), spec.layers)
    return spec


def _gemma2(config: _Config) -> LlamaSpec:
    config.must_be("hidden_activation", _GEMMA_ACTIVATION)
    config.must_be("attention_bias", False)
    for name, cap in (("attn_logit_softcapping", 50), ("final_logit_softcapping", 30)):
        config.must_be(name, cap, float(cap))
    sizes = _grouped(config, _decoder(config, _GEMMA_ACTIVATION, tied=True))
    spec = LlamaSpec(**sizes, window=config.number("sliding_window", "window", 4096, least=0), style=GEMMA_STYLE)
    config.layer_types(lambda layer: layer % 2 == 0, spec.layers)
    return spec


def _phi3(config: _Config) -> LlamaSpec:
    config.must_be("attention_bias", False)
    return LlamaSpec(**_grouped(config, _decoder(config)), window=_window(config, True))


def _mixtral(config: _Config) -> MoeSpec:
    sizes = _grouped(config, _decoder(config))
    return MoeSpec(
        **sizes,
        window=_window(config, True),
        experts=config.number("num_local_experts", "experts"),
        active=config.number("num_experts_per_tok", "active"),
        expert_inner=sizes["inner"],
    )


def _qwen3_moe(config: _Config) -> MoeSpec:
    sizes = _grouped(config, _decoder(config))
    config.must_be("attention_bias", False)
    config.must_be("decoder_sparse_step", 1)
    config.must_be("mlp_only_layers", [])
    return MoeSpec(
        **sizes,
        qk_norm=True,
        window=_window(config, False),
        experts=config.number("num_experts", "experts"),
        active=config.number("num_experts_per_tok", "active"),
        expert_inner=config.number("moe_intermediate_size", "expert_inner"),
    )


def _deepseek(router: str) -> Callable[[_Config], MoeSpec]:
    def read(config: _Config) -> MoeSpec:
        """Return the sizes of a DeepSeek model."""
        sizes = _decoder(config)
        rotary_size = config.number("qk_rope_head_dim", "rotary_size")
        config.must_be("attention_bias", False)
        config.must_be("moe_layer_freq", 1)
        config.number("num_key_value_heads", "kv_heads", sizes["heads"])
        config.number(
            "head_dim", "rotary_size", 0, least=0
        )  # Some configs give only the size of the rotary part of a head.
        return MoeSpec(
            **sizes,
            kv_heads=sizes["heads"],
            head_size=config.number("qk_nope_head_dim", "head_size") + rotary_size,
            latent=config.number("kv_lora_rank", "latent"),
            query_latent=config.number("q_lora_rank", "query_latent", 0),
            rotary_size=rotary_size,
            value_size=config.number("v_head_dim", "value_size"),
            experts=config.number("n_routed_experts", "experts"),
            active=config.number("num_experts_per_tok", "active"),
            expert_inner=config.number("moe_intermediate_size", "expert_inner"),
            shared=config.number("n_shared_experts", "shared", 0, least=0),
            dense_layers=config.number("first_k_dense_replace", "dense_layers", 0, least=0),
            router=router,
        )

    return read


_READERS: dict[str, Callable[[_Config], DecoderSpec]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "phi3": _phi3,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek(SOFTMAX),
    "deepseek_v3": _deepseek(SIGMOID),
    "kimi_k2": _deepseek(SIGMOID),
}
"""Function that reads the config of each `model_type`."""
