"""Optimizer steps at the end of a training program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Cut, Distributed, Piece, Role
from tessel_core.ir.operators.optimizers import NARROW
from tessel_core.ir.program import AttributeValue, Op
from tessel_core.ir.transforms.data import UPDATE
from tessel_core.ir.transforms.expansion import TENSOR, along, collective, over_of
from tessel_core.ir.types import TensorType

Output = tuple[int, Piece]
"""A value, and the piece of a tensor that it holds."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight on one device, or a part of one, and its gradient on this device."""

    weight: int
    gradient: int
    piece: Piece
    name: str
    part: Cut | None = None
    """If the gradient belongs only to a part of the weight: this part. Otherwise None."""


class Draft:
    """A model to which an optimizer adds operations, and inputs for its state."""

    def __init__(self, model: Distributed) -> None:
        self.build = ProgramBuilder.resumed(model.program)
        self._inputs, self._roles = list(model.inputs), dict(model.roles)

    def state(self, of: Parameter, suffix: str) -> tuple[int, Piece]:
        """Add optimizer state for a parameter, such as a moment, as an input and return it.

        Its format is that of the parameter, or fp32 for fp16 and bf16 parameters.
        """
        piece = replace(of.piece, name=f"{of.piece.name}.{suffix}")
        self._roles[piece.name] = self._roles[of.piece.name]
        weight = self.build.type_of(of.weight)
        state = replace(weight, dtype="fp32") if weight.dtype in NARROW else weight
        value = self.given(f"{of.name}.{suffix}", piece, state)
        return value, piece

    def step_number(self, device: int) -> int:
        """Add the number of the step as an input of one device and return its value."""
        self._roles["step"] = Role()
        return self.given(f"step.{device}", Piece("step"), TensorType("int32", (), device))

    def given(self, name: str, piece: Piece, of_type: TensorType) -> int:
        """Add an input and return its value."""
        self._inputs.append(piece)
        return self.build.input(name, of_type)

    def finish(self, outputs: Sequence[Output]) -> Distributed:
        """Return the model with these outputs."""
        program = self.build.finish([value for value, _ in outputs])
        return Distributed(program, tuple(self._inputs), tuple(piece for _, piece in outputs), self._roles)


