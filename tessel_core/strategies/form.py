"""The form that compares strategies: fields with their usual answers, and the grid that the answers ask for."""

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
    about="What runs again for the backward and need not be kept: nothing, every second product and the quick rest "
    "(selective), or whole layers (full). More takes longer and holds less.",
)
ZERO = Field(
    "zero",
    "ZeRO",
    "0",
    tuple(map(str, ZERO_STAGES)),
    several=True,
    about="Stages that are tried: replicas share the optimizer's state (1), gradients too (2), and weights too "
    "(3, FSDP). A higher stage holds less and sends more.",
)
CONTEXT = Field(
    "context",
    "Context C",
    "1",
    about="Devices that share the tokens of each sample, as numbers and ranges. More hold less of long sequences and "
    "send more.",
)
CONTEXT_METHOD = Field(
    "context_method",
    "Context method",
    str(ContextMethod.RING),
    tuple(ContextMethod),
    several=True,
    about="How devices that share tokens meet in the attention: keys and values go round (ring), or each device takes "
    "some of the heads (all-to-all).",
)
EXPERT = Field(
    "expert",
    "Experts E",
    "1",
    about="Devices that share the experts of each layer, as numbers and ranges. They are those of D, C and H, so more "
    "take no further devices.",
)
SEQUENCE_PARALLEL = Field(
    "sequence_parallel",
    "Sequence parallel",
    False,
    about="Devices that share tensors cut activations along the tokens, too, which holds less of them.",
)
COMPILED = Field(
    "compiled", "Compiled", False, about="Each layer runs as torch.compile makes it: pointwise operators are fused."
)
_OF_WEIGHTS = "weights"
GRAD_DTYPE = Field(
    "grad_dtype",
    "Gradients",
    _OF_WEIGHTS,
    (_OF_WEIGHTS, *GRADIENT_FORMATS[1:]),
    several=True,
    about="Formats in which gradients are summed: that of the weights, or another one.",
)
ATTENTION = Field(
    "attention",
    "Attention",
    str(AttentionKernel.FUSED),
    tuple(AttentionKernel),
    several=True,
    about="The fastest fused kernel, FlashAttention 2, or an operator for each step, which keeps scores in memory.",
)
MORE_CUTS = (CONTEXT, CONTEXT_METHOD, EXPERT, SEQUENCE_PARALLEL, GRAD_DTYPE, ATTENTION, COMPILED)
"""Fields that few grids need."""

_FIRST_SIZES = ("size", "layers", "width", "sequence", "batch", "dtype", "mode")
"""Sizes that most people change."""
_USUAL = {"layers": "16", "width": "8192", "batch": "1024,8192"}
"""Sizes of an MLP at first, so that there is something to choose between."""
_FORMATS = ("fp16", "bf16", "fp32", FP8)


def size_fields(family: str) -> tuple[Field, ...]:
    """The fields about the networks of one family."""
    return tuple(_size_field(find_family(family), size) for size in find_family(family).sizes)


def first_size_fields(family: str) -> tuple[Field, ...]:
    """Those of `size_fields` that most people change."""
    names = [f"{family}-{name}" for name in _FIRST_SIZES]
    return tuple(field for field in size_fields(family) if field.name in names)


def objection(field: Field, answers: Mapping[str, Answer]) -> str:
    """Why a field of `MORE_CUTS` has no effect with these answers, as a sentence; empty where it has one."""
    (name,) = chosen(FAMILY, answers)
    family = find_family(name)
    shared = can_be_shared(family, family.spec())
    if field in (CONTEXT, CONTEXT_METHOD) and not shared.sequence:
        return f"{NO_SEQUENCE.capitalize()}."
    if field is CONTEXT_METHOD and str(answer_to(CONTEXT, answers)).strip() == CONTEXT.usual:
        return "Devices share tokens where the context degree C is above 1."
    if field is EXPERT and not shared.experts:
        return f"{NO_EXPERTS.capitalize()}."
    return ""


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
        *MORE_CUTS,
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
    if isinstance(answers.get(ZERO.name), bool):  # from before there were several stages
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
"""Fields of numbers and ranges, called like those of `Grid`."""


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
