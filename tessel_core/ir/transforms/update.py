"""The optimizer's step, at the end of a training program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Cut, Distributed, Piece, Role, tensors_together
from tessel_core.ir.operators.optimizers import NARROW
from tessel_core.ir.program import AttributeValue, Op, Program, Tag
from tessel_core.ir.types import TensorType

UPDATE = Tag(phase="update")

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
        """An input for each number of a parameter, in its format or, where that is narrow, in fp32."""
        piece = replace(of.piece, name=f"{of.piece.name}.{suffix}")
        self._roles[piece.name] = self._roles[of.piece.name]
        weight = self.build.type_of(of.weight)
        state = replace(weight, dtype="fp32") if weight.dtype in NARROW else weight
        value = self.given(f"{of.name}.{suffix}", piece, state)
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
    """An optimizer makes new weights of weights and gradients; called with a model, it adds one step to it.

    The updated weights and the optimizer's updated state become outputs, under the names that they have as inputs; the
    gradients cease to be.

    Raises InputError where no output is a gradient.
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

    Raises InputError where there are none.
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


def with_gradients(model: Distributed, updated: Distributed) -> Distributed:
    """A model to which an optimizer's step was added, with the gradients of before among its outputs again.

    Where the optimizer is sharded, each replica has its part.
    """
    made_by = {value: op for op in updated.program.ops for value in op.outputs}
    outputs = list(zip(updated.program.outputs, updated.outputs, strict=True))
    for value, piece in zip(model.program.outputs, model.outputs, strict=True):
        if model.role_of(piece).gradient_of:
            whole, now = model.program.types[value].shape, updated.program.types[value].shape
            axis = next((axis for axis, sizes in enumerate(zip(whole, now, strict=True)) if len(set(sizes)) > 1), 0)
            parts = whole[axis] // now[axis] if whole != now else 1
            makers = made_by[value].outputs
            replica = makers.index(value) * parts // len(makers)
            outputs.append((value, piece.cut(axis, parts, replica)))
    program = replace(updated.program, outputs=tuple(value for value, _ in outputs))
    return replace(updated, program=program, outputs=tuple(piece for _, piece in outputs))


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
    """Adam [Kingma 2015]: two moments, and a master copy of weights in fp16 or bf16, all of these in fp32.

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


@dataclass(frozen=True, slots=True)
class ShardedOptimizer:
    """ZeRO's first stage [Rajbhandari 2020, section 5.1], after data parallelism, in place of a plain optimizer.

    The all-reduce of a gradient becomes a reduce-scatter along the first axis that the replicas divide; each updates
    its part of the weight, with state for that part alone, and the parts are gathered into the weights.  Where no axis
    divides, the gradient stays all-reduced and every replica updates the whole weight.  The state's names are those of
    `optimizer`.
    """

    optimizer: Optimizer

    def __call__(self, model: Distributed) -> Distributed:
        """The model with the step added.  Raises InputError where no output is a gradient."""
        scattered, cuts = _scattered(model)
        outputs, parameters = parameters_of(model)
        draft = Draft(replace(model, program=scattered))
        updated: dict[int, int] = {}
        for device in sorted(parameters):
            parts = [_part(draft, each, cuts.get(each.gradient)) for each in parameters[device]]
            made, state = self.optimizer.add(draft, parts)
            outputs += state
            updated |= zip((each.weight for each in parameters[device]), made, strict=True)
        _gather(draft, updated, parameters, cuts)
        every = [each for device in sorted(parameters) for each in parameters[device]]
        return draft.finish([*outputs, *((updated[each.weight], each.piece) for each in every)])


def scatter_axis(shape: tuple[int, ...], parts: int) -> int | None:
    """The axis along which a weight of that shape is cut; None where it stays whole."""
    return next((axis for axis, size in enumerate(shape) if size % parts == 0), None)


def part_shape(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    """The shape of the part of such a weight that one of so many replicas updates."""
    axis = scatter_axis(shape, parts)
    return shape if axis is None else (*shape[:axis], shape[axis] // parts, *shape[axis + 1 :])


def _scattered(model: Distributed) -> tuple[Program, dict[int, tuple[Cut, Op]]]:
    """The program whose gradients are scattered, and per part of one its cut and the operation that made it.

    Values keep their numbers; those of gradients are parts now.
    """
    program = model.program
    pairs = zip(program.outputs, model.outputs, strict=True)
    gradients = {value for value, piece in pairs if model.role_of(piece).gradient_of}
    types, ops, cuts = list(program.types), list[Op](), dict[int, tuple[Cut, Op]]()
    for op in program.ops:
        if op.kind != "allreduce" or op.tag != UPDATE or not gradients.issuperset(op.outputs):
            ops.append(op)
            continue
        count = int(dict(op.attributes).get("tensors", 1))  # type: ignore[arg-type]
        degree = len(op.outputs) // count
        axes = [scatter_axis(types[value].shape, degree) for value in op.outputs[:count]]
        whole = [t for t, axis in enumerate(axes) if axis is None]
        if whole:
            ops.append(_of_tensors(op, whole, count))
        cut = {t: axis for t, axis in enumerate(axes) if axis is not None}
        if not cut:
            continue
        axis = next(iter(cut.values())) if len(cut) == 1 else tuple(cut.values())
        ops.append(replace(_of_tensors(op, list(cut), count, axis=axis), kind="reduce_scatter"))
        for i, value in enumerate(ops[-1].outputs):
            types[value] = types[value].shaped(part_shape(types[value].shape, degree))
            cuts[value] = Cut(list(cut.values())[i % len(cut)], degree, i // len(cut)), ops[-1]
    return replace(program, types=tuple(types), ops=tuple(ops)), cuts


def _of_tensors(op: Op, some: Sequence[int], count: int, **attributes: AttributeValue) -> Op:
    """The same operation of some of the `count` tensors of each device."""
    places = [first + t for first in range(0, len(op.inputs), count) for t in some]
    inputs, outputs = (tuple(values[place] for place in places) for values in (op.inputs, op.outputs))
    found = {**attributes, **tensors_together(len(some))}
    return replace(op, inputs=inputs, outputs=outputs, attributes=tuple(sorted(found.items())))


def _part(draft: Draft, whole: Parameter, cut: tuple[Cut, Op] | None) -> Parameter:
    """The part of the weight that goes with the part of the gradient."""
    if cut is None:
        return whole
    axis, parts, index = cut[0].axis, cut[0].parts, cut[0].index
    weight = draft.build.one("slice", [whole.weight], UPDATE, axis=axis, parts=parts, index=index)
    return replace(whole, weight=weight, piece=whole.piece.cut(axis, parts, index))


def _gather(
    draft: Draft, updated: dict[int, int], parameters: Mapping[int, list[Parameter]], cuts: Mapping[int, tuple[Cut, Op]]
) -> None:
    """Replaces the updated parts of the weights by the whole, gradients that were reduced together at once."""
    weight_of = {each.gradient: each.weight for those in parameters.values() for each in those}
    for op in {op.outputs: op for _, op in cuts.values()}.values():
        weights = [weight_of[value] for value in op.outputs]
        taken = [updated[weight] for weight in weights]
        whole = draft.build.append("allgather_in_place", taken, op.attributes, UPDATE)
        updated |= zip(weights, whole, strict=True)
