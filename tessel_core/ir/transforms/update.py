"""The optimizer's step, at the end of a training program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.program import Tag
from tessel_core.ir.types import TensorType

UPDATE = Tag(phase="update")
NARROW = ("fp16", "bf16")
"""Formats of weights that an optimizer keeps a master copy of, in fp32 [Micikevicius 2018]."""

Output = tuple[int, Piece]
"""A value, and which piece of which tensor it is."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight, or a part of one, on a device, and its gradient there."""

    weight: int
    gradient: int
    piece: Piece
    name: str


class Draft:
    """A model to which a step is added: more operations, and the optimizer's state as more inputs."""

    def __init__(self, model: Distributed) -> None:
        self.build = ProgramBuilder.resumed(model.program)
        self._inputs, self._roles = list(model.inputs), dict(model.roles)

    def state(self, of: Parameter, suffix: str) -> tuple[int, Piece]:
        """An input in fp32 for each number of a parameter."""
        piece = replace(of.piece, name=f"{of.piece.name}.{suffix}")
        self._roles[piece.name] = self._roles[of.piece.name]
        value = self.given(f"{of.name}.{suffix}", piece, replace(self.build.type_of(of.weight), dtype="fp32"))
        return value, piece

    def step_number(self, device: int) -> int:
        """The number of the step, as an input."""
        self._roles["step"] = Role()
        return self.given(f"step.{device}", Piece("step"), TensorType("int32", (), device))

    def given(self, name: str, piece: Piece, of_type: TensorType) -> int:
        """One more input."""
        self._inputs.append(piece)
        return self.build.input(name, of_type)

    def finish(self, outputs: Sequence[Output]) -> Distributed:
        """The model with these outputs."""
        program = self.build.finish([value for value, _ in outputs])
        return Distributed(program, tuple(self._inputs), tuple(piece for _, piece in outputs), self._roles)


class Optimizer(ABC):
    """What makes new weights of weights and gradients; called with a model, it adds one step to it.

    The updated weights and the optimizer's updated state become outputs, under the names that they have as inputs; the
    gradients cease to be.

    Raises
    ------
    InputError
        Where no output is a gradient.
    """

    @abstractmethod
    def add(self, draft: Draft, parameters: Sequence[Parameter]) -> tuple[Sequence[int], list[Output]]:
        """The new values of parameters of one device, and the new state, updated in place by one operation."""

    def __call__(self, model: Distributed) -> Distributed:
        """The model with the step added."""
        outputs, parameters = parameters_of(model)
        draft = Draft(model)
        for device in sorted(parameters):
            made, state = self.add(draft, parameters[device])
            outputs += zip(made, (each.piece for each in parameters[device]), strict=True)
            outputs += state
        return draft.finish(outputs)


def parameters_of(model: Distributed) -> tuple[list[Output], dict[int, list[Parameter]]]:
    """Outputs that are no gradients, and per device its parameters, in the order of the weights.

    InputError where there are none.
    """
    program, outputs = model.program, list[Output]()
    found: dict[int, list[Parameter]] = defaultdict(list)
    weights = {(piece, program.types[value].device): value for value, piece in model.piece_of.items()}
    for value, piece in zip(program.outputs, model.outputs, strict=True):
        of, device = model.role_of(piece).gradient_of, program.types[value].device
        if not of:
            outputs.append((value, piece))
        else:
            weight = weights[replace(piece, name=of), device]
            found[device].append(Parameter(weight, value, replace(piece, name=of), program.value_name(weight)))
    if not found:
        raise InputError("update", f"program {program.name} has no gradients among its outputs")
    return outputs, {device: sorted(those, key=lambda each: each.weight) for device, those in found.items()}


@dataclass(frozen=True, slots=True)
class SgdUpdate(Optimizer):
    """Stochastic gradient descent: one operation a device updates all of its weights in place."""

    rate: float = 0.01

    def add(self, draft: Draft, parameters: Sequence[Parameter]) -> tuple[Sequence[int], list[Output]]:
        """Weights less rate times gradients; no state."""
        taken = [each.weight for each in parameters] + [each.gradient for each in parameters]
        return draft.build.add("sgd", taken, UPDATE, rate=self.rate), []


@dataclass(frozen=True, slots=True)
class AdamUpdate(Optimizer):
    """Adam [Kingma 2015] with its state in fp32: two moments, and a master copy of weights in fp16 or bf16.

    The state is inputs that are updated in place, under the weights' names with `.master`, `.mean` and `.square`; the
    number of the step, from 1, is the input `step`.
    """

    rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8

    def add(self, draft: Draft, parameters: Sequence[Parameter]) -> tuple[Sequence[int], list[Output]]:
        """Weights and state after one more step."""
        build, first = draft.build, draft.build.type_of(parameters[0].weight)
        masters = first.dtype in NARROW
        names = ("master", "mean", "square") if masters else ("mean", "square")
        state = [draft.state(each, name) for name in names for each in parameters]
        before = [each.weight for each in parameters] + [value for value, _ in state]
        taken = [*before, *(each.gradient for each in parameters), draft.step_number(first.device)]
        settings = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon, "rate": self.rate}
        made = build.add("adam", taken, UPDATE, masters=int(masters), **settings)
        after = zip(made[len(parameters) :], (piece for _, piece in state), strict=True)
        return made[: len(parameters)], list(after)
