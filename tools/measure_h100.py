"""Measure products, transformer layers, experts, attention and copies on one GPU: python tools/measure_h100.py out.csv.

Stand-alone: needs PyTorch 2.11 or newer and one CUDA device, no other package and no network. All data are random. Each
figure is a median over CUDA events after warm-up. Rows are written one by one with the columns `op, shape, flops,
bytes, us, extra`; `flops` and `bytes` are what the operator needs at least, and `extra` is `key=value; ...`. A section
that fails is printed and skipped. No new row starts after `--seconds` (310 by default). `--tiny` runs small shapes,
also without a GPU, to check the script itself.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16
FP8_MAX = torch.finfo(FP8).max
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
REPEATS, WARM_UPS = 11, 3
SLEEP_CYCLES = 2_000_000  # About 1 ms, in which the host queues all repeats. So the device never waits for a launch.
PROFILED_KERNELS = 60  # Rows per profiled layer, for its slowest kernels.


class OutOfTimeError(Exception):
    """The time limit of the script has been reached."""


class Rows:
    """Writer of the CSV file. It also holds the time after which no new measurement starts."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.file = path.open("w", newline="")
        self.writer = csv.writer(self.file)
        self.end = time.monotonic() + seconds
        self.write(("op", "shape", "flops", "bytes", "us", "extra"))

    def write(self, row: tuple[Any, ...]) -> None:
        self.writer.writerow(row)
        self.file.flush()

    def add(self, op: str, shape: str, flops: float, moved: float, us: float, **extra: Any) -> None:
        more = "; ".join(f"{name}={value}" for name, value in extra.items())
        self.write((op, shape, int(flops), int(moved), f"{us:.2f}", more))
        print(
            f"{op} [{shape}] {us:.1f} us, {flops / us / 1e6:.1f} Tflop/s, {moved / us / 1e3:.0f} GB/s {more}",
            flush=True,
        )

    def measure(self, op: str, shape: str, flops: float, moved: float, call: Callable[[], Any], **extra: Any) -> None:
        if time.monotonic() > self.end:
            raise OutOfTimeError
        self.add(op, shape, flops, moved, time_us(call), **extra)


def events(count: int) -> list[Any]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)] if GPU else [0.0] * count


def record(marks: list[Any], at: int) -> None:
    if GPU:
        marks[at].record()
    else:
        marks[at] = time.perf_counter()


def between_us(marks: list[Any], first: int, last: int) -> float:
    if GPU:
        torch.cuda.synchronize()
        return float(marks[first].elapsed_time(marks[last])) * 1e3
    return float(marks[last] - marks[first]) * 1e6


def time_us(call: Callable[[], Any], ahead: bool = True) -> float:
    """Return the median time of `call` on the device in µs.

    With `ahead`, the host queues all launches before they run.
    """
    for _ in range(WARM_UPS):
        call()
    if GPU:
        torch.cuda.synchronize()
    if GPU and ahead:
        torch.cuda._sleep(SLEEP_CYCLES)
    marks = events(REPEATS + 1)
    record(marks, 0)
    for repeat in range(REPEATS):
        call()
        record(marks, repeat + 1)
    return statistics.median(between_us(marks, at, at + 1) for at in range(REPEATS))


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=BF16)


