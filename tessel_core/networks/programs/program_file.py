"""Programs from files: the text of one, or an ONNX model."""

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
    """A program, and warnings about how it was read."""

    model: Distributed
    """With a name for each input and output."""
    whole: Distributed
    """The same on one device, where it was divided among replicas; roles say which of its inputs are samples."""
    warnings: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        """The program alone."""
        return self.model.program


def read_program_file(data: bytes, name: str, sizes: Mapping[str, int] | None = None, replicas: int = 1) -> ProgramFile:
    """The program in a file, whichever kind it is.

    Parameters
    ----------
    data, name
        The file's bytes, and its name in error messages.
    sizes
        Of an ONNX model, what open sizes are, as for `OnnxModel.network`.
    replicas
        Of an ONNX model, how many devices share the batch, which is the first axis of its inputs.

    Raises InputError with the place and the reason, `name` first.
    """
    if not is_onnx(data, name):
        if sizes or replicas != 1:
            raise InputError(name, "is a program's text, which says itself its sizes and devices")
        if data.lstrip()[:1] == b"{":
            raise InputError(name, "is JSON, where a program's text or an ONNX model is wanted")
        try:
            model = _named(read_program(data.decode(), name))
        except UnicodeDecodeError:
            raise InputError(name, "is not text") from None
        return ProgramFile(model, model)
    return model_program(OnnxModel.of(data, name), sizes, replicas)


def model_program(source: OnnxModel, sizes: Mapping[str, int] | None = None, replicas: int = 1) -> ProgramFile:
    """The program of an ONNX model, as `read_program_file`."""
    network = source.network(sizes)
    try:
        found = onnx_program(network)
        model = _replicated(found.model, network.inputs, replicas)
    except InputError as error:
        raise error.within(source.name) from None
    samples = dict.fromkeys(network.inputs, Role(batch_axis=0))
    return ProgramFile(model, replace(found.model, roles={**found.model.roles, **samples}), found.warnings)


def _named(program: Program) -> Distributed:
    """Every input and output under its own name, whole."""
    inputs, outputs = (
        tuple(Piece(program.value_name(value)) for value in values) for values in (program.inputs, program.outputs)
    )
    return Distributed(program, inputs, outputs, dict.fromkeys((piece.name for piece in (*inputs, *outputs)), Role()))


def _replicated(model: Distributed, inputs: tuple[str, ...], replicas: int) -> Distributed:
    """Inputs whose first axis is as long as the first one's hold samples."""
    if replicas == 1:
        return model
    types = {piece.name: model.program.types[value] for value, piece in model.piece_of.items()}
    sizes = {name: types[name].shape[0] for name in inputs if types[name].shape}
    batch = next(iter(sizes.values()), 0)
    return DataParallel(replicas)(with_samples(model, {name: 0 for name, size in sizes.items() if size == batch}))
