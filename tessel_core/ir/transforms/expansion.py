"""Expand the program of one device (SPMD) to the program of all devices.

Transforms for tensor, context, expert and data parallelism write the program of one device. In this program, the
attribute `over` of a collective names the dimension whose devices take part. An operation whose result depends on the
device's index in a dimension also has this attribute. So the program for thousands of devices is as short as the
program for one. It is expanded only to be executed or displayed for all devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Cut, Distributed, Piece, check_degree, elsewhere, tensors_together
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Attributes, AttributeValue

TENSOR, CONTEXT, DATA = "tensor", "context", "data"
EXPERT, EXPERT_DATA = "expert", "expert+data"
"""Dimension of the devices that share a layer's experts, and dimension of the devices that have the same experts."""
REPLICAS = f"{CONTEXT}+{DATA}"
"""Dimension of the devices that have the same weights but process different tokens, for one tensor-parallel rank."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Number of devices along each dimension of parallelism except the pipeline.

    Consecutive ranks differ in the tensor dimension, then in context, then in data. Expert parallelism uses groups of
    consecutive ranks, as in torchtitan and Megatron-LM.

    Raises InputError for a degree below 1, and for an expert degree that does not divide the number of ranks.
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in (TENSOR, CONTEXT, DATA, EXPERT):
            check_degree(f"{name} parallelism", getattr(self, name))
        if self.count % self.expert:
            ranks = f"{self.tensor} x {self.context} x {self.data} tensor, context and data ranks"
            raise InputError("expert parallelism", f"{self.expert} does not divide the number of ranks, {ranks}")

    @property
    def count(self) -> int:
        """Number of ranks."""
        return self.tensor * self.context * self.data

    def of(self, over: str) -> int:
        """Return the number of devices per group along one dimension, or along several, written "context+data"."""
        if over in (EXPERT, EXPERT_DATA):
            return self.expert if over == EXPERT else self.count // self.expert
        found = 1
        for name in over.split("+"):
            found *= int(getattr(self, name))
        return found

    def group(self, rank: int, over: str) -> tuple[int, ...]:
        """Return the ranks in the same group as `rank` along `over`, in order."""
        if over in (EXPERT, EXPERT_DATA):
            first, step = (rank - rank % self.expert, 1) if over == EXPERT else (rank % self.expert, self.expert)
            return tuple(range(first, first + step * self.of(over), step))
        found = [rank]
        for name in over.split("+"):
            degree, stride = getattr(self, name), self._stride(name)
            found = [each + (i - each // stride % degree) * stride for i in range(degree) for each in found]
        return tuple(sorted(found))

    def _stride(self, name: str) -> int:
        return {TENSOR: 1, CONTEXT: self.tensor, DATA: self.tensor * self.context}[name]

    def suffix(self, rank: int) -> str:
        """Return a suffix for names with the rank's index in each dimension, such as `.h1.d0`."""
        letters = {TENSOR: "h", CONTEXT: "c", DATA: "d"}
        return "".join(
            f".{letter}{rank // self._stride(name) % getattr(self, name)}"
            for name, letter in letters.items()
            if getattr(self, name) > 1
        )


@lru_cache(maxsize=256)
def groups_of(degrees: Degrees, over: str) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every group along one or several dimensions."""
    return tuple(dict.fromkeys(degrees.group(rank, over) for rank in range(degrees.count)))


@lru_cache(maxsize=256)
def _places(degrees: Degrees, over: str) -> dict[int, int]:
    """Map each rank to its index in its group."""
    return {rank: place for group in groups_of(degrees, over) for place, rank in enumerate(group)}


def over_of(attributes: Attributes) -> str:
    """Return the dimension along which an operation communicates or whose index it depends on, or ""."""
    return next((str(value) for name, value in attributes if name == "over"), "")


def expanded(model: Distributed, degrees: Degrees) -> Distributed:
    """Return the model on all of its devices. If one rank has P devices, device p of rank r becomes device p + r P."""
    if degrees.count == 1:
        return model
    source, width, ranks = model.program, len(model.program.devices), range(degrees.count)
    build = ProgramBuilder(source.name)
    values: dict[int, tuple[int, ...]] = {}
    inputs = list[Piece]()
    for value, piece in model.piece_of.items():
        of_type, name = source.types[value], source.value_name(value)
        values[value] = tuple(
            build.input(f"{name}{degrees.suffix(r)}", of_type.on(of_type.device + r * width)) for r in ranks
        )
        inputs += (_on_rank(piece, degrees, r) for r in ranks)
    for op in source.ops:
        over, there = over_of(op.attributes), _Attributes(op.attributes, width)
        taken = [[values[value][r] for value in op.inputs] for r in ranks]
        if over and find_operator(op.kind).pattern:
            made, count = list[tuple[int, ...]]([()] * len(ranks)), len(op.outputs)
            for group in groups_of(degrees, over):
                every = build.append(op.kind, [value for r in group for value in taken[r]], there.complete(), op.tag)
                for i, r in enumerate(group):
                    made[r] = every[i * count : (i + 1) * count]
        else:
            place = _places(degrees, over) if over else {}
            made = [build.append(op.kind, taken[r], there.of(r, place.get(r)), op.tag) for r in ranks]
        values |= {value: tuple(each[i] for each in made) for i, value in enumerate(op.outputs)}
    outputs, pieces = list[int](), list[Piece]()
    for value, piece in zip(source.outputs, model.outputs, strict=True):
        outputs += values[value]
        pieces += (_on_rank(piece, degrees, r) for r in ranks)
    return Distributed(build.finish(outputs), tuple(inputs), tuple(pieces), model.roles)


class _Attributes:
    """Attributes of an operation on each rank."""

    def __init__(self, attributes: Attributes, width: int) -> None:
        self._attributes, self._width = attributes, width
        self._known: dict[tuple[int, int | None], Attributes] = {}
        self._depend = any(name in ("to", "devices") for name, _ in attributes)

    def complete(self) -> Attributes:
        """Return the attributes of a collective that names all of its devices. It has no `over` and no `degree`."""
        return tuple(pair for pair in self._attributes if pair[0] not in ("over", "degree"))

    def of(self, rank: int, place: int | None) -> Attributes:
        """Return the attributes of an operation on one rank.

        `place` is the rank's index in its group, if the operation needs it.
        """
        key = rank if self._depend else 0, place
        if key not in self._known:
            found = self._attributes
            if place is not None:
                found = tuple((name, place if name == "index" else value) for name, value in found if name != "over")
            self._known[key] = elsewhere(found, lambda device: device + rank * self._width) if self._depend else found
        return self._known[key]


def _on_rank(piece: Piece, degrees: Degrees, rank: int) -> Piece:
    if not any(each.over for each in piece.cuts):
        return piece
    cuts = (
        replace(each, index=_places(degrees, each.over)[rank], over="") if each.over else each for each in piece.cuts
    )
    return replace(piece, cuts=tuple(cuts))


def collective(over: str, degree: int, tensors: int = 1) -> dict[str, AttributeValue]:
    """Return the attributes of a collective in the program of one device.

    `degree` devices take part, with `tensors` tensors each, and `over` names their dimension.
    """
    return {"over": over, "degree": degree, **tensors_together(tensors)}


def along(piece: Piece, axis: int, over: str, degree: int, *, balanced: bool = False, first: bool = False) -> Piece:
    """Return the part of a piece that each device along a dimension has.

    With `first`, the piece is divided along this dimension before the others.
    """
    cut = Cut(axis, degree, 0, over, balanced)
    return replace(piece, cuts=(cut, *piece.cuts) if first else (*piece.cuts, cut))
