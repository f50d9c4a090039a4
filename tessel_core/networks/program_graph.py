"""Build the operator graph of a program: one operator with its costs for each operation that does work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tessel_core.costs.meshes import INTERCONNECTS, all_gather_seconds, all_reduce_seconds
from tessel_core.costs.operations import as_operator
from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.types import TensorType
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.operator_graph import MAX_OPERATORS

_DEVICE = 1
"""The graph shows the operators of this device of a tensor-parallel group."""
_COLLECTIVES = {
    "allreduce": ("all_reduce", all_reduce_seconds, 2.0),
    "allgather": ("all_gather", all_gather_seconds, 1.0),
}
"""Name of each collective in graphs, function for its time on a link, and how often a device sends the tensor."""


@dataclass(frozen=True)
class ProgramGraph:
    """An operator graph, and for each operation of the program the operator that stands for it."""

    graph: OperatorGraph
    operator_of: tuple[int | None, ...]
    """For each operation, the index of its operator. None for views and for operations of other devices."""
    users_of: Mapping[int, tuple[int, ...]]
    """For each input of the program, the forward operators that use it, in order."""


def graph_of(model: Distributed, name: str, batch_size: int) -> OperatorGraph:
    """Return the graph of a forward pass, of a training step, or of one device of a tensor-parallel group.

    An operator has the name of its operation: `NAME`, `NAME/backward`, `NAME/weight_gradient`, or `NAME/backward/KIND`
    if an operation has several backward operators. Views are not operators, unless the program consists only of views.

    In training, a forward operator keeps the tensors that its backward operators use, and the statistics that
    frameworks keep. If several operators keep a tensor, it counts for the first. An edge carries the kept tensors from
    the forward operator to its backward operator.

    Raises InputError for operations without a name, or too many operators.
    """
    return program_graph(model, name, batch_size).graph


def program_graph(model: Distributed, name: str, batch_size: int) -> ProgramGraph:
    """Return the graph of `graph_of`, and the operator of each operation."""
    return _View(model).graph(name, batch_size)


class _View:
    """The operations of one device that do work, and how they depend on each other."""

    def __init__(self, model: Distributed) -> None:
        self._model, self._program = model, model.program
        self._root = list(range(len(self._program.types)))
        """For each value, the value of which it is a view. A value that is no view maps to itself."""
        self._ops: list[Op] = []
        self._index: list[int | None] = []
        only_views = all(find_operator(op.kind).view for op in self._program.ops)
        for op in self._program.ops:
            here = any(self._program.types[value].device == _DEVICE for value in (*op.inputs, *op.outputs))
            is_view = find_operator(op.kind).view and not only_views
            if here and is_view:
                for value in op.outputs:
                    self._root[value] = self._root[op.inputs[0]]
            self._index.append(len(self._ops) if here and not is_view else None)
            if self._index[-1] is not None:
                self._ops.append(op)
        if len(self._ops) > MAX_OPERATORS:
            raise InputError(
                "operators", f"the network has more than {MAX_OPERATORS:,} operators, the largest allowed number"
            )
        nameless = next((number for number, op in enumerate(self._ops) if not op.tag.name), None)
        if nameless is not None:
            raise InputError(
                f"operation {nameless} ({self._ops[nameless].kind})", "has no name, so it cannot become an operator"
            )
        self._weights = {
            value for value, piece in model.piece_of.items() if model.role_of(piece).weight and self._is_here(value)
        }
        self._phases = [_phase(op) for op in self._ops]

    def _is_here(self, value: int) -> bool:
        return self._program.types[value].device == _DEVICE

    def _taken(self, op: Op) -> Iterator[int]:
        """Yield the distinct tensors on this device that an operation uses."""
        yield from dict.fromkeys(self._root[value] for value in op.inputs if self._is_here(value))

    @cached_property
    def _maker(self) -> dict[int, int]:
        """For each tensor, the operator that computes it."""
        return {value: i for i, op in enumerate(self._ops) for value in op.outputs if self._is_here(value)}

    @cached_property
    def _forward(self) -> dict[str, list[int]]:
        """For each name of an operation, its forward operators."""
        by_name: dict[str, list[int]] = defaultdict(list)
        for i, (op, phase) in enumerate(zip(self._ops, self._phases, strict=True)):
            if phase == "forward":
                by_name[op.tag.name].append(i)
        return by_name

    @cached_property
    def _forward_of(self) -> list[int | None]:
        """For each backward operator, the forward operator whose gradients it computes."""
        return [
            self._find_forward_of(op, self._forward[op.tag.name])
            if phase != "forward" and op.tag.name in self._forward
            else None
            for op, phase in zip(self._ops, self._phases, strict=True)
        ]

    def _find_forward_of(self, op: Op, candidates: list[int]) -> int:
        """Return the forward operator of a backward operator.

        Of the candidates, choose one of the same kind, else one with a tensor in common, else the first.
        """
        alike = [i for i in candidates if self._ops[i].kind in (op.kind, op.kind.removesuffix("_grad"))]
        if alike:
            return alike[0]
        taken = set(self._taken(op)) - self._weights
        reads = (i for i in candidates if taken & {*self._taken(self._ops[i]), *self._ops[i].outputs})
        return next(reads, candidates[0])

    @cached_property
    def _names(self) -> list[str]:
        """Names of the operators.

        If an operation has several gradient operators in a phase, the one with the most FLOPs gets the plain name. The
        others add their kind. Recomputed operators always add their kind, so that names do not depend on
        `split_weights`.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for i, (op, phase) in enumerate(zip(self._ops, self._phases, strict=True)):
            groups[op.tag.name if phase == "forward" else f"{op.tag.name}/{phase}"].append(i)
        names, used = [""] * len(self._ops), Counter[str]()
        for stem, members in groups.items():
            main = max(members, key=lambda i: (self._ops[i].kind.endswith("_grad"), self._costs[i].flops or 0.0, -i))
            plain = None if main in self._recomputed else main
            for i in members:
                name = stem if i == plain else f"{stem}/{self._ops[i].kind.removesuffix('_grad')}"
                used[name] += 1
                names[i] = name if used[name] == 1 else f"{name}/{used[name]}"
        return names

    @cached_property
    def _costs(self) -> list[Operator]:
        """For each operation, an operator with its costs from the cost model."""
        return [self._cost(op, phase) for op, phase in zip(self._ops, self._phases, strict=True)]

    def _cost(self, op: Op, phase: str) -> Operator:
        types, outputs = self._program.types_of(op.inputs), self._program.types_of(op.outputs)
        if op.kind in _COLLECTIVES:
            return _collective(op.kind, types)
        known = as_operator(op.kind, types, outputs, dict(op.attributes))
        return known if phase != "weight_gradient" else _of_weights(known)

    def graph(self, name: str, batch_size: int) -> ProgramGraph:
        """Build the graph: operators with their costs, and edges for the tensors that pass between operators."""
        edges = dict.fromkeys(edge for i in range(len(self._ops)) for edge in self._arcs(i))
        leaving: dict[int, int] = {}
        for source, tensor, target in self._flows():
            if self._forward_of[target] != source:
                leaving.setdefault(tensor, source)
        sizes = defaultdict[int, int](int)
        for tensor, source in leaving.items():
            sizes[source] += self._program.types[tensor].bytes
        kept, training = self._kept_bytes(), any(phase != "forward" for phase in self._phases)
        operators = []
        for i, cost in enumerate(self._costs):
            mate = self._forward_of[i]
            operators.append(
                Operator(
                    self._names[i],
                    cost.kind,
                    cost.times,
                    flops=cost.flops,
                    bytes=cost.bytes,
                    weight_bytes=self._weight_bytes(i),
                    activation_bytes=kept[i] if training and mate is None else None,
                    output_bytes=sizes.get(i) or self._output_bytes(i),
                    backward=self._phases[i] != "forward",
                    forward_of=None if mate is None else self._names[mate],
                )
            )
        carried = (Edge(operators[a].name, operators[b].name, operators[a].output_bytes) for a, b in edges)
        graph = OperatorGraph(name, tuple(operators), tuple(carried), batch_size=batch_size)
        return ProgramGraph(graph, tuple(self._index), {value: tuple(users) for value, users in self._users.items()})

    def _flows(self) -> Iterator[tuple[int, int, int]]:
        """Yield (producer, tensor, user) for each tensor and each operator that uses it."""
        for target, op in enumerate(self._ops):
            for tensor in self._taken(op):
                if tensor in self._maker and self._maker[tensor] != target:
                    yield self._maker[tensor], tensor, target

    def _arcs(self, target: int) -> Iterator[tuple[int, int]]:
        """Yield the edges to an operator.

        Tensors that its forward operator used or computed come from this operator.
        """
        mate = self._forward_of[target]
        held = set[int]()
        if mate is not None:
            yield mate, target
            held = {*self._taken(self._ops[mate]), *self._ops[mate].outputs}
        for tensor in self._taken(self._ops[target]):
            maker = self._maker.get(tensor)
            if maker is not None and maker not in (mate, target) and tensor not in held:
                yield maker, target

    def _output_bytes(self, i: int) -> int:
        """Return the bytes of the operator's first output on this device, or 0 if it has no output there."""
        outputs = [value for value in self._ops[i].outputs if self._is_here(value)]
        return self._program.types[outputs[0]].bytes if outputs else 0

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        """For each input of the program, the forward operators that use it."""
        users: dict[int, list[int]] = defaultdict(list)
        for i, op in enumerate(self._ops):
            for value in self._taken(op) if self._phases[i] == "forward" else ():
                if value not in self._maker:
                    users[value].append(i)
        return users

    def _weight_bytes(self, i: int) -> int:
        """Return the bytes of the weights of which the operator is the first user."""
        weights = (value for value in self._taken(self._ops[i]) if value in self._weights)
        return sum(self._program.types[value].bytes for value in weights if self._users[value][0] == i)

    def _kept_bytes(self) -> list[int]:
        """For each forward operator, the bytes that it keeps for backward operators."""
        keepers: dict[int, int] = {}
        kept, differentiated = [0.0] * len(self._ops), set[int]()
        for i, op in enumerate(self._ops):
            mate = self._forward_of[i]
            if mate is None:
                continue
            differentiated.add(mate)
            for tensor in self._taken(op):
                maker = self._maker.get(tensor)
                was_there = tensor in self._users if maker is None else self._phases[maker] == "forward"
                if tensor not in self._weights and was_there:
                    keepers[tensor] = min(keepers.get(tensor, mate), mate)
        for tensor, keeper in keepers.items():
            kept[keeper] += self._program.types[tensor].bytes
        for i in differentiated - {self._forward_of[again] for again in self._recomputed}:
            op, rule = self._ops[i], find_operator(self._ops[i].kind).statistics
            kept[i] += rule(self._program.types_of(op.inputs), dict(op.attributes)) if rule else 0.0
        return [round(each) for each in kept]

    @cached_property
    def _recomputed(self) -> set[int]:
        """Forward operators that are recomputed: operators of the backward pass that do not depend on any gradient."""
        recomputed = set[int]()
        for i, (op, phase) in enumerate(zip(self._ops, self._phases, strict=True)):
            makers = {self._maker[tensor] for tensor in self._taken(op) if tensor in self._maker} - {i}
            repeats = (maker in recomputed or self._phases[maker] == "forward" for maker in makers)
            if phase != "forward" and not op.kind.endswith("_grad") and all(repeats):
                recomputed.add(i)
        return recomputed


