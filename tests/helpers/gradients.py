"""Compare derived gradients with finite differences in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from helpers.operators import EXAMPLES
from tessel_core.ir.definition import Definition
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.ir.operators.arrays import NUMPY_TYPES
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Attributes, AttributeValue
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.types import TensorType
from tessel_core.ir.verify import verify

_STEP = 1e-6


def check_gradients(forward: Distributed, given: Mapping[str, Array], also: tuple[str, ...] = ()) -> None:
    """Assert that each derived gradient, in a random direction, equals the central difference of the sum of losses."""
    model = Gradients(also=also)(forward)
    verify(model.program)
    found = {piece.name: array for piece, array in model.run(given)}
    asked = [name.removeprefix("d.") for name in found if name.startswith("d.")]
    assert asked
    draw = np.random.default_rng(7)
    for name in asked:
        way = draw.normal(size=given[name].shape)
        losses = []
        for sign in (1, -1):
            moved = {**given, name: given[name] + sign * _STEP * way}
            losses.append(sum(float(array.sum()) for _, array in forward.run(moved)))
        wanted = (losses[0] - losses[1]) / (2 * _STEP)
        slope = float((found[f"d.{name}"] * way).sum())
        scale = max(1.0, float(np.abs(found[f"d.{name}"] * way).sum()))
        assert abs(slope - wanted) <= 1e-6 * scale, (name, slope, wanted)


Case = tuple[str, Sequence[TensorType], Attributes]
"""A kind of operator, the types of its inputs, and its attributes."""


def example(kind: str) -> Case:
    """Return the example of an operator; casts are to a real number format."""
    types, attributes = EXAMPLES[kind]
    return kind, types, (("dtype", "fp64"),) if kind == "cast" else attributes


def trained(case: Case, low: float, used: slice = slice(None), seed: int = 11) -> tuple[Distributed, dict[str, Array]]:
    """Return a program with the squared loss of one operator in float64 whose real inputs are weights, and its inputs.

    Real numbers are drawn between `low` and max(1.5, -low).
    """
    kind, types, attributes = case
    values: dict[str, AttributeValue] = dict(attributes)
    net, given = Definition(kind), dict[str, Array]()
    draw = np.random.default_rng(seed)
    inputs = []
    for place, each in enumerate(types):
        name = f"x{place}"
        if each.dtype.startswith("fp"):
            inputs.append(net.weight(name, "fp64", each.shape))
            given[name] = draw.uniform(low, max(1.5, -low), each.shape)
        else:
            inputs.append(net.input(name, each.dtype, each.shape, Role()))
            given[name] = np.asarray(draw.integers(0, 2, each.shape)).astype(NUMPY_TYPES[each.dtype])
    losses = {}
    for place, made in enumerate(net.all("tried", kind, *inputs, **values)[used]):
        if not net.type_of(made).dtype.startswith("fp"):
            continue
        z, n = net.input(f"z{place}", "fp64", net.type_of(made).shape), net.input(f"n{place}", "int32", ())
        given |= {f"z{place}": draw.normal(size=net.type_of(made).shape), f"n{place}": np.array(2)}
        losses[f"loss{place}"] = net(f"loss{place}", "loss", made, z, n)
    return net.finish(losses), given
