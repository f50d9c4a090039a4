"""A family with only one network, which was read from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.program import Tag
from tessel_core.ir.transforms.attention import AttentionKernel, with_attention
from tessel_core.ir.transforms.condensed import renumbered
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.layering import with_layers
from tessel_core.ir.transforms.update import AdamUpdate, Optimizer
from tessel_core.ir.types import REAL, TensorType
from tessel_core.strategies.families import INFERENCE, TRAINING, Family, Size, Value


@dataclass(frozen=True, slots=True)
class ImportedWork:
    """The sizes of the network and its mode."""

    layers: int
    """Number of layers, as `with_layers` finds them. A pipeline can be divided between any two of them."""
    batch: int
    """Samples per step."""
    dtype: str
    """Number format of most weights."""
    training: bool


class ImportedFamily(Family):
    """A family with only one network.

    In training, the losses are the scalar results of the network. If it has none, the loss is the cross entropy of its
    results.

    Parameters
    ----------
    name
        Name of the network.
    programs
        Forward pass on one device, by its number of samples. Layers are not divided, because a file does not tell along
        which axes devices could divide a weight.

    Raises InputError if there are no programs, or the network has no weights.
    """

    sizes = (Size("batch", "Batch", 32), Size("mode", "Mode", TRAINING, (TRAINING, INFERENCE)))

    def __init__(self, name: str, programs: Mapping[int, Distributed]) -> None:
        if not programs:
            raise InputError(name, "has no program")
        self.name, self.title = name, f"{name}, training and inference"
        self._inference = {rows: with_layers(_with_roles(model, rows)) for rows, model in programs.items()}
        self._training = {rows: _with_losses(model) for rows, model in self._inference.items()}
        self._least = min(programs)
        first = self._inference[self._least]
        self._layers = 1 + max((op.tag.stage or 0 for op in first.program.ops), default=0)
        self._dtype = _usual_format(name, first)

    @property
    def samples(self) -> tuple[int, ...]:
        """Numbers of samples for which there is a program, in ascending order."""
        return tuple(sorted(self._inference))

    def spec(self, *values: Any, **named: Any) -> ImportedWork:
        """Return the network with values of `sizes`, given in order or by name."""
        asked = {size.name: size.default for size in self.sizes}
        asked |= dict(zip(asked, values, strict=False)) | named
        if asked["mode"] not in (TRAINING, INFERENCE):
            raise InputError("mode", f"must be {TRAINING} or {INFERENCE}, got {asked['mode']!r}")
        return ImportedWork(self._layers, int(asked["batch"] or 0), self._dtype, asked["mode"] == TRAINING)

    def forward(self, spec: ImportedWork) -> Distributed:
        """Return the program for the batch of the spec. Raises InputError if there is none."""
        programs = self._training if spec.training else self._inference
        if spec.batch not in programs:
            known = ", ".join(map(str, self.samples))
            raise InputError(self.name, f"has programs for {known} samples per micro-batch, not for {spec.batch}")
        return programs[spec.batch]

    def completed(
        self,
        forward: Distributed,
        spec: ImportedWork,
        *,
        split_weights: bool = False,
        attention: AttentionKernel = AttentionKernel.FUSED,
    ) -> Distributed:
        """Return the program for a forward pass. Weights on which no loss depends are not trained."""
        model = with_attention(attention, forward)
        if not spec.training:
            return model
        return _used(Gradients(split_weights=split_weights, of_outputs=True)(model))

    def sample(self, spec: ImportedWork) -> tuple[ImportedWork, float]:
        """Return the spec with the smallest number of samples for which there is a program.

        The second value is the batch of `spec` divided by this number.
        """
        return replace(spec, batch=self._least), spec.batch / self._least

    def optimizer(self, spec: ImportedWork) -> Optimizer | None:
        """Return Adam with fp32 state for training, and None for inference."""
        return AdamUpdate() if spec.training else None

    def tokens(self, spec: ImportedWork) -> None:
        """Return None, because a file does not tell which axis has the tokens."""
        return

    def objection(self, spec: ImportedWork, tensor: int) -> str:
        """Return an objection to every tensor degree above 1, because weights are not divided."""
        return "" if tensor == 1 else "a file does not say along which axes devices could divide its weights"

    def shared_side(self, spec: ImportedWork, tensor: int) -> int:
        """Return 0. If an axis does not divide, the error is raised when the optimizer state is divided."""
        return 0

    def sizes_of(self, spec: ImportedWork) -> Mapping[str, Value]:
        return {"layers": spec.layers, "batch": spec.batch, "dtype": spec.dtype, "mode": _mode(spec)}

    def with_batch(self, spec: ImportedWork, batch: int) -> ImportedWork:
        return replace(spec, batch=batch)

    def describe(self, spec: ImportedWork) -> str:
        """Return a text such as `model, 12 layers, training, batch 32, bf16`."""
        return f"{self.name}, {spec.layers} layers, {_mode(spec)}, batch {spec.batch}, {spec.dtype}"


def _mode(spec: ImportedWork) -> str:
    return TRAINING if spec.training else INFERENCE


def _with_roles(model: Distributed, rows: int) -> Distributed:
    """Return the model with roles.

    An input or output whose first axis has `rows` elements gets `batch_axis` 0, unless it is a weight.
    """
    program = model.program
    ends = [*zip(program.inputs, model.inputs, strict=True), *zip(program.outputs, model.outputs, strict=True)]
    roles = dict(model.roles)
    for value, piece in ends:
        shape, role = program.types[value].shape, model.role_of(piece)
        if not role.weight:
            roles[piece.name] = Role(batch_axis=0) if shape[:1] == (rows,) else Role()
    return replace(model, roles=roles)


def _with_losses(model: Distributed) -> Distributed:
    """Return the model with its losses as outputs.

    The losses are its scalar results. If it has none, they are the cross entropy of its results, whose last axis is the
    classes.
    """
    program = model.program
    pairs = [pair for pair in zip(program.outputs, model.outputs, strict=True) if program.types[pair[0]].dtype in REAL]
    losses = [pair for pair in pairs if not program.types[pair[0]].shape]
    if losses:
        outputs = tuple(piece for _, piece in losses)
        return replace(model, program=replace(program, outputs=tuple(value for value, _ in losses)), outputs=outputs)
    build, tag = ProgramBuilder.resumed(program), Tag(program.ops[-1].tag.stage, phase="forward", name="loss")
    inputs, roles = list(model.inputs), dict(model.roles)

    def given(name: str, shape: tuple[int, ...], role: Role) -> int:
        free = next(each for each in (name + "'" * i for i in count()) if each not in roles)
        inputs.append(Piece(free))
        roles[free] = role
        return build.input(free, TensorType("int32", shape, 1))

    number = given("n", (), Role())
    for value, piece in pairs:
        targets = given(f"{piece.name}.targets", program.types[value].shape[:-1], roles[piece.name])
        losses.append((build.one("cross_entropy", [value, targets, number], tag), piece))
    ended = build.finish([value for value, _ in losses])
    return Distributed(ended, tuple(inputs), tuple(piece for _, piece in losses), roles)


def _used(model: Distributed) -> Distributed:
    """Return the model without inputs that are gradients and that no operation uses.

    No operation uses the gradient of a loss.
    """
    kept = [pair for pair in model.piece_of.items() if model.program.uses[pair[0]] or not pair[1].name.startswith("d.")]
    program = replace(model.program, inputs=tuple(value for value, _ in kept))
    return replace(model, program=renumbered(program), inputs=tuple(piece for _, piece in kept))


def _usual_format(name: str, model: Distributed) -> str:
    """Return the number format of most weight elements. Raises InputError if there are no weights."""
    numbers = Counter[str]()
    for value, piece in model.piece_of.items():
        if model.role_of(piece).weight:
            numbers[model.program.types[value].dtype] += model.program.types[value].elements
    if not numbers:
        raise InputError(name, "has no weights, so there is nothing to train or to distribute")
    return numbers.most_common(1)[0][0]
