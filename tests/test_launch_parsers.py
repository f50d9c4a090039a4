"""Launch files as the frameworks read them: by their own parsers where these are installed, else by their grammar.

The grammars are those of torchtitan's and Megatron-LM's main branches of August 2026.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
from dataclasses import field, make_dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import pytest

from tessel_core.exports.launch import LAUNCHERS, Job, Launcher
from tessel_core.exports.pytorch_csv import pytorch_csv
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.orders import stage_order
from tessel_core.strategies.strategy import Strategy

STRATEGIES = {
    "pipeline": ("llama-3.1-70b", Strategy(2, 2, 2, 8, "1f1b", zero=1, sequence_parallel=True, layout=(41, 39))),
    "interleaved": (
        "llama-3.1-8b",
        Strategy(4, 1, 2, 16, "interleaved", zero=2, stages_per_device=4, layout=(4, 4, 4, 4, 4, 5, 5, 2)),
    ),
    "zero-2": ("llama-3.1-8b", Strategy(8, micro_batches=8, zero=2, recompute=Recompute.FULL, grad_dtype="fp32")),
    "zero-3": ("llama-3.1-8b", Strategy(8, micro_batches=8, zero=3, recompute=Recompute.SELECTIVE)),
    "replicas": ("gpt2-small", Strategy(8, micro_batches=4)),
    "context": (
        "llama-3.1-8b",
        Strategy(2, 2, 1, 8, context=2, context_method=ContextMethod.ALL_TO_ALL, sequence_parallel=True, fp8=True),
    ),
    "experts": ("mixtral-8x7b", Strategy(8, 1, 1, 8, zero=1, expert=8)),
    "experts in a pipeline": (
        "qwen3-30b-a3b",
        Strategy(4, 2, 2, 8, "interleaved", stages_per_device=2, expert=8, sequence_parallel=True, zero=1),
    ),
    "latent": ("deepseek-v3", Strategy(2, 2, 2, 8, "1f1b", zero=1, sequence_parallel=True, expert=4)),
    "v": ("llama-3.1-8b", Strategy(1, 1, 4, 8, "zb-v", stages_per_device=2)),
    "split": ("llama-3.1-8b", Strategy(1, 1, 4, 8, "zb-h1")),
}


def job(name: str, strategy: Strategy) -> Job:
    """Return the job of that strategy with 64 samples."""
    found = preset_network(name)
    assert found is not None
    family, said = found
    return Job(name, family, family.spec(**{**said, "batch": 64, "dtype": "bf16"}), strategy)


def jobs(launcher: Launcher) -> list[Any]:
    """Return the jobs that the framework can run."""
    every = {key: job(*named) for key, named in STRATEGIES.items()}
    return [pytest.param(each, id=key) for key, each in every.items() if not launcher.objection(each)]


MEGATRON, DEEPSPEED, TITAN = LAUNCHERS["megatron"], LAUNCHERS["deepspeed"], LAUNCHERS["torchtitan"]


def test_most_strategies_can_be_launched() -> None:
    assert [len(jobs(launcher)) for launcher in (TITAN, MEGATRON, DEEPSPEED)] == [11, 9, 4]


# Megatron-LM

FLAG = None
GRAMMAR: dict[str, Any] = {
    **dict.fromkeys(("num-layers", "hidden-size", "num-attention-heads", "seq-length", "max-position-embeddings"), int),
    **dict.fromkeys(("ffn-hidden-size", "num-query-groups", "padded-vocab-size", "rotary-base"), int),
    **dict.fromkeys(("num-experts", "moe-router-topk", "moe-ffn-hidden-size"), int),
    **dict.fromkeys(("kv-channels", "kv-lora-rank", "q-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim"), int),
    **dict.fromkeys(("v-head-dim", "moe-shared-expert-intermediate-size"), int),
    **dict.fromkeys(("add-qkv-bias", "qk-layernorm", "multi-latent-attention"), FLAG),
    "moe-router-score-function": ("softmax", "sigmoid", "sqrtsoftplus"),
    "moe-layer-freq": str,
    **dict.fromkeys(("micro-batch-size", "global-batch-size", "recompute-num-layers"), int),
    **dict.fromkeys(("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"), int),
    **dict.fromkeys(("expert-model-parallel-size", "expert-tensor-parallel-size"), int),
    **dict.fromkeys(("swiglu", "disable-bias-linear", "group-query-attention", "moe-grouped-gemm"), FLAG),
    **dict.fromkeys(("untie-embeddings-and-output-weights", "bf16", "fp16", "sequence-parallel"), FLAG),
    **dict.fromkeys(("use-distributed-optimizer", "overlap-param-gather", "overlap-grad-reduce"), FLAG),
    **dict.fromkeys(("use-megatron-fsdp", "accumulate-allreduce-grads-in-fp32"), FLAG),
    "normalization": ("LayerNorm", "RMSNorm", "L2Norm"),
    "position-embedding-type": ("learned_absolute", "rope", "yarn", "mrope", "relative", "none"),
    "pipeline-model-parallel-layout": str,
    "cp-comm-type": ("p2p", "a2a", "allgather", "a2a+p2p"),
    "data-parallel-sharding-strategy": ("no_shard", "optim", "optim_grads", "optim_grads_params"),
    "ckpt-format": ("torch", "torch_dist", "torch_dcp", "fsdp_dtensor"),
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "fp8-format": ("e4m3", "hybrid"),
}
"""Type or choices of each argument, or None for a flag. See `megatron/training/arguments.py` and its dataclasses."""


def megatron_words(asked: Job) -> list[str]:
    return shlex.split(MEGATRON.write(asked).text.replace("\\\n", " "))


def megatron_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name, kind in GRAMMAR.items():
        if kind is FLAG:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            choices = kind if isinstance(kind, tuple) else None
            parser.add_argument(f"--{name}", type=str if choices else kind, choices=choices)
    return parser


@pytest.mark.parametrize("asked", jobs(MEGATRON))
def test_megatron_arguments_are_of_its_grammar(asked: Job) -> None:
    found, unknown = megatron_parser().parse_known_args(megatron_words(asked))
    assert unknown == []
    assert found.padded_vocab_size == asked.sizes["vocabulary"]
    degrees = (found.tensor_model_parallel_size, found.context_parallel_size, found.pipeline_model_parallel_size)
    assert degrees == (asked.strategy.tensor, asked.strategy.context, asked.strategy.pipeline)
    replicas = asked.strategy.devices // (degrees[0] * degrees[1] * degrees[2])
    assert found.global_batch_size % (found.micro_batch_size * replicas) == 0
    # Megatron-FSDP asserts both.
    assert found.use_megatron_fsdp == (found.data_parallel_sharding_strategy is not None)
    assert found.use_megatron_fsdp == (found.ckpt_format == "fsdp_dtensor")


def test_megatron_gets_every_size_of_attention_and_experts() -> None:
    """Qwen3 has heads wider than its hidden size. DeepSeek-V3 has experts and latent attention."""
    qwen = megatron_parser().parse_args(megatron_words(job(*STRATEGIES["experts in a pipeline"])))
    assert (qwen.kv_channels, qwen.num_query_groups, qwen.qk_layernorm) == (128, 4, True)
    deepseek = megatron_parser().parse_args(megatron_words(job(*STRATEGIES["latent"])))
    assert (deepseek.kv_lora_rank, deepseek.q_lora_rank, deepseek.v_head_dim) == (512, 1536, 128)
    assert (deepseek.qk_head_dim, deepseek.qk_pos_emb_head_dim) == (128, 64)
    assert (deepseek.moe_shared_expert_intermediate_size, deepseek.moe_router_score_function) == (2048, "sigmoid")
    assert deepseek.moe_layer_freq == "([0]*3+[1]*58)"
    assert not deepseek.group_query_attention


def test_the_grammar_refuses_what_is_none() -> None:
    assert megatron_parser().parse_known_args(["--hidden-sizes", "3"])[1] == ["--hidden-sizes", "3"]
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        megatron_parser().parse_known_args(["--hidden-size", "wide"])


@pytest.mark.parametrize("asked", [each for each in jobs(MEGATRON) if each.values[0].strategy.pipeline > 1])
def test_megatron_s_own_parser_reads_the_layout(asked: Job) -> None:
    """megatron-core is no extra: run `pip install megatron-core torch` in another environment."""
    known = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout")
    words, strategy = megatron_words(asked), asked.strategy
    text = words[words.index("--pipeline-model-parallel-layout") + 1]
    layout = known.PipelineParallelLayerLayout.from_str(text, strategy.pipeline)
    layout.validate_layer_layout(asked.spec.layers, None)
    assert layout.virtual_pipeline_model_parallel_size == strategy.stages_per_device
    decoders = [
        sum(each.name == "decoder" for each in layout.layout[s % strategy.pipeline][s // strategy.pipeline])
        for s in range(strategy.stages)
    ]
    assert tuple(decoders) == asked.layers


# DeepSpeed


@pytest.mark.parametrize("asked", jobs(DEEPSPEED))
def test_deepspeed_s_own_config_reads_the_file(asked: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed is no extra: run `DS_BUILD_OPS=0 pip install deepspeed torch` in another environment."""
    known = pytest.importorskip("deepspeed.runtime.config")
    monkeypatch.setattr(known.dist, "get_world_size", lambda: asked.strategy.devices)
    monkeypatch.setattr(known.dist, "get_rank", lambda: 0)
    found = known.DeepSpeedConfig(json.loads(DEEPSPEED.write(asked).text))
    assert (found.world_size, found.train_batch_size) == (asked.strategy.devices, asked.spec.batch)
    assert found.train_micro_batch_size_per_gpu == asked.rows
    assert found.gradient_accumulation_steps == asked.strategy.micro_batches
    assert found.zero_config.stage == asked.strategy.zero
    assert found.grad_accum_dtype == (asked.strategy.grad_dtype or None)


