"""GPTs on one device: training, the pass over a prompt, and one more token after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.program import Tag
from tessel_core.ir.types import TensorType
from tessel_core.networks.programs.gpt_layer import Cache, GptLayer, Weight, layer_weights
from tessel_core.networks.programs.gpt_spec import GptSpec

_SAMPLES = Role(batch_axis=0)


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
    return gpt.finish(
        [logits, *gpt.written], ["logits", *(f"l{i}.{what}" for i in range(spec.layers) for what in "kv")]
    )


class _Gpt:
    def __init__(self, name: str, spec: GptSpec, tokens: int) -> None:
        self.build, self.roles = ProgramBuilder(name), dict[str, Role]()
        self.written = list[int]()
        """Keys and values of each layer with the new ones."""
        self._spec = spec
        self._values: dict[str, int] = {}
        self._tokens = self.input("tokens", (spec.batch, tokens), _SAMPLES)
        self._positions = self.input("positions", (tokens,), Role())
        tables = {"embedding": spec.vocabulary, "position": spec.sequence}
        first = [Weight(table, (rows, spec.hidden), 1) for table, rows in tables.items()]
        layers = [weight for layer in range(spec.layers) for weight in layer_weights(spec, layer)]
        norm = [Weight("norm.scale", (spec.hidden,)), Weight("norm.shift", (spec.hidden,))]
        for weight in (*first, *layers, *norm, Weight("head", (spec.hidden, spec.vocabulary), 0)):
            self.input(weight.name, weight.shape, weight.role, spec.dtype)
        self._layers = [GptLayer(self.build, spec, layer, self._values) for layer in range(spec.layers)]

    def input(self, name: str, shape: tuple[int, ...], role: Role, dtype: str = "int32") -> int:
        self._values[name] = self.build.input(name, TensorType(dtype, shape, 1))
        self.roles[name] = role
        return self._values[name]

    def cache(self, layer: int, room: int, at: int) -> Cache:
        shape = self._spec.batch, room, self._spec.hidden
        role = Role(batch_axis=0, shard_axis=2, shard_grain=self._spec.head_size)
        keys, values = (self.input(f"l{layer}.{what}", shape, role, self._spec.dtype) for what in "kv")
        return Cache(keys, values, at)

    def layers_forward(self, caches: Sequence[Cache] = ()) -> list[int]:
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
            dx, gradients = layer.backward(dx)
            found |= gradients
        first = Tag(0, phase="backward")
        found["embedding"] = self.build.one("embedding_grad", [values["embedding"], self._tokens, dx], first)
        by_place = self.build.one("bias_grad", [dx], first, axes=2)
        found["position"] = self.build.one("embedding_grad", [values["position"], self._positions, by_place], first)
        return found

    def finish(self, outputs: Sequence[int], names: Sequence[str], kept: frozenset[int] = frozenset()) -> Distributed:
        """Outputs by name; inputs are called as they were taken."""
        program = self.build.finish(outputs)
        return Distributed(program, tuple(map(Piece, self._values)), tuple(map(Piece, names)), self.roles, kept)
