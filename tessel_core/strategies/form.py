"""The form that compares strategies: fields with their usual answers, and the grid that the answers ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessel_core.costs.meshes import MESHES, find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import DeviceMesh
from tessel_core.strategies.families import FAMILIES, Family, Size, Value, find_family
from tessel_core.strategies.grid import Grid, ranges, read_range
from tessel_core.strategies.orders import DEFAULT_ORDER, chain_schedulers
from tessel_core.strategies.places import nodes_of
from tessel_core.strategies.ranks import DEFAULT_RANK_ORDER, RankOrder, every_rank_order
from tessel_core.strategies.strategy import Semantics, equal_devices

Answer = str | bool
"""Text as typed, names of several choices joined by commas, or whether something is switched on."""

UNIFORM = "distir-16"
"""The devices of DistIR's experiments: no preset, since they are not sold."""


@dataclass(frozen=True, slots=True)
class Field:
    """One thing that is asked for: some of `choices`, or without them numbers and ranges, or a switch."""

    name: str
    label: str
    usual: Answer
    choices: tuple[str, ...] = ()
    several: bool = False
    """Whether more than one of the choices may be taken."""
    blank: str = ""
    """The meaning of an empty answer, where that is one."""
    about: str = ""


FAMILY = Field("family", "Network", "mlp", tuple(FAMILIES))
MESH = Field("mesh", "Mesh", "h200-16", (*MESHES, UNIFORM))
SEMANTICS = Field("semantics", "Time and memory", str(Semantics.DEFAULT), tuple(map(str, Semantics)))
DEGREES = (
    Field("data", "Replicas D", "1,2,4,8,16"),
    Field("tensor", "Tensor H", "1,2,4,8,16"),
    Field("pipeline", "Stages P", "1,2,4,8,16"),
    Field("micro_batches", "Micro-batches K", "1,2,4,8,16,32"),
)
MICRO_BATCH_SIZE = Field(
    "micro_batch_size",
    "Micro-batch size",
    "",
    blank="from K",
    about="Samples of a micro-batch, as numbers and ranges; K is then batch / (D × size), and the field K is not read.",
)
STAGES_PER_DEVICE = Field(
    "stages_per_device",
    "Stages per device",
    "1",
    about="Pipeline stages on each device, as numbers and ranges. Where it is several, the pipeline goes round the "
    "devices that often (interleaved 1F1B), which shortens its bubble and sends more.",
)
_EVERY = "all"
RANK_ORDER = Field(
    "rank_order",
    "Rank order",
    DEFAULT_RANK_ORDER[0],
    (DEFAULT_RANK_ORDER[0], *("-".join(order) for order in every_rank_order()[1:]), _EVERY),
    about="Which dimensions are neighbouring devices, innermost first. The usual order keeps tensor groups inside a "
    "node; all tries each order that differs on the mesh.",
)
ORDERS = Field("orders", "Orders", DEFAULT_ORDER, chain_schedulers(), several=True)
RECOMPUTE = Field(
    "recompute",
    "Recomputation",
    str(Recompute.NONE),
    tuple(Recompute),
    several=True,
    about="What runs again for the backward and need not be kept: nothing, all but products and attention (selective), "
    "or whole layers (full). More takes longer and holds less.",
)
ZERO = Field("zero", "Also try ZeRO-1", False, about="Replicas that share the optimizer's state.")

_USUAL = {"layers": "16", "width": "8192", "batch": "1024,8192"}
"""Sizes of an MLP at first, so that there is something to choose between."""
_FORMATS = ("fp16", "bf16", "fp32")


def size_fields(family: str) -> tuple[Field, ...]:
    """The fields about the networks of one family."""
    return tuple(_size_field(find_family(family), size) for size in find_family(family).sizes)


def _size_field(family: Family, size: Size) -> Field:
    name = f"{family.name}-{size.name}"
    choices = _FORMATS if size.name == "dtype" else size.choices
    if choices:
        return Field(name, size.label, str(size.default), choices, several=True)
    usual = _USUAL[size.name] if family.name == "mlp" else str(size.default or "")
    return Field(name, size.label, usual, blank="as usual" if size.default is None and not usual else "")


_FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        *(FAMILY, MESH, SEMANTICS, *DEGREES, STAGES_PER_DEVICE, MICRO_BATCH_SIZE, ORDERS, RANK_ORDER, RECOMPUTE, ZERO),
        *(field for family in FAMILIES for field in size_fields(family)),
    )
}


@dataclass(frozen=True)
class Asked:
    """The question that a filled form asks."""

    family: str
    mesh: str
    grid: Grid
    semantics: Semantics
    open_mesh: DeviceMesh | None = None
    """The devices; None for those of the choice called `mesh`."""

    @property
    def devices(self) -> DeviceMesh:
        return self.open_mesh or mesh_named(self.mesh)

    @property
    def configurations(self) -> int:
        """How many configurations there are on these devices."""
        mesh = self.devices
        return len(self.grid.configurations(find_family(self.family), len(mesh.devices), nodes_of(mesh)))