def test_deepspeed_says_where_experts_are_set() -> None:
    assert any("expert" in note for note in DEEPSPEED.write(job(*STRATEGIES["experts"])).left_out)


# torchtitan

_TRAINING = {
    "num_tokens_per_microbatch_per_dp_rank": int,
    "num_tokens_per_train_step": int,
    "max_context_length": int,
    "disable_cuda_graphs": bool,
}
_PARALLELISM = {
    **dict.fromkeys(("data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree"), int),
    **dict.fromkeys(("context_parallel_degree", "expert_parallel_degree", "pipeline_parallel_degree"), int),
    "num_pp_microbatches": int,
    "enable_sequence_parallel": bool,
    "fsdp_reshard_after_forward": Literal["default", "always", "never"],
    "pipeline_parallel_schedule": str,
    "pipeline_parallel_schedule_csv": str,
    "module_fqns_per_model_part": list,
}
_TITAN_GRAMMAR = {"training": _TRAINING, "parallelism": _PARALLELISM, "compile": {"enable": bool}}
"""Fields of each section that are set, from `torchtitan/config/configs.py`. Sections accept no other names."""


def section(name: str, fields: dict[str, Any]) -> Any:
    made = make_dataclass(name, [(key, Any, field(default=None)) for key in fields], slots=True)
    return made()


