"""Write a strategy as settings for torchtitan, Megatron-LM or DeepSpeed, or as a small PyTorch script.

Names of fields and options are those of torchtitan's `torchtitan/config/configs.py` (August 2026), Megatron-LM's
`megatron/training/arguments.py` and DeepSpeed's configuration JSON. If a framework cannot run a part of a strategy,
this part is left out and listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tessel_core.exports.pytorch_csv import objection_of_pytorch, pytorch_csv, titan_schedule
from tessel_core.exports.toy import toy_left_out, toy_objection, toy_script
from tessel_core.formats.megatron_layout import layout_text
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.ir.transforms.pipeline import layers_of_stages
from tessel_core.model import Schedule
from tessel_core.strategies.families import Family, Spec, Value
from tessel_core.strategies.orders import stage_order
from tessel_core.strategies.ranks import DEFAULT_RANK_ORDER
from tessel_core.strategies.strategy import Strategy


@dataclass(frozen=True)
class Job:
    """A network with a strategy. One training step processes `spec.batch` samples."""

    name: str
    """Name of a preset, or name of a file without its suffix."""
    family: Family
    spec: Spec
    strategy: Strategy
    searched: Schedule | None = None
    """Order of the stages that a search found. None means the strategy's own order."""

    @property
    def sizes(self) -> Mapping[str, Value]:
        """Sizes of the network, by name."""
        return self.family.sizes_of(self.spec)

    @property
    def title(self) -> str:
        """One line about the network and the strategy, without characters that would end a Python docstring."""
        name = self.name.replace("\\", "").replace('"', "'")
        return f"{name} on {self.strategy.devices} devices: {self.strategy.summary}"

    @property
    def rows(self) -> int:
        """Number of samples per micro-batch."""
        return self.spec.batch // (self.strategy.data * self.strategy.micro_batches)

    @property
    def layers(self) -> tuple[int, ...]:
        """Number of layers of each stage."""
        return self.strategy.layout or layers_of_stages(self.spec.layers, self.strategy.stages)


@dataclass(frozen=True, slots=True)
class Launch:
    """The text of a file, and the ways in which the framework differs from the simulation."""

    text: str
    left_out: tuple[str, ...]
    """One clause for each difference."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Functions that write a strategy for one framework."""

    title: str
    suffix: str
    write: Callable[[Job], Launch]
    objection: Callable[[Job], str]
    """Returns why the framework cannot run the strategy, as a clause. Empty if it can."""