class Optimizer(ABC):
    """Base class of optimizers. An optimizer computes new weights from weights and gradients. A call adds one step to a
    model.

    Updated weights and state replace the gradients among the outputs. Each has the name of its input.

    Raises InputError if no output is a gradient.
    """

    @abstractmethod
    def add(self, draft: Draft, parameters: Sequence[Parameter]) -> tuple[Sequence[int], list[Output]]:
        """Add the operations that update the parameters of one device in place.

        Return the new parameters, and the new state of the optimizer.
        """

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model with the step added."""
        outputs, parameters = parameters_of(model)
        draft = Draft(model)
        for device in sorted(parameters):
            made, state = self.add(draft, parameters[device])
            outputs += zip(made, (each.piece for each in parameters[device]), strict=True)
            outputs += state
        return draft.finish(outputs)


def parameters_of(model: Distributed) -> tuple[list[Output], dict[int, list[Parameter]]]:
    """Return the outputs that are not gradients, and the parameters of each device, sorted by weight.

    Raises InputError if no output is a gradient.
    """
    program, outputs = model.program, list[Output]()
    found: dict[int, list[Parameter]] = defaultdict(list)
    weights = {(piece, program.types[value].device): value for value, piece in model.piece_of.items()}
    for value, piece in zip(program.outputs, model.outputs, strict=True):
        of, device = model.role_of(piece).gradient_of, program.types[value].device
        if not of:
            outputs.append((value, piece))
        else:
            weight_piece, part = replace(piece, name=of, sums=()), None
            if (weight_piece, device) not in weights:
                weight_piece, part = replace(weight_piece, cuts=weight_piece.cuts[:-1]), weight_piece.cuts[-1]
            weight = weights[weight_piece, device]
            found[device].append(Parameter(weight, value, weight_piece, program.value_name(weight), part))
    if not found:
        raise InputError("update", f"program {program.name} has no gradients among its outputs")
    return outputs, {device: sorted(group, key=lambda each: each.weight) for device, group in found.items()}


def with_gradients(model: Distributed, updated: Distributed) -> Distributed:
    """Return the updated model with the gradients of `model` added to its outputs.

    If the optimizer is sharded, each replica returns its part of a gradient.
    """
    made_by = {value: op for op in updated.program.ops for value in op.outputs}
    outputs = list(zip(updated.program.outputs, updated.outputs, strict=True))
    for value, piece in zip(model.program.outputs, model.outputs, strict=True):
        if model.role_of(piece).gradient_of:
            whole, now = model.program.types[value].shape, updated.program.types[value].shape
            axis = next((axis for axis, sizes in enumerate(zip(whole, now, strict=True)) if len(set(sizes)) > 1), None)
            cut = (
                piece
                if axis is None
                else along(piece, axis, over_of(made_by[value].attributes), whole[axis] // now[axis])
            )
            outputs.append((value, cut))
    program = replace(updated.program, outputs=tuple(value for value, _ in outputs))
    return replace(updated, program=program, outputs=tuple(piece for _, piece in outputs))


@dataclass(frozen=True, slots=True)
class SgdUpdate(Optimizer):
    """Stochastic gradient descent. One operation per device updates all of its weights in place."""

    rate: float = 0.01

    def add(self, draft: Draft, parameters: Sequence[Parameter]) -> tuple[Sequence[int], list[Output]]:
        """Subtract rate times gradient from the weights. The optimizer has no state."""
        taken = [each.weight for each in parameters] + [each.gradient for each in parameters]
        return draft.build.add("sgd", taken, UPDATE, rate=self.rate), []


@dataclass(frozen=True, slots=True)
class AdamUpdate(Optimizer):
    """Adam [Kingma 2015]. Its state is two moments and, for fp16 or bf16 weights, a copy of the weights, all in fp32.

    The state is added as inputs, which are updated in place. They have the weights' names with `.master`, `.mean` and
    `.square` added. The input `step` is the number of the step, counted from 1.
    """

    rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8

    def add(self, draft: Draft, parameters: Sequence[Parameter]) -> tuple[Sequence[int], list[Output]]:
        """Add one step of Adam. Return the new weights, and the new moments and fp32 copies."""
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
class GradientFormat:
    """Sums gradients of weights over micro-batches and replicas in another format, usually fp32."""

    dtype: str

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model, on one device, with its gradients in that format."""
        source, build = model.program, ProgramBuilder(model.program.name)
        pairs = zip(source.outputs, model.outputs, strict=True)
        gradients = {value for value, piece in pairs if model.role_of(piece).gradient_of}
        value_of = {value: build.input(source.value_name(value), source.types[value]) for value in source.inputs}
        cast: dict[int, int] = {}
        for op in source.ops:
            taken = [value_of[value] for value in op.inputs]
            value_of.update(zip(op.outputs, build.append(op.kind, taken, op.attributes, op.tag), strict=True))
            for value in gradients.intersection(op.outputs):
                if source.types[value].dtype != self.dtype:
                    cast[value] = build.one("cast", [value_of[value]], op.tag, dtype=self.dtype)
        outputs = [cast[value] if value in cast else value_of[value] for value in source.outputs]
        return replace(model, program=build.finish(outputs))