@pytest.fixture
def titan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that reads a configuration, with stand-ins for the imported modules of torchtitan."""

    def read(asked: Job) -> Any:
        config = section("Config", {**_TITAN_GRAMMAR, "activation_checkpoint": object})
        for name, fields in _TITAN_GRAMMAR.items():
            setattr(config, name, section(name, fields))
        policies = ModuleType("policies")
        for name in ("SelectiveAC", "FullAC"):
            setattr(policies, name, type(name, (), {"Config": type("Config", (), {})}))
        monkeypatch.setitem(sys.modules, "torchtitan.distributed.activation_checkpoint", policies)
        registry = _Registry("registry", config)
        for model in ("llama3", "qwen3", "deepseek_v3"):
            monkeypatch.setitem(sys.modules, f"torchtitan.models.{model}.config_registry", registry)
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
        scope: dict[str, Any] = {"__name__": "recommended"}
        exec(compile(TITAN.write(asked).text, "recommended.py", "exec"), scope)
        return scope["recommended"]()

    return read


class _Registry(ModuleType):
    """A registry whose functions all return the same configuration."""

    def __init__(self, name: str, config: Any) -> None:
        super().__init__(name)
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return lambda: self._config


@pytest.mark.parametrize("asked", jobs(TITAN))
def test_torchtitan_settings_are_of_its_grammar(asked: Job, titan: Any) -> None:
    config, strategy = titan(asked), asked.strategy
    for name, fields in _TITAN_GRAMMAR.items():
        for key, kind in fields.items():
            value = getattr(getattr(config, name), key)
            if value is not None:
                assert value in get_args(kind) if get_origin(kind) is Literal else type(value) is kind, key
    training, parallelism = config.training, config.parallelism
    parts = strategy.data * strategy.micro_batches
    assert training.num_tokens_per_train_step == parts * training.num_tokens_per_microbatch_per_dp_rank
    degrees = (parallelism.data_parallel_replicate_degree, parallelism.data_parallel_shard_degree)
    degrees += (parallelism.tensor_parallel_degree, parallelism.context_parallel_degree)
    degrees += (parallelism.pipeline_parallel_degree,)
    product = 1
    for degree in degrees:
        product *= degree
    assert product == strategy.devices
    if strategy.pipeline > 1:
        assert training.disable_cuda_graphs, "torchtitan refuses CUDA graphs in pipelines"
        modules = list(chain.from_iterable(parallelism.module_fqns_per_model_part))
        layers = [f"layers.{i}" for i in range(asked.spec.layers)]
        assert modules == ["tok_embeddings", *layers, "norm", "lm_head"]
        assert len(parallelism.module_fqns_per_model_part) == strategy.stages


def test_an_order_that_torchtitan_lacks_is_a_csv(titan: Any) -> None:
    asked = job(*STRATEGIES["split"])
    parallelism = titan(asked).parallelism
    rows = Path(parallelism.pipeline_parallel_schedule_csv).read_text().splitlines()
    assert parallelism.pipeline_parallel_schedule == "1F1B"
    assert len(rows) == 4
    assert {cell[1] for row in rows for cell in row.split(",")} == {"F", "I", "W"}


def test_an_order_that_was_searched_is_a_csv(titan: Any) -> None:
    asked = job("llama-3.1-8b", Strategy(2, 1, 2, 8, "interleaved", stages_per_device=2))
    found = stage_order("interleaved", 2, 8, stages_per_device=2)
    searched = Job(asked.name, asked.family, asked.spec, asked.strategy, found)
    parallelism = titan(searched).parallelism
    assert parallelism.pipeline_parallel_schedule == "Interleaved1F1B"
    assert Path(parallelism.pipeline_parallel_schedule_csv).read_text() == pytorch_csv(found)
    assert titan(asked).parallelism.pipeline_parallel_schedule_csv is None


def test_two_copies_of_a_network_are_refused() -> None:
    assert "two copies" in TITAN.objection(job("llama-3.1-8b", Strategy(1, 1, 4, 8, "chimera")))


@pytest.mark.parametrize("asked", jobs(TITAN))
def test_torchtitan_s_own_manager_reads_the_module(asked: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchtitan's main needs a nightly PyTorch with Triton, so it runs in another environment."""
    try:
        manager = importlib.import_module("torchtitan.config").ConfigManager()
        importlib.import_module("torchtitan.models.llama3.config_registry")
    except ImportError as error:
        pytest.skip(f"torchtitan is not there: {error}")
    (tmp_path / "recommended.py").write_text(TITAN.write(asked).text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "recommended", raising=False)
    found = manager.parse_args(["--module", "recommended", "--config", "recommended"])
    assert found.parallelism.pipeline_parallel_degree == asked.strategy.pipeline
    assert found.parallelism.num_pp_microbatches in (1, asked.strategy.micro_batches)
