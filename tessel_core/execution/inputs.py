"""Inputs of a program: random numbers for each tensor of the undistributed network.

Each tensor has its own random stream, derived from the seed. So a rank draws only the tensors that it holds, and the
numbers do not depend on the strategy.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, auto

import numpy as np

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.arrays import NUMPY_TYPES
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import REAL, TensorType

_NO_LIMIT = 2**31 - 1
"""Limit for tensors whose numbers are not row numbers."""


class Drawn(StrEnum):
    """Distribution of a tensor's numbers."""

    SAMPLES = auto()
    """Normal with mean 0 and variance 1."""
    WEIGHTS = auto()
    """Normal with mean 0, scaled so that products keep the magnitude of their factors."""
    SCALE = auto()
    """Normal with mean 1 and standard deviation 0.2."""
    POSITIVE = auto()
    """Uniform between 0.5 and 1.5."""
    ZEROS = auto()
    ROWS = auto()
    """Random integers from 0 to `limit` - 1, used as row numbers."""
    NUMBERS = auto()
    """Random integers 1, 2 or 3, or booleans."""
    PLACES = auto()
    """Consecutive integers 0, 1, 2 … modulo `limit`, used as positions."""
    COUNT = auto()
    """The constant `limit`."""
    STEP = auto()
    """Number of the step, from 1."""
    COPY = auto()
    """A copy of the initial values of another tensor."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Type of one tensor, and how its numbers are drawn."""

    type: TensorType
    how: Drawn
    limit: int = 0
    of: str = ""
    """Name of the tensor that is copied."""
    each_step: bool = False
    """Whether every step draws new numbers."""


@dataclass(frozen=True)
class SeededInputs:
    """Inputs of an undistributed network, by name."""

    recipes: Mapping[str, Recipe]
    seed: int

    def whole(self, name: str, step: int) -> Array:
        """Return the whole tensor with its values at the start of step `step`, counted from 0."""
        recipe = self.recipes[name]
        if recipe.how is Drawn.COPY:
            return self.whole(recipe.of, step).astype(NUMPY_TYPES[recipe.type.dtype])
        if recipe.how is Drawn.STEP:
            return np.asarray(step + 1, NUMPY_TYPES[recipe.type.dtype])
        stream = self.seed, step if recipe.each_step else 0, zlib.crc32(name.encode())
        return _drawn(recipe, np.random.default_rng(stream)).astype(NUMPY_TYPES[recipe.type.dtype])

    def some(self, names: Iterable[str]) -> SeededInputs:
        """Return the inputs with these names, and those from which they are copied, as a new object."""
        asked = set(names)
        asked |= {self.recipes[name].of for name in asked} - {""}
        return replace(self, recipes={name: self.recipes[name] for name in sorted(asked)})

    def changes(self, name: str) -> bool:
        """Return whether every step draws new numbers for this tensor."""
        return self.recipes[name].each_step


def seeded_inputs(model: Distributed, seed: int) -> SeededInputs:
    """Choose random inputs for an undistributed model that suit the operations that use them.

    Token ids, classes and positions are within their range, scales are about 1, and variances are positive.  Optimizer
    moments start at 0, and master weights as copies of their weights.  Inputs whose role has a batch axis are samples
    and are drawn again for every step.
    """
    program, known = model.program, _required_recipes(model.program)
    name_of = {value: piece.name for value, piece in model.piece_of.items()}
    recipes = dict[str, Recipe]()
    for value, name in name_of.items():
        of_type, role = program.types[value], model.roles.get(name)
        samples = role is not None and role.batch_axis is not None
        recipe = known.get(value)
        if recipe is None:
            recipe = Recipe(of_type, _default_distribution(of_type, samples=samples))
        elif recipe.how is Drawn.COPY:
            recipe = replace(recipe, of=name_of[int(recipe.of)])
        elif recipe.how is Drawn.ROWS and role is not None and not samples:
            recipe = replace(recipe, how=Drawn.PLACES)
        recipes[name] = replace(recipe, type=of_type, each_step=samples or recipe.how is Drawn.STEP)
    return SeededInputs(recipes, seed)


def _default_distribution(of_type: TensorType, *, samples: bool) -> Drawn:
    if of_type.dtype not in REAL:
        return Drawn.NUMBERS
    if samples:
        return Drawn.SAMPLES
    return Drawn.WEIGHTS if of_type.shape else Drawn.POSITIVE


