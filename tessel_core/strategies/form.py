"""The form of the page Strategies: its fields with default values, and the grid that a filled form describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessel_core.costs.meshes import MESHES, find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.operators.formats import FP8
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.model import DeviceMesh
from tessel_core.strategies.families import FAMILIES, Family, Size, Value, find_family
from tessel_core.strategies.grid import Grid, ranges, read_range
from tessel_core.strategies.orders import DEFAULT_ORDER, chain_schedulers
from tessel_core.strategies.ranks import DEFAULT_RANK_ORDER, RankOrder, every_rank_order
from tessel_core.strategies.strategy import (
    GRADIENT_FORMATS,
    NO_EXPERTS,
    NO_SEQUENCE,
    ZERO_STAGES,
    Semantics,
    can_be_shared,
    equal_devices,
)
from tessel_core.strategies.wiring import nodes_of

Answer = str | bool
"""Answer to a field: a text, selected words separated by commas, or the state of a switch."""

UNIFORM = "distir-16"
"""Mesh of DistIR's experiments. It is not a preset, because its devices are not real products."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form.

    With `choices`, the user selects words. Without them, the field is a switch, or a text with numbers and ranges.
    """

    name: str
    label: str
    usual: Answer
    choices: tuple[str, ...] = ()
    several: bool = False
    """Whether the user may select more than one of the choices."""
    blank: str = ""
    """Placeholder that explains an empty answer. Empty if an answer is required."""
    about: str = ""
    """Help text."""


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
    about="Samples per micro-batch, as numbers and ranges. K is then batch / (D × size), and the field K is ignored.",
)
STAGES_PER_DEVICE = Field(
    "stages_per_device",
    "Stages per device",
    "1",
    about="Pipeline stages per device, as numbers and ranges. With several, each micro-batch passes all devices that "
    "many times (interleaved 1F1B). The bubble is shorter, and devices send more.",
)
_EVERY = "all"
RANK_ORDER = Field(
    "rank_order",
    "Rank order",
    DEFAULT_RANK_ORDER[0],
    (DEFAULT_RANK_ORDER[0], *("-".join(order) for order in every_rank_order()[1:]), _EVERY),
    about="Dimensions of the ranks, innermost first: ranks along the first one are neighbouring devices. The default "
    "order keeps tensor groups within a node; all tries each order that makes a difference on the mesh.",
)
ORDERS = Field("orders", "Orders", DEFAULT_ORDER, chain_schedulers(), several=True)
RECOMPUTE = Field(
    "recompute",
    "Recomputation",
    str(Recompute.NONE),
    tuple(Recompute),
    several=True,
    about="Operations that run again in the backward pass, so that their results need not be kept: none, every second "
    "product and all cheap operations (selective), or whole layers (full). More recomputation takes longer and needs "
    "less memory.",
)
ZERO = Field(
    "zero",
    "ZeRO",
    "0",
    tuple(map(str, ZERO_STAGES)),
    several=True,
    about="Stages to try: replicas share the optimizer's state (1), also gradients (2), and also weights (3, FSDP). A "
    "higher stage needs less memory and sends more.",
)
CONTEXT = Field(
    "context",
    "Context C",
    "1",
    about="Devices that share the tokens of each sample, as numbers and ranges. With more of them, each one holds less "
    "of a long sequence and sends more.",
)
CONTEXT_METHOD = Field(
    "context_method",
    "Context method",
    str(ContextMethod.RING),
    tuple(ContextMethod),
    several=True,
    about="How devices that share tokens compute attention: keys and values circulate in a ring, or each device "
    "computes some of the heads (all-to-all).",
)
EXPERT = Field(
    "expert",
    "Experts E",
    "1",
    about="Devices that share the experts of each layer, as numbers and ranges. They are the devices of D, C and H, so "
    "a higher degree needs no further devices.",
)
SEQUENCE_PARALLEL = Field(
    "sequence_parallel",
    "Sequence parallel",
    False,
    about="Tensor-parallel devices also divide activations along the tokens, which needs less memory.",
)
COMPILED = Field(
    "compiled", "Compiled", False, about="Compile each layer with torch.compile, which fuses pointwise operators."
)
_OF_WEIGHTS = "weights"
GRAD_DTYPE = Field(
    "grad_dtype",
    "Gradients",
    _OF_WEIGHTS,
    (_OF_WEIGHTS, *GRADIENT_FORMATS[1:]),
    several=True,
    about="Number formats in which gradients are summed: that of the weights, or another one.",
)
ATTENTION = Field(
    "attention",
    "Attention",
    str(AttentionKernel.FUSED),
    tuple(AttentionKernel),
    several=True,
    about="The fastest fused kernel, FlashAttention 2, or one operator per step, which keeps scores in memory.",
)
MORE_CUTS = (CONTEXT, CONTEXT_METHOD, EXPERT, SEQUENCE_PARALLEL, GRAD_DTYPE, ATTENTION, COMPILED)
"""Fields that most grids leave at their default values."""

_FIRST_SIZES = ("size", "layers", "width", "sequence", "batch", "dtype", "mode")
"""Sizes that most users change."""
_MLP_SIZES = {"layers": "16", "width": "8192", "batch": "1024,8192"}
"""Default sizes of an MLP. With these sizes, strategies differ clearly."""
_FORMATS = ("fp16", "bf16", "fp32", FP8)


def size_fields(family: str) -> tuple[Field, ...]:
    """Return the fields for the sizes of a family."""
    return tuple(_size_field(find_family(family), size) for size in find_family(family).sizes)


def first_size_fields(family: str) -> tuple[Field, ...]:
    """Return those fields of `size_fields` that most users change."""
    names = [f"{family}-{name}" for name in _FIRST_SIZES]
    return tuple(field for field in size_fields(family) if field.name in names)


def objection(field: Field, answers: Mapping[str, Answer]) -> str:
    """Return why a field of `MORE_CUTS` has no effect with these answers, in one sentence.

    Empty if it has an effect.
    """
    (name,) = chosen(FAMILY, answers)
    family = find_family(name)
    shared = can_be_shared(family, family.spec())
    if field in (CONTEXT, CONTEXT_METHOD) and not shared.sequence:
        return f"{NO_SEQUENCE.capitalize()}."
    if field is CONTEXT_METHOD and str(answer_to(CONTEXT, answers)).strip() == CONTEXT.usual:
        return "Devices share tokens only if the context degree C is above 1."
    if field is EXPERT and not shared.experts:
        return f"{NO_EXPERTS.capitalize()}."
    return ""


def _size_field(family: Family, size: Size) -> Field:
    name = f"{family.name}-{size.name}"
    choices = _FORMATS if size.name == "dtype" else size.choices
    if choices:
        return Field(name, size.label, str(size.default), choices, several=True)
    usual = _MLP_SIZES[size.name] if family.name == "mlp" else str(size.default or "")
    return Field(name, size.label, usual, blank="as usual" if size.default is None and not usual else "")


_FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        *(FAMILY, MESH, SEMANTICS, *DEGREES, STAGES_PER_DEVICE, MICRO_BATCH_SIZE, ORDERS, RANK_ORDER, RECOMPUTE, ZERO),
        *MORE_CUTS,
        *(field for family in FAMILIES for field in size_fields(family)),
    )
}


@dataclass(frozen=True)
class Asked:
    """The family, the mesh, the grid and the semantics that a filled form describes."""

    family: str
    mesh: str
    grid: Grid
    semantics: Semantics
    open_mesh: DeviceMesh | None = None
    """The mesh that is open in the app. None if `mesh` names the mesh."""

    @property
    def devices(self) -> DeviceMesh:
        return self.open_mesh or mesh_named(self.mesh)

    @property
    def configurations(self) -> int:
        """Number of configurations of the grid that fit on the devices of the mesh."""
        mesh = self.devices
        return len(self.grid.configurations(find_family(self.family), len(mesh.devices), nodes_of(mesh)))


def answer_to(field: Field, answers: Mapping[str, Answer]) -> Answer:
    """Return the answer to a field, or the field's default."""
    return answers.get(field.name, field.usual)


