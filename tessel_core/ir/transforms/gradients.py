"""Derive the backward pass of a program from the gradient rules of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Operator, Reverse, WriteOperation
from tessel_core.ir.program import AttributeValue, Op, Tag
from tessel_core.ir.types import REAL

WEIGHT_PHASE = "weight"
"""Phase of operations that only compute gradients of weights."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """Adds the backward pass to a forward pass that ends in losses [reverse mode, Griewank 2008, section 3.2].

    The gradient of every weight, and of each input in `also`, becomes an output called `d.NAME`. The gradient of a loss
    is computed in the forward pass, because it replaces the predictions in memory. If a value is used several times,
    its gradients are added as soon as they are computed. Each backward operation has the name of its forward operation.

    Raises InputError in these cases:

    - The program has a backward pass or several devices, or does not end in losses.
    - An operator between a weight and a loss has no gradient rule.
    """

    also: tuple[str, ...] = ()
    split_weights: bool = False
    """Whether gradients of weights are separate operations, of phase `weight`. No other operation waits for them."""
    of_outputs: bool = False
    """Whether the forward pass ends in results instead of losses.

    Each result that no operation uses then has its gradient as a new input, `d.OUTPUT`. A weight on which no such
    result depends gets no gradient.
    """

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model with losses and gradients as its outputs."""
        return _Backward(model, self).model()


class _Backward:
    def __init__(self, model: Distributed, options: Gradients) -> None:
        self._model, self._split, self._of_outputs = model, options.split_weights, options.of_outputs
        self._source = model.program
        if len(self._source.devices) != 1 or any(op.tag.phase not in ("", "forward") for op in self._source.ops):
            raise InputError(
                "gradients", "must be the first transform, because they need the forward pass of one device"
            )
        self._build = ProgramBuilder.resumed(self._source)
        self._asked = {
            value: piece.name for value, piece in model.piece_of.items() if self._is_asked(value, piece, options.also)
        }
        self._weights = {value for value, piece in model.piece_of.items() if model.role_of(piece).weight}
        self._wanted = self._reached()
        self._found: dict[int, int] = {}
        """For each value, the sum of its gradients so far."""
        self._seeds: dict[int, Piece] = {}
        """For each new input that is the gradient of a result, the piece that it holds."""

    def _is_asked(self, value: int, piece: Piece, also: tuple[str, ...]) -> bool:
        role = self._model.role_of(piece)
        return ((role.weight and role.trained) or piece.name in also) and self._is_real(value)

    def _is_real(self, value: int) -> bool:
        """Return whether a value has a floating-point format. Integers and booleans have no gradient."""
        return self._source.types[value].dtype in REAL

    def _reached(self) -> set[int]:
        """Return the values that depend on a weight, or on an input whose gradient is requested."""
        found = set(self._asked)
        for op in self._source.ops:
            if not found.isdisjoint(op.inputs):
                found.update(filter(self._is_real, op.outputs))
        return found

    def model(self) -> Distributed:
        """Return the model with its backward pass. Gradients are written for the last operation first."""
        losses = set() if self._of_outputs else set(self._source.outputs)
        if self._of_outputs:
            self._seed()
        for number in reversed(range(len(self._source.ops))):
            op = self._source.ops[number]
            operator, ends = find_operator(op.kind), not losses.isdisjoint(op.outputs)
            if ends and not operator.loss:
                why = f"operation {number} ({op.kind}) returns an output that is not a loss, so its gradient is unknown"
                raise InputError(f"program {self._source.name}", why)
            if ends or any(value in self._found for value in op.outputs):
                self._reverse(number, op, operator)
        return self._with_outputs()

    def _seed(self) -> None:
        for value, piece in zip(self._source.outputs, self._model.outputs, strict=True):
            if value in self._wanted and not self._source.uses[value] and value not in self._found:
                seed = Piece(f"d.{piece.name}")
                self._found[value] = self._build.input(f"d.{self._source.value_name(value)}", self._source.types[value])
                self._seeds[self._found[value]] = seed

    def _reverse(self, number: int, op: Op, operator: Operator) -> None:
        wanted = tuple(value in self._wanted for value in op.inputs)
        if not any(wanted):
            return
        if operator.gradient is None:
            where = f"operation {number} ({op.kind}{f' of {op.tag.name}' if op.tag.name else ''})"
            raise InputError(
                f"program {self._source.name}", f"{where} has no gradient rule, so the program cannot be trained"
            )
        tag = op.tag if operator.loss else replace(op.tag, phase="backward")
        apart = replace(tag, phase=WEIGHT_PHASE) if self._split else tag
        found = operator.gradient(
            Reverse(
                op.inputs,
                op.outputs,
                self._source.types_of(op.inputs),
                self._source.types_of(op.outputs),
                dict(op.attributes),
                tuple(self._found.get(value) for value in op.outputs),
                wanted,
                self._split,
                tuple(value in self._weights for value in op.inputs),
                self._writer(tag),
                self._writer(apart),
            )
        )
        for value, gradient in zip(op.inputs, found, strict=True):
            if gradient is not None and value in self._wanted:
                before, phase = self._found.get(value), apart if value in self._weights else tag
                self._found[value] = gradient if before is None else self._build.one("add", [before, gradient], phase)

    def _writer(self, tag: Tag) -> WriteOperation:
        def write(kind: str, inputs: Sequence[int], **attributes: AttributeValue) -> tuple[int, ...]:
            return self._build.add(kind, inputs, tag, **attributes)

        return write

    def _with_outputs(self) -> Distributed:
        missing = [name for value, name in self._asked.items() if value not in self._found]
        if missing and not self._of_outputs:
            raise InputError(f"program {self._source.name}", f"no loss depends on {missing[0]}, so it has no gradient")
        asked = {value: name for value, name in self._asked.items() if value in self._found}
        if self._of_outputs and not asked:
            raise InputError(f"program {self._source.name}", "has no weights on which its results depend")
        made = sorted((self._found[value], name) for value, name in asked.items())
        roles = dict(self._model.roles)
        roles |= {seed.name: self._model.roles[seed.name.removeprefix("d.")] for seed in self._seeds.values()}
        for value, name in asked.items():
            of = name if value in self._weights else ""
            roles[f"d.{name}"] = replace(roles[name], weight=False, gradient_of=of)
        outputs = [*zip(self._source.outputs, self._model.outputs, strict=True)]
        outputs += [(value, Piece(f"d.{name}")) for value, name in made]
        program = self._build.finish([value for value, _ in outputs])
        inputs = (*self._model.inputs, *self._seeds.values())
        return Distributed(program, inputs, tuple(piece for _, piece in outputs), roles)
