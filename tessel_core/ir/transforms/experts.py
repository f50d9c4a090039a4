"""Expert parallelism: each device has some of the experts, and devices exchange the tokens that chose these experts."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed, Role, check_degree
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.program import AttributeValue, Op, Tag
from tessel_core.ir.transforms.expansion import EXPERT, collective
from tessel_core.ir.transforms.sharding import WHOLE, Sharding, Spread, State, States, one_device

EXPERTS = State("part", 0)
"""Weights [experts, ..] are divided: each device has some of the experts."""
EXCHANGED = State("exchanged")
"""Rows are on the device of their expert, sorted by expert."""
_GROUPED = {
    "grouped_matmul": ((1, 2), (EXCHANGED,)),
    "grouped_matmul_input_grad": ((1, 0), (EXCHANGED,)),
    "grouped_matmul_weight_grad": ((1, 2), (EXPERTS,)),
    "grouped_matmul_grad": ((1, 2), (EXCHANGED, EXPERTS)),
}
"""For each product of experts: the indices of the choice and of the weights among its inputs, and how its outputs are
divided."""


@dataclass(frozen=True, slots=True)
class ExpertParallel:
    """Expert parallelism over `degree` devices. Each has an equal number of experts and its own tokens [Lepikhin 2021,
    GShard].

    Rows are sorted by expert. An all-to-all sends them to the products of their experts, and another returns the
    results. Gradients are exchanged in the same way. Weights that belong to no expert stay whole on every device.

    Raises InputError if the program has no experts, or if the number of experts does not divide.
    """

    degree: int

    def of_one(self, model: Distributed) -> Distributed:
        """Convert the model of one device to the program that each of the `degree` devices runs."""
        check_degree("expert parallelism", self.degree)
        if self.degree == 1:
            return model
        one_device(model, "expert parallelism")
        if not any(role.expert_axis is not None for role in model.roles.values()):
            raise InputError("expert parallelism", f"needs experts, but {model.program.name} has none")
        return _Experts(model, self.degree).sharded()


class _Experts(Sharding):
    over = EXPERT

    def __init__(self, model: Distributed, degree: int) -> None:
        super().__init__(model, degree)
        self._choice: dict[int, int] = {}
        """For each value, the choice of experts by which its rows are sorted."""
        self._attributes: dict[int, dict[str, AttributeValue]] = {}
        """For each choice, the attributes of its exchanges."""

    def axis_of(self, value: int, role: Role) -> int | None:
        return role.expert_axis

    def spread(self, op: Op, states: States, types: Types, values: Values) -> Spread:
        """Exchange rows for the products of experts. Keep all other operators whole."""
        if op.kind in _GROUPED:
            (choice, weights), made = _GROUPED[op.kind]
            needed = [EXPERTS if place == weights else EXCHANGED for place in range(len(states))]
            # The gradient of the output, if there is one, has rows sorted by expert, too.
            sorted_rows = (value for value in (*op.inputs, *op.outputs) if value != op.inputs[weights])
            self._choice |= dict.fromkeys(sorted_rows, op.inputs[choice])
            return needed, list(made)
        if EXCHANGED in states and all(each.shape == types[0].shape for each in types):
            choice = next(self._choice[v] for v, state in zip(op.inputs, states, strict=True) if state == EXCHANGED)
            self._choice |= dict.fromkeys((*op.inputs, *op.outputs), choice)
            return [EXCHANGED] * len(states), [EXCHANGED] * len(op.outputs)
        if op.kind == "dispatch":
            (choice,) = op.inputs[1:]
            more = {"imbalance": values["imbalance"]} if "imbalance" in values else {}
            self._attributes[choice] = more
            self._choice[op.outputs[0]] = choice
        return [WHOLE] * len(states), [WHOLE] * len(op.outputs)

    def convert(self, value: int, state: State, wanted: State, tag: Tag) -> int:
        """Add the exchange of rows between devices, or of the rows' choice of experts, and return the result."""
        local, choice = self.values[value], self._choice[value]
        chosen = self.values[choice]
        how = self._exchange(choice)
        if value == choice:
            return self.build.one("exchange_choice", [local], tag, **how)
        there = self.converted(choice, EXCHANGED, tag)
        if wanted == EXCHANGED:
            rows = self.build.one("exchange_rows", [local, chosen], tag, **how)
            return self.build.one("dispatch", [rows, there], tag)
        rows = self.build.one("dispatch_grad", [there, local], tag)
        return self.build.one("return_rows", [rows, chosen], tag, **how)

    def _exchange(self, choice: int) -> dict[str, AttributeValue]:
        experts = next(
            self.source.types[v].shape[role.expert_axis]
            for v, piece in self.model.piece_of.items()
            if (role := self.model.role_of(piece)).expert_axis is not None
        )
        more = self._attributes.get(choice, {})
        return {"experts": experts, **more, **collective(self.over, self.degree)}
