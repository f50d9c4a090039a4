"""The operator graph of a program: one operator for each operation that does work, with what it costs."""

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
"""The one whose operators are shown, of a tensor-parallel group."""
_COLLECTIVES = {
    "allreduce": ("all_reduce", all_reduce_seconds, 2.0),
    "allgather": ("all_gather", all_gather_seconds, 1.0),
}
"""What graphs call a collective, its seconds on a link, and how often a tensor leaves each device on the way."""


@dataclass(frozen=True)
class ProgramGraph:
    """An operator graph, and where its operators are in the program."""

    graph: OperatorGraph
    operator_of: tuple[int | None, ...]
    """Per operation of the program, its operator; None for views and for what other devices do."""
    users_of: Mapping[int, tuple[int, ...]]
    """Per input of the program, the forward operators that take it, in order."""


def graph_of(model: Distributed, name: str, batch_size: int) -> OperatorGraph:
    """The graph of a network, of its training, or of what one device of a tensor-parallel group does.

    An operator is called as the operation it belongs to: `NAME`, `NAME/backward`, `NAME/weight_gradient`, and where an
    operation of the network has several, `NAME/backward/KIND`.  Views are no operators, they are the tensor that they
    look at; a program of views alone shows them.  In training a forward operator keeps what its backward takes and the
    statistics that frameworks keep; what several keep counts at the first.  A backward operator takes what was kept
    from its forward one.

    Raises InputError for operations without a name, or too many operators.
    """
    return program_graph(model, name, batch_size).graph


def program_graph(model: Distributed, name: str, batch_size: int) -> ProgramGraph:
    """As `graph_of`, with the operator of each operation."""
    return _View(model).graph(name, batch_size)


