"""One layer of a GPT, forward and backward, operation by operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Role
from tessel_core.ir.program import Tag
from tessel_core.networks.programs.gpt_spec import GptSpec


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter; tensor parallelism cuts it along `shard_axis` into whole groups of `grain`, or leaves it whole."""

    name: str
    shape: tuple[int, ...]
    shard_axis: int | None = None
    grain: int = 1

    @property
    def role(self) -> Role:
        """How it may be divided."""
        return Role(shard_axis=self.shard_axis, shard_grain=self.grain)


def layer_weights(spec: GptSpec, layer: int) -> list[Weight]:
    """Megatron-LM's division [Shoeybi 2019, section 3]: a product by columns, then one by rows, twice.

    Columns of `qkv` lie head by head, three times `head_size` each, so that every cut that divides the heads is whole.
    """
    h, head = spec.hidden, spec.head_size
    found = (
        Weight("norm1.scale", (h,)),
        Weight("norm1.shift", (h,)),
        Weight("qkv", (h, 3 * h), 1, 3 * head),
        Weight("qkv.bias", (3 * h,), 0, 3 * head),
        Weight("out", (h, h), 0, head),
        Weight("out.bias", (h,)),
        Weight("norm2.scale", (h,)),
        Weight("norm2.shift", (h,)),
        Weight("up", (h, 4 * h), 1),
        Weight("up.bias", (4 * h,), 0),
        Weight("down", (4 * h, h), 0),
        Weight("down.bias", (h,)),
    )
    return [replace(each, name=f"l{layer}.{each.name}") for each in found]


@dataclass(frozen=True, slots=True)
class Cache:
    """Where a layer's keys and values of earlier tokens are, and from which place on the new ones go."""

    keys: int
    values: int
    at: int


class GptLayer:
    """Writes a layer into a program; keeps what its forward made for its backward."""

    def __init__(self, build: ProgramBuilder, spec: GptSpec, layer: int, weights: Mapping[str, int]) -> None:
        self._build, self._spec, self._layer = build, spec, layer
        self._weights = weights
        self._made: dict[str, int] = {}

    def forward(self, x: int, cache: Cache | None = None) -> tuple[int, tuple[int, ...]]:
        """The layer's output, and the cache with the new keys and values in it where there is one."""
        made, tag, size = self._made, Tag(self._layer, phase="forward"), self._spec.head_size
        made["x"] = x
        made["normal1"] = self._norm("norm1", x, tag)
        q, k, v = self._build.add("unpack_qkv", [self._linear("qkv", made["normal1"], tag)], tag, head_size=size)
        seen = (k, v) if cache is None else self._written(cache, (k, v), tag)
        made["q"], made["k"], made["v"] = q, *seen
        made["attended"] = self._build.one("attention", [q, *seen], tag, causal=1, head_size=size)
        made["middle"] = self._added("out", made["attended"], x, tag)
        made["normal2"] = self._norm("norm2", made["middle"], tag)
        made["up"] = self._linear("up", made["normal2"], tag)
        made["active"] = self._build.one("gelu", [made["up"]], tag)
        return self._added("down", made["active"], made["middle"], tag), seen if cache is not None else ()

    def backward(self, dz: int) -> tuple[int, dict[str, int]]:
        """The gradients of the layer's input and of its weights, by the weights' names, from that of its output."""
        made, tag = self._made, Tag(self._layer, phase="backward")
        found: dict[str, int] = {}
        by_active = self._linear_grad("down", made["active"], dz, found)
        by_up = self._build.one("gelu_grad", [made["up"], by_active], tag)
        by_normal = self._linear_grad("up", made["normal2"], by_up, found)
        by_middle = self._build.one("add", [dz, self._norm_grad("norm2", made["middle"], by_normal, found)], tag)
        by_attended = self._linear_grad("out", made["attended"], by_middle, found)
        size = self._spec.head_size
        taken = [made["q"], made["k"], made["v"], by_attended]
        by_qkv = self._build.add("attention_grad", taken, tag, causal=1, head_size=size)
        packed = self._build.one("pack_qkv", by_qkv, tag, head_size=size)
        by_normal = self._linear_grad("qkv", made["normal1"], packed, found)
        return self._build.one("add", [by_middle, self._norm_grad("norm1", made["x"], by_normal, found)], tag), found

    def _named(self, name: str) -> str:
        return f"l{self._layer}.{name}"

    def _norm(self, name: str, x: int, tag: Tag) -> int:
        scale, shift = (self._weights[self._named(f"{name}.{part}")] for part in ("scale", "shift"))
        return self._build.one("layer_norm", [x, scale, shift], tag)

    def _linear(self, name: str, x: int, tag: Tag) -> int:
        weight, bias = self._weights[self._named(name)], self._weights[self._named(f"{name}.bias")]
        return self._build.one("linear", [x, weight, bias], tag)

    def _added(self, name: str, x: int, stream: int, tag: Tag) -> int:
        """The product with a weight that may be cut by rows: the bias comes after the sum over devices."""
        weight, bias = self._weights[self._named(name)], self._weights[self._named(f"{name}.bias")]
        return self._build.one("residual", [stream, self._build.one("matmul", [x, weight], tag), bias], tag)

    def _written(self, cache: Cache, new: tuple[int, int], tag: Tag) -> tuple[int, int]:
        pairs = zip((cache.keys, cache.values), new, strict=True)
        keys, values = (self._build.one("write", [old, each], tag, axis=1, at=cache.at) for old, each in pairs)
        return keys, values

    def _linear_grad(self, name: str, x: int, dz: int, found: dict[str, int]) -> int:
        tag = Tag(self._layer, phase="backward")
        weight, bias = self._named(name), self._named(f"{name}.bias")
        found[bias] = self._build.one("bias_grad", [dz], tag, axes=1)
        dx, found[weight] = self._build.add("matmul_grad", [x, self._weights[weight], dz], tag)
        return dx

    def _norm_grad(self, name: str, x: int, dz: int, found: dict[str, int]) -> int:
        tag = Tag(self._layer, phase="backward")
        scale, shift = (self._named(f"{name}.{part}") for part in ("scale", "shift"))
        dx, found[scale], found[shift] = self._build.add("layer_norm_grad", [x, self._weights[scale], dz], tag)
        return dx