def _weights(shape: tuple[int, ...], draw: np.random.Generator) -> Array:
    widest = max(shape[0], math.prod(shape[1:]), 1)
    return draw.standard_normal(shape) * (1 / math.sqrt(widest) if len(shape) > 1 else 0.2)


def _drawn(recipe: Recipe, draw: np.random.Generator) -> Array:
    shape, limit = recipe.type.shape, max(recipe.limit, 1)
    ways: dict[Drawn, Callable[[], object]] = {
        Drawn.SAMPLES: lambda: draw.standard_normal(shape),
        Drawn.WEIGHTS: lambda: _weights(shape, draw),
        Drawn.SCALE: lambda: 1 + 0.2 * draw.standard_normal(shape),
        Drawn.POSITIVE: lambda: draw.uniform(0.5, 1.5, shape),
        Drawn.ZEROS: lambda: np.zeros(shape),
        Drawn.ROWS: lambda: draw.integers(0, limit, shape),
        Drawn.NUMBERS: lambda: (
            draw.integers(0, 2, shape) if recipe.type.dtype == "bool" else draw.integers(1, 4, shape)
        ),
        Drawn.PLACES: lambda: np.arange(recipe.type.elements).reshape(shape) % limit,
        Drawn.COUNT: lambda: recipe.limit,
    }
    return np.asarray(ways[recipe.how]())


_PASSING = frozenset(
    "identity cast reshape transpose permute expand slice part split after split_at send broadcast scatter".split()  # noqa: SIM905
)
"""Operations that only move or convert the numbers of their first input."""


def _required_recipes(program: Program) -> dict[int, Recipe]:
    """Return the recipe for each input whose numbers must be of a particular kind, such as row numbers."""
    given = frozenset(program.inputs)
    origin = {value: value for value in given}
    recipes = dict[int, Recipe]()
    for op in program.ops:
        if op.kind in _PASSING and op.inputs[0] in origin:
            origin.update(dict.fromkeys(op.outputs, origin[op.inputs[0]]))
        for place, recipe in _needs(op, program):
            value = origin.get(op.inputs[place])
            if value is None or (recipe.how is Drawn.COPY and int(recipe.of) not in given):
                continue
            before = recipes.get(value, recipe)
            recipes[value] = replace(recipe, limit=min(before.limit, recipe.limit))
    return recipes


def _needs(op: Op, program: Program) -> Iterator[tuple[int, Recipe]]:
    """Yield the position and recipe of each input for which an operation needs particular numbers."""
    types = program.types_of(op.inputs)
    if op.kind == "take_grad":
        size = dict(op.attributes)["size"]
        assert isinstance(size, int)
        yield 0, Recipe(types[0], Drawn.ROWS, size)
        return
    match op.kind.removesuffix("_grad"):
        case "embedding":
            yield 1, Recipe(types[1], Drawn.ROWS, types[0].shape[0])
        case "take":
            axis = dict(op.attributes)["axis"]
            assert isinstance(axis, int)
            yield 1, Recipe(types[1], Drawn.ROWS, types[0].shape[axis])
        case "cross_entropy":
            yield 1, Recipe(types[1], Drawn.ROWS, types[0].shape[-1])
            yield 2, Recipe(types[2], Drawn.COUNT, types[1].elements)
        case "loss":
            yield 2, Recipe(types[2], Drawn.COUNT, types[0].shape[0] if types[0].shape else 1)
        case "layer_norm" | "layer_normalization" | "rms_norm" | "batch_norm_training":
            yield 1, Recipe(types[1], Drawn.SCALE, _NO_LIMIT)
        case "batch_norm":
            yield 1, Recipe(types[1], Drawn.SCALE, _NO_LIMIT)
            yield 4, Recipe(types[4], Drawn.POSITIVE, _NO_LIMIT)
        case "adam":
            yield from _adam_needs(op, types)


def _adam_needs(op: Op, types: tuple[TensorType, ...]) -> Iterator[tuple[int, Recipe]]:
    masters = dict(op.attributes)["masters"]
    assert isinstance(masters, int)
    many = (len(types) - 1) // (4 + masters)
    for place in range(many, many * (1 + masters)):
        yield place, Recipe(types[place], Drawn.COPY, of=str(op.inputs[place - many]))
    for place in range(many * (1 + masters), many * (3 + masters)):
        yield place, Recipe(types[place], Drawn.ZEROS)
    yield len(types) - 1, Recipe(types[-1], Drawn.STEP)
