"""Measure whole training steps of Llama on one GPU: python tools/measure_steps.py out.csv.

Stand-alone: needs PyTorch 2.11 or newer and one CUDA device, no other package and no network.  Tokens are random.
A step has several micro-batches.  Weights are bf16.  AdamW updates fp32 copies of them with gradients that are summed
in fp32, as in Megatron-LM.  Norms are PyTorch's `RMSNorm`, as in torchtitan.  After warm-up, each row gets the median
time of a step and the peak of the allocated memory.
`tests/benchmarks/steps.py` compares the rows with predictions.  `--tiny` runs a small network, also without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # Tools are not an installed package.

from tools.measure_h100 import BF16, DEVICE, GPU, Layer

WARM_UPS, REPEATS = 2, 5
KERNELS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


@dataclass(frozen=True)
class Case:
    """A network, its training step, and the way in which it runs."""

    preset: str
    layers: int
    sequence: int
    samples: int
    micro_batches: int
    recompute: str = "none"
    mode: str = "eager"
    attention: str = "cudnn"


SIZES = {  # hidden size, heads, key-value heads, inner size, vocabulary, tied embedding
    "llama-3.2-1b": (2048, 32, 8, 8192, 128256, True),
    "llama-3.2-3b": (3072, 24, 8, 8192, 128256, True),
    "llama-3-8b": (4096, 32, 8, 14336, 128256, False),
}
TINY = (64, 4, 2, 128, 512, True)
CASES = (
    Case("llama-3.2-1b", 16, 8192, 1, 4),
    Case("llama-3.2-1b", 16, 8192, 1, 4, attention="flash"),
    Case("llama-3.2-1b", 16, 8192, 1, 4, recompute="full"),
    Case("llama-3.2-1b", 16, 8192, 2, 2),
    Case("llama-3.2-1b", 16, 2048, 4, 4),
    Case("llama-3-8b", 4, 4096, 2, 4),
    Case("llama-3.2-3b", 28, 4096, 1, 2, recompute="full"),
    Case("llama-3.2-1b", 16, 8192, 1, 4, mode="compiled"),
    Case("llama-3-8b", 4, 4096, 2, 4, mode="compiled"),
    Case("llama-3.2-1b", 16, 8192, 1, 4, recompute="selective"),
    Case("llama-3-8b", 4, 4096, 2, 4, recompute="selective"),
    Case("llama-3-8b", 4, 4096, 2, 4, recompute="selective", mode="compiled"),
)


def norm(hidden: int) -> nn.RMSNorm:
    """Return PyTorch's own RMSNorm, one kernel, as torchtitan uses it."""
    return nn.RMSNorm(hidden, eps=1e-5, device=DEVICE, dtype=BF16)


def keeping_every_second_product() -> Any:
    """Return the contexts of torchtitan's selective checkpointing.

    They keep attention and every second product of a layer.
    """
    products = Counter[bool]()
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention.default

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operator is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            kept = products[context.is_recompute] % 2 == 1
        else:
            kept = operator is attention
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


RECOMPUTING: dict[str, Callable[[Layer, Tensor], Tensor]] = {
    "none": lambda layer, x: layer(x),
    "full": partial(checkpoint, use_reentrant=False),
    "selective": partial(checkpoint, use_reentrant=False, context_fn=keeping_every_second_product),
}


class Llama(nn.Module):  # type: ignore[misc, unused-ignore]
    """Llama: embedding, layers, norm and head. The output is the loss of a micro-batch."""

    def __init__(self, case: Case, sizes: tuple[int, int, int, int, int, bool]) -> None:
        super().__init__()
        hidden, heads, kv_heads, inner, vocabulary, tied = sizes
        shape = hidden, heads, kv_heads, inner, case.sequence
        self.embedding = nn.Embedding(vocabulary, hidden, device=DEVICE, dtype=BF16)
        self.layers = nn.ModuleList(Layer(*shape, fp8=False) for _ in range(case.layers))
        for layer in self.layers:
            layer.norm_1, layer.norm_2 = norm(hidden), norm(hidden)
        self.norm = norm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False, device=DEVICE, dtype=BF16)
        if tied:
            self.head.weight = self.embedding.weight
        self.run = RECOMPUTING[case.recompute]
        if case.mode == "compiled":
            self.run = torch.compile(self.run, dynamic=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = self.run(layer, x)
        logits = self.head(self.norm(x))
        return fn.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Training:
    """Training with weights in bf16. AdamW updates fp32 copies of them with fp32 gradients."""

    def __init__(self, model: Llama) -> None:
        self.model, self.weights = model, list(model.parameters())
        self.masters = [weight.detach().float() for weight in self.weights]
        self.hooks = []
        for weight, master in zip(self.weights, self.masters, strict=True):
            master.grad = torch.zeros_like(master)
            self.hooks.append(weight.register_post_accumulate_grad_hook(partial(self._add, master.grad)))
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, fused=GPU)

    @staticmethod
    def _add(sums: Tensor, parameter: Tensor) -> None:
        assert parameter.grad is not None
        sums.add_(parameter.grad)
        parameter.grad = None

    def close(self) -> None:
        """Remove the hooks. They hold references to the weights, which would otherwise stay in memory."""
        for hook in self.hooks:
            hook.remove()

    def step(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        """Run one step with all its micro-batches."""
        for tokens, targets in batches:
            self.model(tokens, targets).backward()
        self.optimizer.step()
        torch._foreach_copy_([weight.detach() for weight in self.weights], self.masters)
        torch._foreach_zero_([master.grad for master in self.masters])


def measure(case: Case, sizes: tuple[int, int, int, int, int, bool]) -> tuple[float, int]:
    """Return the median seconds of a step, and the peak bytes allocated."""
    if GPU:
        torch.cuda.empty_cache()
    torch._dynamo.reset()
    with closing(Training(Llama(case, sizes))) as training:
        return run(case, sizes[4], training)


def run(case: Case, vocabulary: int, training: Training) -> tuple[float, int]:
    """Return the median seconds of a step and the peak bytes allocated, for an existing training."""
    shape = case.micro_batches, 2, case.samples, case.sequence
    batches = [(x, y) for x, y in torch.randint(vocabulary, shape, device=DEVICE)]
    took = []
    with sdpa_kernel(KERNELS[case.attention] if GPU else SDPBackend.MATH):
        for _ in range(WARM_UPS + REPEATS):
            began = time.perf_counter()
            training.step(batches)
            if GPU:
                torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
            if GPU and len(took) == WARM_UPS:
                torch.cuda.reset_peak_memory_stats()
    return statistics.median(took[WARM_UPS:]), torch.cuda.max_memory_allocated() if GPU else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="CSV file to write")
    parser.add_argument("--tiny", action="store_true", help="a small network, to check the script; also without a GPU")
    asked = parser.parse_args()
    print(torch.__version__, torch.cuda.get_device_name() if GPU else "no GPU", flush=True)
    torch.manual_seed(0)
    with asked.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*(field.name for field in fields(Case)), "seconds", "peak_bytes"))
        for given in CASES:
            case = replace(given, layers=2, sequence=32) if asked.tiny else given
            began = time.monotonic()
            try:
                seconds, peak = measure(case, TINY if asked.tiny else SIZES[case.preset])
            except Exception:  # A case that fails must not stop the other cases.
                print(f"{case} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
                continue
            writer.writerow((*astuple(case), f"{seconds:.6f}", peak))
            file.flush()
            print(f"{case}: {seconds:.4f} s, {peak / 1e9:.2f} GB; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
