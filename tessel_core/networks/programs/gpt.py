"""GPTs on one device: their sizes, training, the pass over a prompt, and one more token after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError, find
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role, check_degree
from tessel_core.ir.program import Tag
from tessel_core.ir.types import TensorType, check_real

_SAMPLES = Role(batch_axis=0)
_Weights = dict[str, tuple[tuple[int, ...], Role]]
"""By name, the shape, and how tensor parallelism divides it."""


@dataclass(frozen=True, slots=True)
class GptSpec:
    """A decoder with learned positions, norms before each half of a layer, and an output projection of its own.

    Raises InputError for a size below 1, or a hidden size that the heads do not divide.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    """Tokens of a sample in training, and the most that have a position."""
    batch: int = 1
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "vocabulary", "sequence", "batch"):
            check_degree(name, getattr(self, name))
        if self.hidden % self.heads:
            raise InputError("heads", f"hidden size {self.hidden} does not divide into {self.heads} equal heads")
        check_real(self.dtype)

    @property
    def head_size(self) -> int:
        """Numbers per token and head."""
        return self.hidden // self.heads


def _published(layers: int, hidden: int, heads: int, sequence: int) -> GptSpec:
    """With the tokens of GPT-2 and GPT-3 [Radford 2019, section 2.2]."""
    return GptSpec(layers, hidden, heads, 50_257, sequence)


GPT_SPECS = {
    "gpt2": _published(12, 768, 12, 1024),
    "gpt2-medium": _published(24, 1024, 16, 1024),
    "gpt2-large": _published(36, 1280, 20, 1024),
    "gpt2-xl": _published(48, 1600, 25, 1024),
    "gpt3-125m": _published(12, 768, 12, 2048),
    "gpt3-350m": _published(24, 1024, 16, 2048),
    "gpt3-760m": _published(24, 1536, 16, 2048),
    "gpt3-1.3b": _published(24, 2048, 16, 2048),
    "gpt3-2.7b": _published(32, 2560, 32, 2048),
    "gpt3-6.7b": _published(32, 4096, 32, 2048),
    "gpt3-13b": _published(40, 5120, 40, 2048),
    "gpt3-175b": _published(96, 12_288, 96, 2048),
}
"""GPT-2 [Radford 2019, table 2] and GPT-3 [Brown 2020, table 2.1].  Of the latter's misprints: 1.3B has 16 heads of 128
where the table says 24, 13B is 40 heads of 128 = 5120 wide where it says 5140."""


def gpt_spec(name: str) -> GptSpec:
    """The published size of that name; InputError with the known names where there is none."""
    return find(GPT_SPECS, name, "model")


def gpt_training(spec: GptSpec) -> Distributed:
    """Forward, cross entropy of every token, backward; outputs are the losses and the gradients of all weights.

    Inputs are `tokens`, `positions` (0 … sequence - 1), `targets`, `n` (predictions of the whole batch, batch x
    sequence) and the weights.  The embeddings belong to the first layer, the last norm, the projection to the
    vocabulary and the loss to the last.  Tensor parallelism cuts the hidden side of embeddings and projection: that
    divides any vocabulary, where Megatron-LM's cut of a padded vocabulary need not sum up all logits.
    """
    gpt = _Gpt(f"gpt-{spec.layers}x{spec.hidden}", spec, spec.sequence)
    targets, n = gpt.input("targets", (spec.batch, spec.sequence), _SAMPLES), gpt.input("n", (), Role())
    x = gpt.layers_forward()
    final, logits = gpt.head_forward(x[-1])
    last = Tag(spec.layers - 1, phase="forward")
    loss = gpt.build.one("cross_entropy", [logits, targets, n], last)
    by_logits = gpt.build.one("cross_entropy_grad", [logits, targets, n], last)
    gradients = gpt.backward(x[-1], final, by_logits)
    gpt.roles["loss"] = _SAMPLES
    for weight in gradients:
        gpt.roles[f"d.{weight}"] = replace(gpt.roles[weight], gradient_of=weight)
    names = ["loss", *(f"d.{weight}" for weight in gradients)]
    return gpt.finish([loss, *gradients.values()], names, frozenset((*x, final, by_logits)))


def gpt_inference(spec: GptSpec, prompt: int | None = None) -> Distributed:
    """The pass over a prompt (prefill): logits of every token, and keys and values of every layer in the cache.

    Inputs are `tokens`, `positions` (0 … prompt - 1), a cache with room for the prompt, and the weights.  Without
    `prompt` it is as long as `spec.sequence`.
    """
    prompt = spec.sequence if prompt is None else prompt
    return _with_cache(f"gpt-{spec.layers}x{spec.hidden}-prefill", spec, prompt, 0)


def gpt_decode(spec: GptSpec, context: int) -> Distributed:
    """One more token after `context` ones, whose keys and values are in the cache: the token's logits, and the cache.

    Inputs are `tokens` [batch, 1], `positions` ([context]), a cache with room for context + 1, and the weights.
    """
    return _with_cache(f"gpt-{spec.layers}x{spec.hidden}-decode", spec, 1, context)