def check_answers(answers: Mapping[str, object]) -> dict[str, Answer]:
    """Return the answers of a file without those that equal the defaults.

    A text that is not a valid range is kept. The page shows the error, and the user can correct it.

    Raises InputError for an unknown field or choice, and for an answer of a wrong type.
    """
    found: dict[str, Answer] = {}
    if answers.get(RECOMPUTE.name) is True:  # Files of older versions have a single kind of recomputation.
        answers = {**answers, RECOMPUTE.name: f"{Recompute.NONE},{Recompute.FULL}"}
    if isinstance(answers.get(ZERO.name), bool):  # Files of older versions have a single stage of ZeRO.
        answers = {**answers, ZERO.name: "0,1" if answers[ZERO.name] else "0"}
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
            raise InputError(f"strategies: {name}", f"must be one choice, got {len(words)}")
        if answer != field.usual:
            found[name] = answer
    return found


def chosen(field: Field, answers: Mapping[str, object]) -> tuple[str, ...]:
    """Return the selected choices of a field."""
    words = answers.get(field.name, field.usual)
    return tuple(filter(None, str(words).split(",")))


def asked_by(answers: Mapping[str, Answer], open_mesh: DeviceMesh | None = None) -> Asked:
    """Return the grid and everything else that the answers describe. If a mesh is open in the app, it is used.

    Raises InputError with the label of the field for an invalid text.
    """
    without_effect = {field.name for field in MORE_CUTS if objection(field, answers)}
    answers = {name: answer for name, answer in answers.items() if name not in without_effect}
    (family,), (mesh,), (semantics,) = (chosen(field, answers) for field in (FAMILY, MESH, SEMANTICS))
    pairs = zip(find_family(family).sizes, size_fields(family), strict=True)
    sizes = {size.name: _values(field, answers) for size, field in pairs}
    read = {field.name: read_range(str(answer_to(field, answers)), field.label) for field in _RANGES}
    (ranks,) = chosen(RANK_ORDER, answers)
    known = ranges(**{name: values for name, values in sizes.items() if values is not None})
    try:
        grid = Grid(
            known,
            **read,
            schedule=chosen(ORDERS, answers),
            recompute=tuple(map(Recompute, chosen(RECOMPUTE, answers))),
            zero=tuple(map(int, chosen(ZERO, answers))),
            rank_order=_rank_orders(ranks),
            context_method=tuple(map(ContextMethod, chosen(CONTEXT_METHOD, answers))),
            grad_dtype=tuple("" if each == _OF_WEIGHTS else each for each in chosen(GRAD_DTYPE, answers)),
            attention=tuple(map(AttentionKernel, chosen(ATTENTION, answers))),
            sequence_parallel=bool(answer_to(SEQUENCE_PARALLEL, answers)),
            compiled=bool(answer_to(COMPILED, answers)),
        )
    except InputError as error:
        fields = (*_RANGES, *MORE_CUTS, RECOMPUTE, ZERO, *size_fields(family))
        labels = {each.name: each.label for each in fields}
        raise InputError(labels.get(error.where, error.where), error.why) from None
    return Asked(family, mesh if open_mesh is None else open_mesh.name, grid, Semantics(semantics), open_mesh)


