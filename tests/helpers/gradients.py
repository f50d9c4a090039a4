"""Derived gradients beside finite differences in float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from helpers.operators import EXAMPLES
from tessel_core.ir.definition import Definition
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import AttributeValue
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.verify import verify

_STEP = 1e-6


def check_gradients(forward: Distributed, given: Mapping[str, Array], also: tuple[str, ...] = ()) -> None:
    """Each derived gradient, in some random direction, is the central difference of the sum of all losses."""
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


def trained_through(kind: str, seed: int = 11) -> None:
    """A squared loss of all outputs of an operator's example, in float64, by all of its real inputs."""
    types, attributes = EXAMPLES[kind]
    values: dict[str, AttributeValue] = dict(attributes)
    net, given = Definition(kind), dict[str, Array]()
    draw = np.random.default_rng(seed)
    inputs, real = [], []
    for place, each in enumerate(types):
        name = f"x{place}"
        if each.dtype.startswith("fp"):
            real.append(name)
            inputs.append(net.weight(name, "fp64", each.shape))
            given[name] = draw.uniform(0.5, 1.5, each.shape)
        else:
            inputs.append(net.input(name, each.dtype, each.shape, Role()))
            given[name] = np.asarray(draw.integers(0, 2, each.shape))
    outputs = net.all("tried", kind, *inputs, **values)
    losses = {}
    for place, made in enumerate(outputs):
        z, n = net.input(f"z{place}", "fp64", net.type_of(made).shape), net.input(f"n{place}", "int32", ())
        given |= {f"z{place}": draw.normal(size=net.type_of(made).shape), f"n{place}": np.array(2)}
        losses[f"loss{place}"] = net(f"loss{place}", "loss", made, z, n)
    check_gradients(net.finish(losses), given)
    assert real