@dataclass(frozen=True, slots=True)
class ShardedOptimizer:
    """ZeRO [Rajbhandari 2020, section 5]: each replica updates a part of the weights. It replaces a plain optimizer.

    The model is the program of one replica. In stage 1, the all-reduce of a gradient becomes a reduce-scatter along the
    first axis that can be divided among the replicas. Each replica has the optimizer's state for its part only, and
    updates that part of the weight. Then an all-gather restores the whole weights. If no axis can be divided, the
    gradient stays all-reduced and every replica updates the whole weight. Gradients that are already scattered (stage
    2) and weights that are already divided (stage 3) do not change. The state has the same names as that of
    `optimizer`.
    """

    optimizer: Optimizer

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model with the step added. Raises InputError if no output is a gradient."""
        scattered, together = _scattered(model)
        outputs, parameters = parameters_of(scattered)
        draft = Draft(scattered)
        updated: dict[int, int] = {}
        for device in sorted(parameters):
            parts = [_part(draft, each) for each in parameters[device]]
            made, state = self.optimizer.add(draft, parts)
            outputs += state
            updated |= zip((each.weight for each in parameters[device]), made, strict=True)
        every = [each for device in sorted(parameters) for each in parameters[device]]
        _gather(draft, updated, every, together)
        return draft.finish([*outputs, *((updated[each.weight], each.piece) for each in every)])


def scatter_axis(shape: tuple[int, ...], parts: int) -> int | None:
    """Return the axis along which a weight of this shape is divided into `parts`, or None if no axis can be divided."""
    return next((axis for axis, size in enumerate(shape) if size % parts == 0), None)


def part_shape(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    """Return the shape of the part of a weight that one of `parts` replicas updates."""
    axis = scatter_axis(shape, parts)
    return shape if axis is None else (*shape[:axis], shape[axis] // parts, *shape[axis + 1 :])


def _scattered(model: Distributed) -> tuple[Distributed, dict[int, int]]:
    """Return the model with scattered gradients, and for each gradient the index of the operation that scatters it.

    Values keep their numbers. The values of gradients become parts.
    """
    program = model.program
    piece_of = dict(zip(program.outputs, model.outputs, strict=True))
    gradients = {value for value, piece in piece_of.items() if model.role_of(piece).gradient_of}
    types, ops, together = list(program.types), list[Op](), dict[int, int]()
    for op in program.ops:
        over = over_of(op.attributes)
        if op.kind != "allreduce" or over in ("", TENSOR) or not gradients.issuperset(op.outputs):
            ops.append(op)
            continue
        degree = int(dict(op.attributes)["degree"])  # type: ignore[arg-type]
        axes = {value: scatter_axis(types[value].shape, degree) for value in op.outputs}
        whole = [place for place, value in enumerate(op.outputs) if axes[value] is None]
        cut = {place: axis for place, value in enumerate(op.outputs) if (axis := axes[value]) is not None}
        if whole:
            ops.append(_of_tensors(op, whole, over, degree))
        if cut:
            along_axes = next(iter(cut.values())) if len(cut) == 1 else tuple(cut.values())
            ops.append(replace(_of_tensors(op, list(cut), over, degree, axis=along_axes), kind="reduce_scatter"))
        for place, along_axis in cut.items():
            value = op.outputs[place]
            types[value] = types[value].shaped(part_shape(types[value].shape, degree))
            piece_of[value] = along(piece_of[value], along_axis, over, degree)
            together[value] = len(ops) - 1
    pieces = tuple(piece_of[value] for value in program.outputs)
    return replace(model, program=replace(program, types=tuple(types), ops=tuple(ops)), outputs=pieces), together


def _of_tensors(op: Op, some: Sequence[int], over: str, degree: int, **attributes: AttributeValue) -> Op:
    """Return the operation with only those of its tensors whose indices are in `some`."""
    inputs, outputs = (tuple(values[place] for place in some) for values in (op.inputs, op.outputs))
    found = {**attributes, **collective(over, degree, len(some))}
    return replace(op, inputs=inputs, outputs=outputs, attributes=tuple(sorted(found.items())))


def _part(draft: Draft, whole: Parameter) -> Parameter:
    """Add a slice of the weight and return it as a parameter. It is the part to which the gradient belongs."""
    if whole.part is None:
        return whole
    cut = whole.part
    weight = draft.build.one("slice", [whole.weight], UPDATE, axis=cut.axis, parts=cut.parts, index=0, over=cut.over)
    return replace(whole, weight=weight, piece=replace(whole.piece, cuts=(*whole.piece.cuts, cut)))


def _gather(draft: Draft, updated: dict[int, int], parameters: Sequence[Parameter], together: dict[int, int]) -> None:
    """Gather the updated parts, and replace them in `updated` by whole weights.

    Weights whose gradients were reduced together are gathered together.
    """
    groups: dict[object, list[Parameter]] = defaultdict(list)
    for each in parameters:
        if each.part is not None:
            device = draft.build.type_of(each.weight).device
            groups[together.get(each.gradient, (device, each.part.over))].append(each)
    for group in groups.values():
        cuts = [each.part for each in group if each.part is not None]
        axis = cuts[0].axis if len(cuts) == 1 else tuple(cut.axis for cut in cuts)
        attributes = {"axis": axis, **collective(cuts[0].over, cuts[0].parts, len(cuts))}
        taken = [updated[each.weight] for each in group]
        whole = draft.build.add("allgather_in_place", taken, UPDATE, **attributes)
        updated |= zip((each.weight for each in group), whole, strict=True)