def _phase(op: Op) -> str:
    """Return the phase of an operation. The gradient of a loss belongs to the backward pass."""
    if op.tag.phase == WEIGHT_PHASE:
        return "weight_gradient"
    is_gradient = op.tag.phase == "backward" or op.kind.endswith("_grad")
    return "backward" if is_gradient else "forward"


def _of_weights(known: Operator) -> Operator:
    """Return the operator as a weight-gradient operator: only its kind changes."""
    kind = known.kind.removesuffix("_backward").removesuffix("_weight_gradient")
    return Operator(known.name, f"{kind}_weight_gradient", known.times, flops=known.flops, bytes=known.bytes)


def _collective(kind: str, types: tuple[TensorType, ...]) -> Operator:
    """Return the operator of a collective, with its time inside a node for each kind of GPU.

    The cost model computes times from memory bandwidth, which does not limit a collective.
    """
    name, seconds, times = _COLLECTIVES[kind]
    devices, whole = len(types), types[0].bytes * (1 if kind == "allreduce" else len(types))
    durations = (DeviceTime(gpu, seconds(wires.inside, whole, devices)) for gpu, wires in INTERCONNECTS.items())
    return Operator(kind, name, tuple(durations), flops=0.0, bytes=times * (devices - 1) / devices * whole)