def by_weight(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.t()


# FP8 with one dynamic scale per tensor, as in torchao's `float8_dynamic_tensorwise`.


def scale_of(x: Tensor) -> Tensor:
    """Return the float32 divisor that maps the largest absolute value of `x` to the largest FP8 number."""
    return x.abs().amax().to(torch.float32).clamp(min=1e-12) / FP8_MAX


def cast(x: Tensor, scale: Tensor) -> Tensor:
    return (x.to(torch.float32) / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def scaled_product(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, fast: bool = True) -> Tensor:
    """Return `a @ b` of FP8 factors. The kernel takes `a` row-major and `b` column-major."""
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=BF16, use_fast_accum=fast)


class ScaledLinear(torch.autograd.Function):
    """Linear operator `x @ weight.T` with three products in FP8.

    It keeps bf16 factors and casts them again for the backward pass, as torchao does.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        scale_x, scale_w = scale_of(x), scale_of(weight)
        return scaled_product(cast(x, scale_x), cast(weight, scale_w).t(), scale_x, scale_w)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        scale_g, scale_x, scale_w = scale_of(g), scale_of(x), scale_of(weight)
        g8 = cast(g, scale_g)
        w8, x8 = cast(weight, scale_w).t().contiguous().t(), cast(x, scale_x).t().contiguous().t()
        grad_x = scaled_product(g8, w8, scale_g, scale_w, fast=False)
        grad_w = scaled_product(g8.t().contiguous(), x8, scale_g, scale_x, fast=False)
        return grad_x, grad_w


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int, fp8: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(random(outputs, inputs) * 0.02)
        self.fp8 = fp8

    def forward(self, x: Tensor) -> Tensor:
        if not self.fp8:
            return fn.linear(x, self.weight)
        return ScaledLinear.apply(x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, device=DEVICE, dtype=BF16))

    def forward(self, x: Tensor) -> Tensor:
        high = x.float()
        return (high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the rotary embedding of [sample, position, head, channel] with paired halves, in float32."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Layer(nn.Module):
    """One layer of Llama 3: RMSNorm, rotary grouped-query causal attention, SwiGLU."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int, seq: int, fp8: bool) -> None:
        super().__init__()
        self.head_dim = hidden // heads
        kv = kv_heads * self.head_dim
        self.q, self.k, self.v = (Linear(hidden, out, fp8) for out in (hidden, kv, kv))
        self.o = Linear(hidden, hidden, fp8)
        self.gate, self.up, self.down = Linear(hidden, ffn, fp8), Linear(hidden, ffn, fp8), Linear(ffn, hidden, fp8)
        self.norm_1, self.norm_2 = Norm(hidden), Norm(hidden)
        half = self.head_dim // 2
        angles = torch.outer(torch.arange(seq).float(), 500_000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angles.cos()[:, None].to(DEVICE))
        self.register_buffer("sin", angles.sin()[:, None].to(DEVICE))

    def forward(self, x: Tensor) -> Tensor:
        samples, seq, _ = x.shape
        y = self.norm_1(x)
        q, k, v = (p(y).view(samples, seq, -1, self.head_dim) for p in (self.q, self.k, self.v))
        q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        heads = fn.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        x = x + self.o(heads.transpose(1, 2).reshape(x.shape))
        y = self.norm_2(x)
        return x + self.down(fn.silu(self.gate(y)) * self.up(y))


LAYERS = {"8B": (4096, 32, 8, 14336), "70B": (8192, 64, 8, 28672)}
TINY_LAYERS = {"8B": (256, 8, 2, 512)}


def layer_flops(sizes: tuple[int, ...], samples: int, seq: int) -> float:
    """Return the operations of a forward pass: products, and attention's two products below the diagonal."""
    hidden, heads, kv_heads, ffn = sizes
    weights = hidden * (2 * hidden + 2 * hidden * kv_heads // heads + 3 * ffn)
    return samples * seq * (2.0 * weights + 2.0 * seq * hidden)


def allocated() -> int:
    return torch.cuda.memory_allocated() if GPU else 0


def products(rows: Rows, tiny: bool) -> None:
    """Measure plain and FP8 products of Llama 3's layers, and the casts of their factors."""
    layers = TINY_LAYERS if tiny else LAYERS
    seen = set()
    for tokens in (64,) if tiny else (8192, 16384):
        for hidden, heads, kv_heads, ffn in layers.values():
            kv = hidden * kv_heads // heads
            for k, n in ((hidden, hidden), (hidden, kv), (hidden, hidden + 2 * kv), (hidden, ffn), (ffn, hidden)):
                if (tokens, k, n) not in seen:
                    seen.add((tokens, k, n))
                    product(rows, tokens, k, n)
            # The weight gradient has many columns and sums over tokens.
            product(rows, hidden, tokens, ffn, transposed=True)


def product(rows: Rows, m: int, k: int, n: int, transposed: bool = False) -> None:
    a, b = random(k, m).t() if transposed else random(m, k), random(n, k).t()
    shape, flops = f"m={m}, k={k}, n={n}", 2.0 * m * k * n
    layout = "weight_gradient" if transposed else "forward"
    rows.measure("matmul", shape, flops, 2 * (m * k + k * n + m * n), lambda: torch.mm(a, b), layout=layout)
    if transposed:
        a = a.contiguous()
    scale_a, scale_b = scale_of(a), scale_of(b)
    a8, b8 = cast(a, scale_a), cast(b.t(), scale_b).t()
    moved = m * k + k * n + 2 * m * n
    for fast in (True, False):
        call = partial(scaled_product, a8, b8, scale_a, scale_b, fast)
        rows.measure("matmul_fp8", shape, flops, moved, call, fast=fast, layout=layout)

    def dynamic(x: Tensor, y: Tensor) -> Tensor:
        scale_x, scale_y = scale_of(x), scale_of(y)
        return scaled_product(cast(x, scale_x), cast(y.t(), scale_y).t(), scale_x, scale_y)

    if not transposed:
        moved += 5 * (m * k + k * n)
        rows.measure("matmul_fp8_dynamic", shape, flops, moved, lambda: dynamic(a, b), mode="eager")


def casts(rows: Rows, tiny: bool) -> None:
    """Measure dynamic casts as compiled code does them.

    One or two kernels find the maximum, and one scales and converts.
    """

    def with_scale(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = scale_of(x)
        return cast(x, scale), scale

    def both_layouts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = scale_of(x)
        x8 = cast(x, scale)
        return x8, x8.t().contiguous(), scale

    for m, n in ((64, 256),) if tiny else ((16384, 4096), (16384, 14336), (8192, 28672), (28672, 8192)):
        x, shape = random(m, n), f"m={m}, n={n}"
        rows.measure("cast_fp8", shape, 0, 5 * m * n, partial(with_scale, x), mode="eager")
        once, twice = torch.compile(with_scale, dynamic=False), torch.compile(both_layouts, dynamic=False)
        rows.measure("cast_fp8", shape, 0, 5 * m * n, partial(once, x), mode="compiled")
        rows.measure("cast_fp8_both_layouts", shape, 0, 6 * m * n, partial(twice, x), mode="compiled")


def layer_rows(rows: Rows, name: str, sizes: tuple[int, ...], samples: int, seq: int, mode: str) -> None:
    """Measure one layer, forward and backward: times, bytes kept in between, the peak, and its kernels."""
    if time.monotonic() > rows.end:
        raise OutOfTimeError
    if GPU:
        torch.cuda.empty_cache()
    torch._dynamo.reset()  # Reset the limit of recompilations, because each size compiles anew.
    hidden, heads, kv_heads, ffn = sizes
    layer = Layer(hidden, heads, kv_heads, ffn, seq, "fp8" in mode)
    run: Callable[[Tensor], Tensor] = layer if mode == "eager" else torch.compile(layer, dynamic=False)
    x, gradient = random(samples, seq, sizes[0]).requires_grad_(), random(samples, seq, sizes[0])
    shape, flops = f"llama3-{name}, samples={samples}, seq={seq}", layer_flops(sizes, samples, seq)
    started = time.monotonic()
    weight_bytes = sum(p.nbytes for p in layer.parameters())
    forward, backward, kept, peak = [], [], 0, 0

    def step(marks: list[Any]) -> None:
        nonlocal kept, peak
        layer.zero_grad(set_to_none=True)
        x.grad = None
        before = allocated()
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        record(marks, 0)
        y = run(x)
        record(marks, 1)
        kept = allocated() - before - y.nbytes
        y.backward(gradient)
        record(marks, 2)
        del y
        peak = (torch.cuda.max_memory_allocated() if GPU else 0) - before

    for _ in range(WARM_UPS):
        step(events(3))
    if GPU:
        torch.cuda.synchronize()
    print(f"{shape} {mode}: {time.monotonic() - started:.0f} s to compile and warm up", flush=True)
    for _ in range(REPEATS):
        marks = events(3)
        step(marks)
        forward.append(between_us(marks, 0, 1))
        backward.append(between_us(marks, 1, 2))
    more = {"mode": mode, "kept_bytes": kept, "peak_bytes": peak, "weight_bytes": weight_bytes}
    rows.add("layer_forward", shape, flops, 0, statistics.median(forward), **more)
    rows.add("layer_backward", shape, 2 * flops, 0, statistics.median(backward), **more)
    if GPU:
        profile_kernels(rows, shape, mode, lambda: step(events(3)))


def profile_kernels(rows: Rows, shape: str, mode: str, step: Callable[[], None]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    kernels = [e for e in profile.key_averages() if e.self_device_time_total > 0]
    kernels.sort(key=lambda e: -e.self_device_time_total)
    total, count = sum(e.self_device_time_total for e in kernels), sum(e.count for e in kernels)
    rows.add("layer_kernels", shape, 0, 0, total, mode=mode, launches=count)
    for e in kernels[:PROFILED_KERNELS]:
        name = e.key[:120].replace(";", ",")
        rows.add("kernel", shape, 0, 0, e.self_device_time_total, mode=mode, launches=e.count, name=name)


def layers_in(mode: str) -> Callable[[Rows, bool], None]:
    def layers(rows: Rows, tiny: bool) -> None:
        if tiny:
            return layer_rows(rows, "8B", TINY_LAYERS["8B"], 1, 64, mode)
        for name, samples in (("8B", 2), ("70B", 1), ("8B", 1), ("70B", 2)):
            layer_rows(rows, name, LAYERS[name], samples, 8192, mode)
        return None

    return layers


def grouped(rows: Rows, tiny: bool) -> None:
    """Measure experts' products in one call, forward and weight gradient, and one plain product of all rows."""
    sizes = {
        "deepseek-v3 up": (7168, 2048),
        "deepseek-v3 down": (2048, 7168),
        "mixtral up": (4096, 14336),
        "mixtral down": (14336, 4096),
    }
    if tiny:
        sizes = {"tiny": (64, 128)}
    for k, n in sizes.values():
        for total in (256,) if tiny else (4096, 16384, 65536):
            x, gradient, plain = random(total, k), random(total, n), random(n, k)
            flops, moved = 2.0 * total * k * n, 2 * total * (k + n)
            shape, needed = f"m={total}, k={k}, n={n}", moved + 2 * k * n
            rows.measure("matmul", shape, flops, needed, partial(by_weight, x, plain), layout="forward")
            for experts in (4,) if tiny else (8,) if n * k > 2e7 else (8, 16, 32, 64):
                weight = random(experts, n, k)
                shape, needed = f"experts={experts}, rows={total}, k={k}, n={n}", moved + 2 * experts * k * n
                for balanced in (True, False):
                    ends = ends_of(total, experts, balanced)
                    largest = int(torch.diff(ends, prepend=torch.zeros_like(ends[:1])).max())
                    call = partial(torch._grouped_mm, x, weight.transpose(1, 2), offs=ends)
                    rows.measure("grouped_mm", shape, flops, needed, call, balanced=balanced, largest=largest)
                call = partial(torch._grouped_mm, gradient.t(), x, offs=ends_of(total, experts, True))
                rows.measure("grouped_mm_weight_gradient", shape, flops, needed, call)


def ends_of(total: int, experts: int, balanced: bool) -> Tensor:
    """Return the last row + 1 of each expert. Unbalanced shares are random multiples of 16 rows."""
    share = torch.ones(experts) if balanced else torch.rand(experts) + 0.1
    ends = (torch.cumsum(share / share.sum(), 0) * (total // 16)).round().to(torch.int32) * 16
    return ends.to(DEVICE)


def attention(rows: Rows, tiny: bool) -> None:
    """Measure causal attention of 32 heads of 128 channels: flash, and written out with softmax."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def written_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 + mask
        return scores.float().softmax(-1).to(q.dtype) @ v

    def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION if GPU else SDPBackend.MATH):
            return fn.scaled_dot_product_attention(q, k, v, is_causal=True)

    for seq, heads in ((64, 2),) if tiny else ((2048, 32), (8192, 32)):
        q, k, v, gradient = (random(1, heads, seq, 128) for _ in range(4))
        mask = torch.full((seq, seq), float("-inf"), device=DEVICE, dtype=BF16).triu(1)
        shape, flops = f"samples=1, heads={heads}, seq={seq}, head_dim=128", 2.0 * heads * seq * seq * 128
        needed = 4 * q.nbytes
        rows.measure("flash_attention", shape, flops, needed, lambda: flash(q, k, v))  # noqa: B023
        rows.measure("attention_written_out", shape, 2 * flops, needed, lambda: written_out(q, k, v, mask))  # noqa: B023
        for x in (q, k, v):
            x.requires_grad_()
        for op, y, times in (
            ("flash_attention_grad", flash(q, k, v), 2.5),
            ("attention_written_out_grad", written_out(q, k, v, mask), 4),
        ):
            call = partial(torch.autograd.grad, y, (q, k, v), gradient, retain_graph=True)
            rows.measure(op, shape, times * flops, 2 * needed, call)


ATTENTIONS = (
    *((2, 32, 8192, 128), (4, 32, 2048, 128), (8, 32, 1024, 128), (1, 32, 4096, 128), (1, 32, 32768, 128)),
    *((1, 16, 8192, 128), (4, 16, 8192, 64), (4, 16, 2048, 64), (16, 25, 1024, 64), (2, 32, 2048, 80)),
)
"""Samples, heads, positions, and channels per head."""


def attention_kernels(rows: Rows, tiny: bool) -> None:
    """Measure causal attention by cuDNN's kernel and by FlashAttention 2, PyTorch's FLASH_ATTENTION."""
    from torch.nn.attention import SDPBackend

    fast = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    for sizes in ((1, 2, 64, 16),) if tiny else ATTENTIONS:
        for kernel, backend in fast.items() if GPU else (("math", SDPBackend.MATH),):
            attention_rows(rows, sizes, kernel, backend)


def attention_rows(rows: Rows, sizes: tuple[int, int, int, int], kernel: str, backend: Any) -> None:
    from torch.nn.attention import sdpa_kernel

    samples, heads, seq, size = sizes
    q, k, v = (random(samples, seq, heads, size).transpose(1, 2).requires_grad_() for _ in range(3))

    def forward() -> Tensor:
        with sdpa_kernel(backend):
            return fn.scaled_dot_product_attention(q, k, v, is_causal=True)

    y, gradient = forward(), torch.randn_like(q)
    shape, flops = f"batch={samples}, heads={heads}, sequence={seq}, head_size={size}", 2.0 * seq * q.numel()
    rows.measure("attention_fwd", shape, flops, 4 * q.nbytes, forward, kernel=kernel, causal=1)
    backward = partial(torch.autograd.grad, y, (q, k, v), gradient, retain_graph=True)
    rows.measure("attention_bwd", shape, 2.5 * flops, 8 * q.nbytes, backward, kernel=kernel, causal=1)


def bandwidth(rows: Rows, tiny: bool) -> None:
    """Measure copies, sums, RMSNorm and SwiGLU's product, eager and compiled."""
    norm = fn.rms_norm
    for m, n in ((64, 256),) if tiny else ((1024, 4096), (16384, 4096), (16384, 14336), (65536, 8192)):
        x, y, w = random(m, n), random(m, n), random(n)
        shape, size = f"m={m}, n={n}", x.nbytes
        rows.measure("copy", shape, 0, 2 * size, lambda: y.copy_(x))  # noqa: B023
        rows.measure("add", shape, m * n, 3 * size, lambda: x + y)  # noqa: B023
        rows.measure("rms_norm", shape, 4 * m * n, 2 * size, lambda: norm(x, (n,), w, 1e-5), mode="eager")  # noqa: B023
        fused = torch.compile(lambda x, w, n=n: norm(x, (n,), w, 1e-5), dynamic=False)
        rows.measure("rms_norm", shape, 4 * m * n, 2 * size, partial(fused, x, w), mode="compiled")
        swiglu = torch.compile(lambda x, y: fn.silu(x) * y, dynamic=False)
        rows.measure("swiglu", shape, 4 * m * n, 5 * size, lambda: fn.silu(x) * y, mode="eager")  # noqa: B023
        rows.measure("swiglu", shape, 4 * m * n, 3 * size, partial(swiglu, x, y), mode="compiled")


def launches(rows: Rows, tiny: bool) -> None:
    """Measure how long the host takes to launch a kernel.

    The row is the time per kernel of a chain of small kernels that no compiler fuses.
    """
    x, w, steps = random(64, 64), random(64, 64), 100

    def chain(x: Tensor) -> Tensor:
        for _ in range(steps):
            x = (x @ w).sin()
        return x

    for mode, call in (("eager", chain), ("compiled", torch.compile(chain, dynamic=False))):
        us = time_us(partial(call, x), ahead=False)
        rows.add("launch_chain", f"kernels={2 * steps}", 0, 0, us, mode=mode)


SECTIONS: dict[str, Callable[[Rows, bool], None]] = {
    "products": products,
    "bandwidth": bandwidth,
    "attention": attention,
    "attention kernels": attention_kernels,
    "grouped": grouped,
    "eager layers": layers_in("eager"),
    "launches": launches,
    "compiled layers": layers_in("compiled"),
    "casts": casts,
    "compiled fp8 layers": layers_in("compiled fp8"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="CSV file to write")
    parser.add_argument("--seconds", type=float, default=310, help="number of seconds after which no row starts")
    parser.add_argument(
        "--tiny", action="store_true", help="use small shapes, to check the script; works without a GPU"
    )
    arguments = parser.parse_args()
    rows = Rows(arguments.output, arguments.seconds)
    print(torch.__version__, torch.cuda.get_device_name() if GPU else "no GPU", flush=True)
    torch.manual_seed(0)
    for name, section in SECTIONS.items():
        started = time.monotonic()
        try:
            section(rows, arguments.tiny)
        except OutOfTimeError:
            print(f"out of time in section {name}", file=sys.stderr, flush=True)
        except Exception:  # Continue with the other sections.
            print(f"section {name} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        finally:
            if GPU:
                torch.cuda.empty_cache()
            print(f"section {name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
