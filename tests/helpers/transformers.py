"""Operator graphs of transformers of any size, with round numbers."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.model import CPU, DeviceTime, Edge, Operator, OperatorGraph

_LAYER = (
    ("attention/norm", ("in",)),
    ("attention/q", ("attention/norm",)),
    ("attention/k", ("attention/norm",)),
    ("attention/v", ("attention/norm",)),
    ("attention/scores", ("attention/q", "attention/k")),
    ("attention/softmax", ("attention/scores",)),
    ("attention/context", ("attention/softmax", "attention/v")),
    ("attention/out", ("attention/context",)),
    ("attention/add", ("in", "attention/out")),
    ("mlp/norm", ("attention/add",)),
    ("mlp/up", ("mlp/norm",)),
    ("mlp/gelu", ("mlp/up",)),
    ("mlp/down", ("mlp/gelu",)),
    ("mlp/add", ("attention/add", "mlp/down")),
)
OPERATORS_PER_LAYER = len(_LAYER)


def transformer(layers: int, *, training: bool = False) -> OperatorGraph:
    """Return `layers` layers of 14 operators between an embedding and a head; in training, with a mirrored backward."""
    operators, edges, last = [_operator("embed/tokens", 0)], [], "embed/tokens"
    for layer in range(layers):
        for number, (name, takes) in enumerate(_LAYER):
            operators.append(_operator(f"layer{layer}/{name}", number))
            edges += [(last if each == "in" else f"layer{layer}/{each}", operators[-1].name) for each in takes]
        last = operators[-1].name
    operators.append(_operator("head/logits", 3))
    edges.append((last, "head/logits"))
    if training:
        mirror = [replace(each, name=f"{each.name}'", backward=True, forward_of=each.name) for each in operators]
        edges += [(f"{b}'", f"{a}'") for a, b in edges] + [(each.name, f"{each.name}'") for each in operators]
        operators += mirror
    return OperatorGraph("transformer", tuple(operators), tuple(Edge(a, b, bytes=1_000_000) for a, b in edges))


def _operator(name: str, number: int) -> Operator:
    return Operator(
        name,
        kind=name.rsplit("/", 1)[-1],
        times=(DeviceTime("h200", 1e-3 * (number + 1)), DeviceTime(CPU, 1e-2)),
        flops=1e9 * number,
        weight_bytes=10**6 * number,
        activation_bytes=10**6,
        output_bytes=10**6,
    )
