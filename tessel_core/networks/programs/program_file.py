"""Read a program from a file, which contains the text of a program or an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.formats.files import is_onnx
from tessel_core.formats.onnx import OnnxModel
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.program import Program
from tessel_core.ir.text import read_program
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.samples import with_samples
from tessel_core.networks.onnx import onnx_program


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A program, and warnings about its conversion."""

    model: Distributed
    """The program, with a name for each input and output."""
    whole: Distributed
    """The program before it was divided among replicas. Its roles tell which inputs hold samples."""
    warnings: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        """The program without names and roles."""
        return self.model.program


def read_program_file(data: bytes, name: str, sizes: Mapping[str, int] | None = None, replicas: int = 1) -> ProgramFile:
    """Read a program from its text or from an ONNX model.

    Parameters
    ----------
    data, name
        The file's bytes, and its name in error messages.
    sizes
        Open sizes of an ONNX model; see `OnnxModel.network`.
    replicas
        Number of devices that share the batch of an ONNX model. The batch is the first axis of its inputs.

    Raises
    ------
    InputError
        If the file cannot be read, with `name`, the place and the reason.
    """
    if not is_onnx(data, name):
        if sizes or replicas != 1:
            raise InputError(name, "is the text of a program, whose sizes and devices cannot be changed")
        if data.lstrip()[:1] == b"{":
            raise InputError(name, "is JSON, but a program's text or an ONNX model is needed")
        try:
            model = _named(read_program(data.decode(), name))
        except UnicodeDecodeError:
            raise InputError(name, "is not text") from None
        return ProgramFile(model, model)
    return model_program(OnnxModel.of(data, name), sizes, replicas)


def model_program(source: OnnxModel, sizes: Mapping[str, int] | None = None, replicas: int = 1) -> ProgramFile:
    """Convert an ONNX model to a program, as `read_program_file` does."""
    network = source.network(sizes)
    try:
        converted = onnx_program(network)
        model = _replicated(converted.model, network.inputs, replicas)
    except InputError as error:
        raise error.within(source.name) from None
    samples = dict.fromkeys(network.inputs, Role(batch_axis=0))
    whole = replace(converted.model, roles={**converted.model.roles, **samples})
    return ProgramFile(model, whole, converted.warnings)


def _named(program: Program) -> Distributed:
    """Return the program with each input and output as a whole tensor with its own name."""
    inputs, outputs = (
        tuple(Piece(program.value_name(value)) for value in values) for values in (program.inputs, program.outputs)
    )
    return Distributed(program, inputs, outputs, dict.fromkeys((piece.name for piece in (*inputs, *outputs)), Role()))


def _replicated(model: Distributed, inputs: tuple[str, ...], replicas: int) -> Distributed:
    """Divide the batch among replicas.

    An input holds samples if its first axis is as long as that of the first input that has axes.
    """
    if replicas == 1:
        return model
    types = {piece.name: model.program.types[value] for value, piece in model.piece_of.items()}
    sizes = {name: types[name].shape[0] for name in inputs if types[name].shape}
    batch = next(iter(sizes.values()), 0)
    return DataParallel(replicas)(with_samples(model, {name: 0 for name, size in sizes.items() if size == batch}))