_TITAN_BASES = {
    **dict.fromkeys(("llama-3-8b", "llama-3.1-8b"), ("llama3", "llama3_8b")),
    **dict.fromkeys(("llama-3-70b", "llama-3.1-70b"), ("llama3", "llama3_70b")),
    **dict.fromkeys(("llama-3-405b", "llama-3.1-405b"), ("llama3", "llama3_405b")),
    "qwen3-32b": ("qwen3", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
}
"""Configurations that come with torchtitan, by name of our preset: a model, and a function of its `config_registry`."""
_TITAN_ORDERS = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B", "zb-v": "ZBVZeroBubble"}
_TITAN_RECOMPUTING = {Recompute.SELECTIVE: "SelectiveAC.Config()", Recompute.FULL: "FullAC.Config()"}


def _titan_objection(job: Job) -> str:
    if job.family.tokens(job.spec) is None:
        return "torchtitan trains only networks whose input is tokens"
    if job.strategy.pipeline > 1 and job.strategy.form.copies > 1:
        return f"{job.strategy.schedule} runs two copies of the network, but torchtitan runs one"
    order = _titan_csv_order(job)
    if order is None:
        return ""
    return objection_of_pytorch(order) or (
        "" if titan_schedule(order.plan) else "torchtitan places stages only in a loop or a V"
    )


def _titan_csv_order(job: Job) -> Schedule | None:
    """Return the order that torchtitan reads from a CSV file.

    None if torchtitan has this order itself, or if there is no pipeline.
    """
    strategy = job.strategy
    if strategy.pipeline == 1:
        return None
    if job.searched is None and strategy.schedule in _TITAN_ORDERS:
        return None
    shape = strategy.pipeline, strategy.micro_batches, True, strategy.stages_per_device
    return job.searched or stage_order(strategy.schedule, *shape)


def _titan(job: Job) -> Launch:
    """Return a Python module for the option `--module`. Its function `recommended` is the value of `--config`."""
    model, function = _TITAN_BASES.get(job.name, ("llama3", "llama3_8b"))
    left_out = list(_left_out(job, "torchtitan", contexts=(ContextMethod.RING,), zeros=(0, 3)))
    if job.name not in _TITAN_BASES:
        left_out.append(f"torchtitan has no configuration of {job.name}: replace `base` by your own")
    fields = dict(_titan_fields(job))
    policy = _TITAN_RECOMPUTING.get(job.strategy.recompute, "").removesuffix(".Config()")
    imports = f"from torchtitan.distributed.activation_checkpoint import {policy}\n" if policy else ""
    lines = [f"    config.{name} = {value}" for name, value in fields.items()]
    order = _titan_csv_order(job)
    needs, carried = ("import os\nimport tempfile\nfrom pathlib import Path\n\n", _TITAN_CSV) if order else ("", "")
    text = (
        f'"""{job.title}."""\n\n'
        f"{needs}{imports}from torchtitan.models.{model}.config_registry import {function} as base\n\n\n"
        "def recommended():\n"
        '    """The configuration for `python -m torchtitan.train --module recommended --config recommended`."""\n'
        "    config = base()\n"
        + "\n".join(lines)
        + "\n    return config\n"
        + carried.replace("ORDER", "" if order is None else pytorch_csv(order).strip())
    )
    return Launch(text, tuple(left_out))


_TITAN_CSV = '''

SCHEDULE = """
ORDER
"""


def schedule_file():
    """Write the order of the stages to a file of this process, and return its path."""
    path = Path(tempfile.gettempdir()) / f"recommended-{os.getpid()}.csv"
    path.write_text(SCHEDULE.lstrip())
    return str(path)
'''
"""Last part of the module if torchtitan reads the order of stages from a CSV file."""


def _titan_fields(job: Job) -> Iterator[tuple[str, object]]:
    strategy, tokens = job.strategy, job.family.tokens(job.spec) or 0
    sharded = strategy.zero > 0
    yield "training.max_context_length", tokens
    yield "training.num_tokens_per_microbatch_per_dp_rank", job.rows * tokens
    yield "training.num_tokens_per_train_step", job.spec.batch * tokens
    if strategy.pipeline > 1 or strategy.expert > 1:
        # torchtitan uses CUDA graphs neither with pipelines nor with expert parallelism.
        yield "training.disable_cuda_graphs", True
    yield "parallelism.data_parallel_replicate_degree", 1 if sharded else strategy.data
    yield "parallelism.data_parallel_shard_degree", strategy.data if sharded else 1
    if sharded:
        always = strategy.zero == 3 and strategy.reshard
        yield "parallelism.fsdp_reshard_after_forward", repr("always" if always else "never")
    yield "parallelism.tensor_parallel_degree", strategy.tensor
    yield "parallelism.enable_sequence_parallel", strategy.sequence_parallel
    yield "parallelism.context_parallel_degree", strategy.context
    yield "parallelism.expert_parallel_degree", strategy.expert
    yield "parallelism.pipeline_parallel_degree", strategy.pipeline
    if strategy.pipeline > 1:
        order = _titan_csv_order(job)
        named = _TITAN_ORDERS[strategy.schedule] if order is None else titan_schedule(order.plan)
        yield "parallelism.pipeline_parallel_schedule", repr(named)
        if order is not None:
            yield "parallelism.pipeline_parallel_schedule_csv", "schedule_file()"
        yield "parallelism.num_pp_microbatches", strategy.micro_batches
        yield "parallelism.module_fqns_per_model_part", _module_names(job.layers)
    recompute = _TITAN_RECOMPUTING.get(strategy.recompute)
    yield "activation_checkpoint", recompute
    yield "compile.enable", strategy.compiled


def _module_names(layers: tuple[int, ...]) -> list[list[str]]:
    """Return the names of the modules of each stage.

    The first stage has the embedding, and the last stage has the norm and the head.
    """
    bounds = [0, *accumulate(layers)]
    stages = [[f"layers.{i}" for i in range(first, last)] for first, last in pairwise(bounds)]
    stages[0].insert(0, "tok_embeddings")
    stages[-1] += ["norm", "lm_head"]
    return stages


_MEGATRON_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def _megatron_objection(job: Job) -> str:
    strategy = job.strategy
    if job.family.name not in ("gpt", "llama", "moe"):
        return "Megatron-LM's arguments describe only GPT, Llama and mixtures of experts"
    if strategy.pipeline > 1 and strategy.schedule not in ("1f1b", "interleaved"):
        return f"Megatron-LM runs 1F1B and interleaved 1F1B, not {strategy.schedule}"
    return ""


def _megatron(job: Job) -> Launch:
    """Return the arguments of `pretrain_gpt.py`, one per line."""
    left_out = list(_left_out(job, "Megatron-LM", contexts=tuple(ContextMethod), zeros=(0, 1, 2, 3)))
    if job.strategy.zero > 1:
        left_out.append("Megatron-FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1: leave that variable unset")
    if job.sizes.get("style", "llama") != "llama":
        left_out.append(f"Megatron-LM's arguments here leave out the norms and windows of {job.name}")
    words = [f"--{name}" if value is True else f"--{name} {value}" for name, value in _megatron_arguments(job)]
    return Launch(" \\\n".join(words) + "\n", tuple(left_out))


def _megatron_arguments(job: Job) -> Iterator[tuple[str, object]]:
    yield from _megatron_network(job)
    strategy = job.strategy
    yield "micro-batch-size", job.rows
    yield "global-batch-size", job.spec.batch
    if job.spec.dtype in ("bf16", "fp16"):
        yield job.spec.dtype, True
    yield "tensor-model-parallel-size", strategy.tensor
    yield "context-parallel-size", strategy.context
    yield "pipeline-model-parallel-size", strategy.pipeline
    if strategy.sequence_parallel and strategy.tensor > 1:
        yield "sequence-parallel", True
    if strategy.context > 1:
        yield "cp-comm-type", "p2p" if strategy.context_method == ContextMethod.RING else "a2a"
    if strategy.pipeline > 1:
        letters = ["t" * count for count in job.layers]
        letters[0], letters[-1] = f"E{letters[0]}", f"{letters[-1]}L"
        yield "pipeline-model-parallel-layout", f"'{layout_text(letters)}'"
    if strategy.expert > 1:
        yield "expert-model-parallel-size", strategy.expert
        yield "expert-tensor-parallel-size", 1
    if strategy.zero == 1:
        yield "use-distributed-optimizer", True
        yield "overlap-param-gather", True
    if strategy.zero > 1:
        yield "use-megatron-fsdp", True
        yield "data-parallel-sharding-strategy", _MEGATRON_SHARDING[strategy.zero]
        yield "ckpt-format", "fsdp_dtensor"  # Megatron-FSDP accepts no other checkpoint format.
    if strategy.data > 1:
        yield "overlap-grad-reduce", True
    if strategy.grad_dtype == "fp32":
        yield "accumulate-allreduce-grads-in-fp32", True
    if strategy.recompute == Recompute.FULL:
        yield "recompute-granularity", "full"
        yield "recompute-method", "uniform"
        yield "recompute-num-layers", 1
    if strategy.recompute == Recompute.SELECTIVE:
        yield "recompute-granularity", "selective"
    if strategy.fp8:
        yield "fp8-format", "hybrid"


def _megatron_network(job: Job) -> Iterator[tuple[str, object]]:
    """Yield the arguments that describe the network, as pairs of name and value."""
    sizes = job.sizes
    for name, ours in (("num-layers", "layers"), ("hidden-size", "hidden"), ("num-attention-heads", "heads")):
        yield name, sizes[ours]
    yield "seq-length", sizes["sequence"]
    yield "max-position-embeddings", sizes["sequence"]
    yield "padded-vocab-size", sizes["vocabulary"]
    if job.family.name == "gpt":
        return
    yield "ffn-hidden-size", sizes["inner"]
    yield "swiglu", True
    yield "normalization", "RMSNorm"
    yield "position-embedding-type", "rope"
    yield "rotary-base", int(sizes["rotary_base"])
    yield "disable-bias-linear", True
    if not sizes["tied"]:
        yield "untie-embeddings-and-output-weights", True
    yield from _megatron_latent_attention(sizes) if sizes.get("latent") else _megatron_attention(sizes)
    if job.family.name == "moe":
        yield from _megatron_experts(sizes)


def _megatron_attention(sizes: Mapping[str, Value]) -> Iterator[tuple[str, object]]:
    if sizes["kv_heads"] != sizes["heads"]:
        yield "group-query-attention", True
        yield "num-query-groups", sizes["kv_heads"]
    if int(sizes["head_size"]) * int(sizes["heads"]) != sizes["hidden"]:
        yield "kv-channels", sizes["head_size"]
    if sizes["qkv_bias"]:
        yield "add-qkv-bias", True
    if sizes["qk_norm"]:
        yield "qk-layernorm", True


def _megatron_latent_attention(sizes: Mapping[str, Value]) -> Iterator[tuple[str, object]]:
    yield "multi-latent-attention", True
    yield "kv-lora-rank", sizes["latent"]
    if sizes["query_latent"]:
        yield "q-lora-rank", sizes["query_latent"]
    yield "qk-head-dim", int(sizes["head_size"]) - int(sizes["rotary_size"])
    yield "qk-pos-emb-head-dim", sizes["rotary_size"]
    yield "v-head-dim", sizes["value_size"]


def _megatron_experts(sizes: Mapping[str, Value]) -> Iterator[tuple[str, object]]:
    yield "num-experts", sizes["experts"]
    yield "moe-router-topk", sizes["active"]
    yield "moe-ffn-hidden-size", sizes["expert_inner"]
    yield "moe-grouped-gemm", True
    if sizes["router"] != "softmax":
        yield "moe-router-score-function", sizes["router"]
    if sizes["shared"]:
        yield "moe-shared-expert-intermediate-size", int(sizes["shared"]) * int(sizes["expert_inner"])
    if sizes["dense_layers"]:
        dense, layers = int(sizes["dense_layers"]), int(sizes["layers"])
        yield "moe-layer-freq", f"'([0]*{dense}+[1]*{layers - dense})'"


def _deepspeed_objection(job: Job) -> str:
    strategy = job.strategy
    others = {"tensor": strategy.tensor, "context": strategy.context, "pipeline": strategy.pipeline}
    cut = [name for name, degree in others.items() if degree > 1]
    return f"a DeepSpeed config has no {' or '.join(cut)} parallelism, only ZeRO and micro-batches" if cut else ""


def _deepspeed(job: Job) -> Launch:
    """Return the JSON file for `deepspeed --deepspeed_config`."""
    strategy = job.strategy
    config = {
        "train_batch_size": job.spec.batch,
        "train_micro_batch_size_per_gpu": job.rows,
        "gradient_accumulation_steps": strategy.micro_batches,
        "bf16": {"enabled": job.spec.dtype == "bf16"},
        "fp16": {"enabled": job.spec.dtype == "fp16"},
        "zero_optimization": {
            "stage": strategy.zero,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_bucket_size": max(1, strategy.bucket_bytes // 2),
        },
    }
    if strategy.grad_dtype:
        config["data_types"] = {"grad_accum_dtype": strategy.grad_dtype}
    left_out = list(_left_out(job, "DeepSpeed", contexts=tuple(ContextMethod), zeros=(0, 1, 2, 3)))
    if strategy.recompute != Recompute.NONE:
        left_out.append("DeepSpeed's config has no recomputation: enable it in the model's code")
    if strategy.expert > 1:
        left_out.append("DeepSpeed's config has no expert parallelism: set `ep_size` in the model's code")
    return Launch(json.dumps(config, indent=2) + "\n", tuple(left_out))


def _toy(job: Job) -> Launch:
    """Return a script that trains a small network of the same structure in processes on one machine."""
    searched = _searched(job, "PyTorch's toy")
    return Launch(toy_script(job.title, job.strategy, job.layers), (*searched, *toy_left_out(job.strategy)))


def _left_out(job: Job, framework: str, contexts: tuple[ContextMethod, ...], zeros: tuple[int, ...]) -> Iterator[str]:
    """Yield one clause for each way in which the framework differs from the simulation."""
    strategy = job.strategy
    if framework != "torchtitan":
        yield from _searched(job, framework)
    if strategy.context > 1 and strategy.context_method not in contexts:
        yield f"{framework} chooses its own context method; {strategy.context_method} was simulated"
    if strategy.zero not in zeros:
        yield f"{framework} has no ZeRO-{strategy.zero}: it also shards weights, and keeps them after the forward pass"
    if strategy.rank_order not in (None, DEFAULT_RANK_ORDER):
        yield f"{framework} numbers ranks in its own order; {','.join(strategy.rank_order or ())} was simulated"
    if strategy.compiled and framework != "torchtitan":
        yield f"{framework} has its own kernels; torch.compile was simulated"
    if strategy.fp8 and framework != "Megatron-LM":
        yield f"these settings do not enable FP8: enable it in {framework}'s model"


def _searched(job: Job, framework: str) -> Iterator[str]:
    """If a search found the order of stages, yield a clause that says that this framework cannot run it."""
    if job.searched is not None:
        yield f"{framework} runs {job.strategy.schedule}, not the order that the search found"


LAUNCHERS: Mapping[str, Launcher] = {
    "torchtitan": Launcher("torchtitan configuration", ".py", _titan, _titan_objection),
    "megatron": Launcher("Megatron-LM arguments", ".txt", _megatron, _megatron_objection),
    "deepspeed": Launcher("DeepSpeed config", ".json", _deepspeed, _deepspeed_objection),
    "torch": Launcher("PyTorch toy", ".py", _toy, lambda job: toy_objection(job.strategy)),
}