class _View:
    def __init__(self, model: Distributed) -> None:
        self._model, self._program = model, model.program
        self._root = list(range(len(self._program.types)))
        """Per value, the tensor that it is a view of."""
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
            raise InputError("operators", f"there would be more than the {MAX_OPERATORS:,} allowed")
        nameless = next((number for number, op in enumerate(self._ops) if not op.tag.name), None)
        if nameless is not None:
            raise InputError(f"operation {nameless} ({self._ops[nameless].kind})", "has no name, so no operator is it")
        self._weights = {
            value for value, piece in model.piece_of.items() if model.role_of(piece).weight and self._is_here(value)
        }
        self._phases = [_phase(op) for op in self._ops]

    def _is_here(self, value: int) -> bool:
        return self._program.types[value].device == _DEVICE

    def _taken(self, op: Op) -> Iterator[int]:
        """The tensors that it takes here, once each."""
        yield from dict.fromkeys(self._root[value] for value in op.inputs if self._is_here(value))

    @cached_property
    def _maker(self) -> dict[int, int]:
        """Per tensor, the operator that makes it."""
        return {value: i for i, op in enumerate(self._ops) for value in op.outputs if self._is_here(value)}

    @cached_property
    def _forward(self) -> dict[str, list[int]]:
        """Per name, its forward operators."""
        found: dict[str, list[int]] = defaultdict(list)
        for i, (op, phase) in enumerate(zip(self._ops, self._phases, strict=True)):
            if phase == "forward":
                found[op.tag.name].append(i)
        return found

    @cached_property
    def _mate(self) -> list[int | None]:
        """Per operator, the forward one of its name whose gradients it computes."""
        return [
            self._mate_of(op, self._forward[op.tag.name])
            if phase != "forward" and op.tag.name in self._forward
            else None
            for op, phase in zip(self._ops, self._phases, strict=True)
        ]

    def _mate_of(self, op: Op, candidates: list[int]) -> int:
        """By its kind, else one that it takes a tensor of, else the first."""
        alike = [i for i in candidates if self._ops[i].kind in (op.kind, op.kind.removesuffix("_grad"))]
        if alike:
            return alike[0]
        taken = set(self._taken(op)) - self._weights
        reads = (i for i in candidates if taken & {*self._taken(self._ops[i]), *self._ops[i].outputs})
        return next(reads, candidates[0])

    @cached_property
    def _names(self) -> list[str]:
        """The gradient, or else operation, with most FLOPs has the plain name of its phase; others add their kind.

        What runs again always adds it, so that an operator has one name whether weight gradients are apart or not.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for i, (op, phase) in enumerate(zip(self._ops, self._phases, strict=True)):
            groups[op.tag.name if phase == "forward" else f"{op.tag.name}/{phase}"].append(i)
        found, used = [""] * len(self._ops), Counter[str]()
        for stem, members in groups.items():
            main = max(members, key=lambda i: (self._ops[i].kind.endswith("_grad"), self._costs[i].flops or 0.0, -i))
            plain = None if main in self._again else main
            for i in members:
                name = stem if i == plain else f"{stem}/{self._ops[i].kind.removesuffix('_grad')}"
                used[name] += 1
                found[i] = name if used[name] == 1 else f"{name}/{used[name]}"
        return found

    @cached_property
    def _costs(self) -> list[Operator]:
        """What each operation does, as the cost model knows it."""
        return [self._cost(op, phase) for op, phase in zip(self._ops, self._phases, strict=True)]

    def _cost(self, op: Op, phase: str) -> Operator:
        types, outputs = self._program.types_of(op.inputs), self._program.types_of(op.outputs)
        if op.kind in _COLLECTIVES:
            return _collective(op.kind, types)
        known = as_operator(op.kind, types, outputs, dict(op.attributes))
        return known if phase != "weight_gradient" else _of_weights(known)

    def graph(self, name: str, batch_size: int) -> ProgramGraph:
        """The operators with their costs, and an edge for each tensor that one hands to another."""
        edges = dict.fromkeys(edge for i in range(len(self._ops)) for edge in self._arcs(i))
        leaving: dict[int, int] = {}
        for source, tensor, target in self._flows():
            if self._mate[target] != source:
                leaving.setdefault(tensor, source)
        sizes = defaultdict[int, int](int)
        for tensor, source in leaving.items():
            sizes[source] += self._program.types[tensor].bytes
        kept, training = self._kept(), any(phase != "forward" for phase in self._phases)
        operators = []
        for i, cost in enumerate(self._costs):
            mate = self._mate[i]
            operators.append(
                Operator(
                    self._names[i],
                    cost.kind,
                    cost.times,
                    flops=cost.flops,
                    bytes=cost.bytes,
                    weight_bytes=self._held(i),
                    activation_bytes=kept[i] if training and mate is None else None,
                    output_bytes=sizes.get(i) or self._made(i),
                    backward=self._phases[i] != "forward",
                    forward_of=None if mate is None else self._names[mate],
                )
            )
        carried = (Edge(operators[a].name, operators[b].name, operators[a].output_bytes) for a, b in edges)
        graph = OperatorGraph(name, tuple(operators), tuple(carried), batch_size=batch_size)
        return ProgramGraph(graph, tuple(self._index), {value: tuple(users) for value, users in self._users.items()})

    def _flows(self) -> Iterator[tuple[int, int, int]]:
        """Every tensor's way: its maker, it itself, and an operator that takes it."""
        for target, op in enumerate(self._ops):
            for tensor in self._taken(op):
                if tensor in self._maker and self._maker[tensor] != target:
                    yield self._maker[tensor], tensor, target

    def _arcs(self, target: int) -> Iterator[tuple[int, int]]:
        """What an operator waits for; what its forward operator has had already it takes from there."""
        mate = self._mate[target]
        held = set[int]()
        if mate is not None:
            yield mate, target
            held = {*self._taken(self._ops[mate]), *self._ops[mate].outputs}
        for tensor in self._taken(self._ops[target]):
            maker = self._maker.get(tensor)
            if maker is not None and maker not in (mate, target) and tensor not in held:
                yield maker, target

    def _made(self, i: int) -> int:
        """Bytes of its first output, where nothing takes any."""
        outputs = [value for value in self._ops[i].outputs if self._is_here(value)]
        return self._program.types[outputs[0]].bytes if outputs else 0

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        """Per input of the program, the forward operators that take it."""
        found: dict[int, list[int]] = defaultdict(list)
        for i, op in enumerate(self._ops):
            for value in self._taken(op) if self._phases[i] == "forward" else ():
                if value not in self._maker:
                    found[value].append(i)
        return found

    def _held(self, i: int) -> int:
        """Bytes of the weights that it takes as the first."""
        mine = (value for value in self._taken(self._ops[i]) if value in self._weights)
        return sum(self._program.types[value].bytes for value in mine if self._users[value][0] == i)

    def _kept(self) -> list[int]:
        """Per forward operator, bytes that it keeps for backward ones."""
        keepers: dict[int, int] = {}
        kept, differentiated = [0.0] * len(self._ops), set[int]()
        for i, op in enumerate(self._ops):
            mate = self._mate[i]
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
        for i in differentiated - {self._mate[again] for again in self._again}:
            op, rule = self._ops[i], find_operator(self._ops[i].kind).statistics
            kept[i] += rule(self._program.types_of(op.inputs), dict(op.attributes)) if rule else 0.0
        return [round(each) for each in kept]

    @cached_property
    def _again(self) -> set[int]:
        """Forward operators that run again before their backward: they take nothing that depends on a gradient."""
        found = set[int]()
        for i, (op, phase) in enumerate(zip(self._ops, self._phases, strict=True)):
            makers = {self._maker[tensor] for tensor in self._taken(op) if tensor in self._maker} - {i}
            repeats = (maker in found or self._phases[maker] == "forward" for maker in makers)
            if phase != "forward" and not op.kind.endswith("_grad") and all(repeats):
                found.add(i)
        return found


def _phase(op: Op) -> str:
    """When it runs in a training step; the gradient of a loss belongs to the backward pass here."""
    if op.tag.phase == WEIGHT_PHASE:
        return "weight_gradient"
    is_gradient = op.tag.phase == "backward" or op.kind.endswith("_grad")
    return "backward" if is_gradient else "forward"


def _of_weights(known: Operator) -> Operator:
    """The same as the gradient of a weight."""
    kind = known.kind.removesuffix("_backward").removesuffix("_weight_gradient")
    return Operator(known.name, f"{kind}_weight_gradient", known.times, flops=known.flops, bytes=known.bytes)


def _collective(kind: str, types: tuple[TensorType, ...]) -> Operator:
    """A collective within a node of each kind of GPU, which the bandwidth of memory would not tell."""
    name, seconds, times = _COLLECTIVES[kind]
    devices, whole = len(types), types[0].bytes * (1 if kind == "allreduce" else len(types))
    taken = (DeviceTime(gpu, seconds(wires.inside, whole, devices)) for gpu, wires in INTERCONNECTS.items())
    return Operator(kind, name, tuple(taken), flops=0.0, bytes=times * (devices - 1) / devices * whole)