def answer_to(field: Field, answers: Mapping[str, Answer]) -> Answer:
    """The answer that was given, else the usual one."""
    return answers.get(field.name, field.usual)


def check_answers(answers: Mapping[str, object]) -> dict[str, Answer]:
    """Answers from a file, those that are usual left out.

    Text that is no range stays, since somebody has typed it and the page says what is wrong with it.

    Raises InputError for a field or a choice that is not known, and for an answer of another type.
    """
    found: dict[str, Answer] = {}
    if answers.get(RECOMPUTE.name) is True:  # from before there were several ways
        answers = {**answers, RECOMPUTE.name: f"{Recompute.NONE},{Recompute.FULL}"}
    for name, answer in answers.items():
        if name not in _FIELDS:
            raise InputError(f"strategies: {name}", "is not known")
        field = _FIELDS[name]
        if not isinstance(answer, bool if isinstance(field.usual, bool) else str):
            raise InputError(f"strategies: {name}", f"cannot be {answer!r}")
        assert isinstance(answer, str | bool)
        words = chosen(field, answers) if field.choices else ()
        for word in words:
            if word not in field.choices:
                raise InputError(f"strategies: {name}", f"{word!r} is not known")
        if field.choices and not field.several and len(words) != 1:
            raise InputError(f"strategies: {name}", f"takes one choice, got {len(words)}")
        if answer != field.usual:
            found[name] = answer
    return found


def chosen(field: Field, answers: Mapping[str, object]) -> tuple[str, ...]:
    """Those of the field's choices that are taken."""
    words = answers.get(field.name, field.usual)
    return tuple(filter(None, str(words).split(",")))


def asked_by(answers: Mapping[str, Answer], open_mesh: DeviceMesh | None = None) -> Asked:
    """The question that answers ask, on the open mesh where there is one.

    Raises InputError, with the field's label, for words that make no sense.
    """
    (family,), (mesh,), (semantics,) = (chosen(field, answers) for field in (FAMILY, MESH, SEMANTICS))
    pairs = zip(find_family(family).sizes, size_fields(family), strict=True)
    sizes = {size.name: _values(field, answers) for size, field in pairs}
    data, tensor, pipeline, micro = (read_range(str(answer_to(each, answers)), each.label) for each in DEGREES)
    zero = (False, True) if answer_to(ZERO, answers) else (False,)
    size, several = (
        read_range(str(answer_to(field, answers)), field.label) for field in (MICRO_BATCH_SIZE, STAGES_PER_DEVICE)
    )
    (ranks,) = chosen(RANK_ORDER, answers)
    known = ranges(**{name: values for name, values in sizes.items() if values is not None})
    try:
        how = chosen(ORDERS, answers), tuple(map(Recompute, chosen(RECOMPUTE, answers))), zero
        grid = Grid(known, data, tensor, pipeline, micro, *how, size, several, _rank_orders(ranks))
    except InputError as error:
        fields = (*DEGREES, MICRO_BATCH_SIZE, STAGES_PER_DEVICE, RECOMPUTE, *size_fields(family))
        labels = {each.name: each.label for each in fields}
        raise InputError(labels.get(error.where, error.where), error.why) from None
    return Asked(family, mesh if open_mesh is None else open_mesh.name, grid, Semantics(semantics), open_mesh)


def _rank_orders(choice: str) -> tuple[RankOrder | None, ...]:
    """The orders of one of the choices of `RANK_ORDER`; None for the usual one."""
    if choice == _EVERY:
        return every_rank_order()
    return (None,) if choice == RANK_ORDER.usual else (tuple(choice.split("-")),)


def rank_order_title(choice: str) -> str:
    """The title of one of the choices of `RANK_ORDER`."""
    return {_EVERY: "All orders", RANK_ORDER.usual: "Tensor innermost"}.get(choice, choice.replace("-", ", "))


def _values(field: Field, answers: Mapping[str, Answer]) -> tuple[Value, ...] | None:
    """The values of one size; None where it is left as usual."""
    if field.choices:
        return chosen(field, answers)
    words = str(answer_to(field, answers))
    return None if field.blank and not words.strip() else read_range(words, field.label)


def mesh_named(name: str) -> DeviceMesh:
    """The mesh of one of the choices of `MESH`."""
    return replace(equal_devices(16, 1.4e13, 9e11, 25), name=UNIFORM) if name == UNIFORM else find_mesh(name)


def mesh_title(name: str) -> str:
    """The title of one of the choices of `MESH`."""
    return "DistIR's: 16 equal devices, 25 Gb/s" if name == UNIFORM else MESHES[name].title
