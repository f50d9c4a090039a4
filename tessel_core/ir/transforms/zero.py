"""Sharded optimizer state: each replica updates a part of every weight, and they gather the parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessel_core.ir.distributed import Cut, Distributed
from tessel_core.ir.program import Op, Program
from tessel_core.ir.transforms.update import UPDATE, Draft, Optimizer, Parameter, parameters_of


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
        """The model with the step added.  InputError where no output is a gradient."""
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
    """Of what one of so many replicas updates of such a weight."""
    axis = scatter_axis(shape, parts)
    return shape if axis is None else (*shape[:axis], shape[axis] // parts, *shape[axis + 1 :])


def _scattered(model: Distributed) -> tuple[Program, dict[int, tuple[Cut, Op]]]:
    """The program whose gradients are scattered, and per part of one its cut and the operation that made it.

    Values keep their numbers; those of gradients are parts now.
    """
    program = model.program
    gradients = {
        value for value, piece in zip(program.outputs, model.outputs, strict=True) if model.role_of(piece).gradient_of
    }
    types, ops, cuts = list(program.types), list(program.ops), dict[int, tuple[Cut, Op]]()
    for i, op in enumerate(ops):
        if op.kind != "allreduce" or op.tag != UPDATE or not gradients.issuperset(op.outputs):
            continue
        degree, shape = len(op.outputs), types[op.outputs[0]].shape
        axis = scatter_axis(shape, degree)
        if axis is None:
            continue
        ops[i] = replace(op, kind="reduce_scatter", attributes=(("axis", axis),))
        for replica, value in enumerate(op.outputs):
            types[value] = types[value].shaped(part_shape(shape, degree))
            cuts[value] = Cut(axis, degree, replica), op
    return replace(program, types=tuple(types), ops=tuple(ops)), cuts


def _part(draft: Draft, whole: Parameter, cut: tuple[Cut, Op] | None) -> Parameter:
    """The part of the weight that goes with the part of the gradient."""
    if cut is None:
        return whole
    axis, parts, index = cut[0].axis, cut[0].parts, cut[0].index
    weight = draft.build.one("slice", [whole.weight], UPDATE, axis=axis, parts=parts, index=index)
    return replace(whole, weight=weight, piece=whole.piece.cut(axis, parts, index))


def _gather(
    draft: Draft,
    updated: dict[int, int],
    parameters: Mapping[int, list[Parameter]],
    cuts: Mapping[int, tuple[Cut, Op]],
) -> None:
    """Replaces the updated parts of each weight, gradient by gradient, by the whole."""
    weight_of = {each.gradient: each.weight for those in parameters.values() for each in those}
    for gradients, axis in {op.outputs: cut.axis for cut, op in cuts.values()}.items():
        weights = [weight_of[value] for value in gradients]
        whole = draft.build.add("allgather_in_place", [updated[weight] for weight in weights], UPDATE, axis=axis)
        updated |= zip(weights, whole, strict=True)