def _with_cache(name: str, spec: GptSpec, new: int, before: int) -> Distributed:
    if before < 0 or new < 1 or before + new > spec.sequence:
        raise InputError("tokens", f"{before} and {new} more must be at most the {spec.sequence} that have a position")
    gpt = _Gpt(name, spec, new)
    caches = [gpt.cache(layer, before + new, before) for layer in range(spec.layers)]
    _, logits = gpt.head_forward(gpt.layers_forward(caches)[-1])
    gpt.roles["logits"] = _SAMPLES
    names = ["logits", *(f"l{i}.{what}" for i in range(spec.layers) for what in "kv")]
    return gpt.finish([logits, *gpt.written], names)


class _Gpt:
    def __init__(self, name: str, spec: GptSpec, tokens: int) -> None:
        self.build, self.roles = ProgramBuilder(name), dict[str, Role]()
        self.written = list[int]()
        """Keys and values of each layer with the new ones."""
        self._spec = spec
        self._values: dict[str, int] = {}
        self._tokens = self.input("tokens", (spec.batch, tokens), _SAMPLES)
        self._positions = self.input("positions", (tokens,), Role())
        h, whole = spec.hidden, Role()
        weights: _Weights = {"embedding": ((spec.vocabulary, h), _cut(1)), "position": ((spec.sequence, h), _cut(1))}
        for layer in range(spec.layers):
            weights |= {f"l{layer}.{name}": weight for name, weight in _layer_weights(spec).items()}
        weights |= {"norm.scale": ((h,), whole), "norm.shift": ((h,), whole), "head": ((h, spec.vocabulary), _cut(0))}
        for name_of_weight, (shape, role) in weights.items():
            self.input(name_of_weight, shape, role, spec.dtype)
        self._layers = [_Layer(self.build, spec.head_size, layer, self._values) for layer in range(spec.layers)]

    def input(self, name: str, shape: tuple[int, ...], role: Role, dtype: str = "int32") -> int:
        self._values[name] = self.build.input(name, TensorType(dtype, shape, 1))
        self.roles[name] = role
        return self._values[name]

    def cache(self, layer: int, room: int, at: int) -> _Cache:
        shape = self._spec.batch, room, self._spec.hidden
        role = Role(batch_axis=0, shard_axis=2, shard_grain=self._spec.head_size)
        keys, values = (self.input(f"l{layer}.{what}", shape, role, self._spec.dtype) for what in "kv")
        return _Cache(keys, values, at)

    def layers_forward(self, caches: Sequence[_Cache] = ()) -> list[int]:
        """The embedded tokens, and what each layer makes of them."""
        first, values = Tag(0, phase="forward"), self._values
        embedded = self.build.one("embedding", [values["embedding"], self._tokens], first)
        places = self.build.one("embedding", [values["position"], self._positions], first)
        passed = [self.build.one("bias", [embedded, places], first)]
        for i, layer in enumerate(self._layers):
            x, written = layer.forward(passed[-1], caches[i] if caches else None)
            passed.append(x)
            self.written += written
        return passed

    def head_forward(self, x: int) -> tuple[int, int]:
        """The last norm, and the logits."""
        last, values = Tag(self._spec.layers - 1, phase="forward"), self._values
        final = self.build.one("layer_norm", [x, values["norm.scale"], values["norm.shift"]], last)
        return final, self.build.one("matmul", [final, values["head"]], last)

    def backward(self, x: int, final: int, by_logits: int) -> dict[str, int]:
        """Per weight, its gradient, in the order in which they are made."""
        last, values, found = Tag(self._spec.layers - 1, phase="backward"), self._values, dict[str, int]()
        by_final, found["head"] = self.build.add("matmul_grad", [final, values["head"], by_logits], last)
        made = self.build.add("layer_norm_grad", [x, values["norm.scale"], by_final], last)
        dx, found["norm.scale"], found["norm.shift"] = made
        for layer in reversed(self._layers):
            dx = layer.backward(dx)
            found |= layer.gradients
        first = Tag(0, phase="backward")
        found["embedding"] = self.build.one("embedding_grad", [values["embedding"], self._tokens, dx], first)
        by_place = self.build.one("bias_grad", [dx], first, axes=2)
        found["position"] = self.build.one("embedding_grad", [values["position"], self._positions, by_place], first)
        return found

    def finish(self, outputs: Sequence[int], names: Sequence[str], kept: frozenset[int] = frozenset()) -> Distributed:
        """Outputs by name; inputs are called as they were taken."""
        program = self.build.finish(outputs)
        return Distributed(program, tuple(map(Piece, self._values)), tuple(map(Piece, names)), self.roles, kept)


def _cut(axis: int, grain: int = 1) -> Role:
    """Tensor parallelism cuts a weight along `axis` into whole groups of `grain`."""
    return Role(shard_axis=axis, shard_grain=grain)