_RANGES = (*DEGREES, MICRO_BATCH_SIZE, STAGES_PER_DEVICE, CONTEXT, EXPERT)
"""Fields with numbers and ranges. They have the same names as fields of `Grid`."""


def _rank_orders(choice: str) -> tuple[RankOrder | None, ...]:
    """Return the rank orders of a choice of `RANK_ORDER`. None is the default order."""
    if choice == _EVERY:
        return every_rank_order()
    return (None,) if choice == RANK_ORDER.usual else (tuple(choice.split("-")),)


def rank_order_title(choice: str) -> str:
    """Return the title of a choice of `RANK_ORDER`."""
    return {_EVERY: "All orders", RANK_ORDER.usual: "Tensor innermost"}.get(choice, choice.replace("-", ", "))


def _values(field: Field, answers: Mapping[str, Answer]) -> tuple[Value, ...] | None:
    """Return the values of one size. None if the default applies."""
    if field.choices:
        return chosen(field, answers)
    words = str(answer_to(field, answers))
    return None if field.blank and not words.strip() else read_range(words, field.label)


def mesh_named(name: str) -> DeviceMesh:
    """Return the mesh for a choice of `MESH`."""
    return replace(equal_devices(16, 1.4e13, 9e11, 25), name=UNIFORM) if name == UNIFORM else find_mesh(name)


def mesh_title(name: str) -> str:
    """Return the title of a choice of `MESH`."""
    return "DistIR's: 16 equal devices, 25 Gb/s" if name == UNIFORM else MESHES[name].title