def _layer_weights(spec: GptSpec) -> _Weights:
    """Megatron-LM's division [Shoeybi 2019, section 3]: a product by columns, then one by rows, twice.

    Columns of `qkv` lie head by head, three times `head_size` each, so that every cut that divides the heads is whole.
    """
    h, head, whole = spec.hidden, spec.head_size, Role()
    return {
        "norm1.scale": ((h,), whole),
        "norm1.shift": ((h,), whole),
        "qkv": ((h, 3 * h), _cut(1, 3 * head)),
        "qkv.bias": ((3 * h,), _cut(0, 3 * head)),
        "out": ((h, h), _cut(0, head)),
        "out.bias": ((h,), whole),
        "norm2.scale": ((h,), whole),
        "norm2.shift": ((h,), whole),
        "up": ((h, 4 * h), _cut(1)),
        "up.bias": ((4 * h,), _cut(0)),
        "down": ((4 * h, h), _cut(0)),
        "down.bias": ((h,), whole),
    }


@dataclass(frozen=True, slots=True)
class _Cache:
    """Where a layer's keys and values of earlier tokens are, and from which place on the new ones go."""

    keys: int
    values: int
    at: int


class _Layer:
    """Writes a layer into a program; keeps what its forward made for its backward."""

    def __init__(self, build: ProgramBuilder, head_size: int, layer: int, weights: Mapping[str, int]) -> None:
        self._build, self._head_size, self._weights = build, head_size, weights
        self._prefix = f"l{layer}."
        self._forward, self._backward = Tag(layer, phase="forward"), Tag(layer, phase="backward")
        self._made: dict[str, int] = {}
        self.gradients: dict[str, int] = {}
        """By the names of the weights, in the order in which `backward` makes them."""

    def forward(self, x: int, cache: _Cache | None = None) -> tuple[int, tuple[int, ...]]:
        """The layer's output, and the cache with the new keys and values in it where there is one."""
        build, tag, made, size = self._build, self._forward, self._made, self._head_size
        made["x"] = x
        made["normal1"] = self._norm("norm1", x)
        q, k, v = build.add("unpack_qkv", [self._linear("qkv", made["normal1"])], tag, head_size=size)
        seen = (k, v) if cache is None else self._written(cache, k, v)
        made["q"], made["k"], made["v"] = q, *seen
        made["attended"] = build.one("attention", [q, *seen], tag, causal=1, head_size=size)
        made["middle"] = self._added("out", made["attended"], x)
        made["normal2"] = self._norm("norm2", made["middle"])
        made["up"] = self._linear("up", made["normal2"])
        made["active"] = build.one("gelu", [made["up"]], tag)
        return self._added("down", made["active"], made["middle"]), () if cache is None else seen

    def backward(self, dz: int) -> int:
        """The gradient of the layer's input, from that of its output."""
        build, tag, made, size = self._build, self._backward, self._made, self._head_size
        by_active = self._linear_grad("down", made["active"], dz)
        by_up = build.one("gelu_grad", [made["up"], by_active], tag)
        by_normal = self._linear_grad("up", made["normal2"], by_up)
        by_middle = build.one("add", [dz, self._norm_grad("norm2", made["middle"], by_normal)], tag)
        by_attended = self._linear_grad("out", made["attended"], by_middle)
        taken = [made["q"], made["k"], made["v"], by_attended]
        by_qkv = build.add("attention_grad", taken, tag, causal=1, head_size=size)
        packed = build.one("pack_qkv", by_qkv, tag, head_size=size)
        by_normal = self._linear_grad("qkv", made["normal1"], packed)
        return build.one("add", [by_middle, self._norm_grad("norm1", made["x"], by_normal)], tag)

    def _weight(self, name: str) -> int:
        return self._weights[self._prefix + name]

    def _norm(self, name: str, x: int) -> int:
        taken = [x, self._weight(f"{name}.scale"), self._weight(f"{name}.shift")]
        return self._build.one("layer_norm", taken, self._forward)

    def _linear(self, name: str, x: int) -> int:
        return self._build.one("linear", [x, self._weight(name), self._weight(f"{name}.bias")], self._forward)

    def _added(self, name: str, x: int, stream: int) -> int:
        """The product with a weight that may be cut by rows: the bias comes after the sum over devices."""
        product = self._build.one("matmul", [x, self._weight(name)], self._forward)
        return self._build.one("residual", [stream, product, self._weight(f"{name}.bias")], self._forward)

    def _written(self, cache: _Cache, keys: int, values: int) -> tuple[int, int]:
        pairs = (cache.keys, keys), (cache.values, values)
        keys, values = (self._build.one("write", pair, self._forward, axis=1, at=cache.at) for pair in pairs)
        return keys, values

    def _linear_grad(self, name: str, x: int, dz: int) -> int:
        name = self._prefix + name
        self.gradients[f"{name}.bias"] = self._build.one("bias_grad", [dz], self._backward, axes=1)
        dx, self.gradients[name] = self._build.add("matmul_grad", [x, self._weights[name], dz], self._backward)
        return dx

    def _norm_grad(self, name: str, x: int, dz: int) -> int:
        taken = [x, self._weight(f"{name}.scale"), dz]
        by_input, by_scale, by_shift = self._build.add("layer_norm_grad", taken, self._backward)
        self.gradients |= {f"{self._prefix}{name}.scale": by_scale, f"{self._prefix}{name}.shift": by_shift}
        return by_input
