"""Read the argument MODEL of `tessel recommend`.

It is a preset, a config, an operator graph, an ONNX model or a PyTorch module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tessel_core.cli.graph import asked_module
from tessel_core.cli.output import as_typed, print_notes
from tessel_core.cli.simulation_problem import assignments, given_sizes, named_family, number_or_text
from tessel_core.errors import InputError, nearest
from tessel_core.formats import GraphFile
from tessel_core.formats.files import a_kind, read_any
from tessel_core.formats.onnx import OnnxModel
from tessel_core.formats.onnx.sizes import all_sizes, asked_sizes, open_sizes
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.formats import FP8
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.networks.graphs.table import network_of
from tessel_core.networks.onnx import onnx_program
from tessel_core.samples import list_graphs
from tessel_core.strategies.families import FAMILIES, Family, Spec, find_family
from tessel_core.strategies.imported import ImportedFamily
from tessel_core.strategies.naming import preset_names, sizes_said

USUAL_MICRO_BATCHES = (1, 2, 4, 8)
"""Samples per micro-batch that are tried by default."""
_MODE = "mode"

ProgramOf = Callable[[int | None], tuple[Distributed, int]]
"""Function from a number of samples to the program and that number.

For None, it uses the number of samples in the file.
"""


def named_model(
    what: str,
    batch: int,
    *,
    torch: bool = False,
    sequence: int | None = None,
    dtype: str | None = None,
    changes: Sequence[str] = (),
    micro_batches: tuple[int, ...] = (),
) -> tuple[Family, Spec]:
    """Return the family and the network of a MODEL for steps of `batch` samples.

    Parameters
    ----------
    torch
        Whether `what` is a FILE.py:FUNCTION, which is executed.
    sequence, dtype
        Tokens per sample, and the number format; None for the model's own, which is bf16 except in ONNX files.
    changes
        Assignments NAME=VALUE: options of a network, or sizes that an ONNX file leaves open.
    micro_batches
        Samples per micro-batch for which a program is needed; empty for `USUAL_MICRO_BATCHES`.

    Raises InputError for an unknown model, for sizes that it does not have, and for impossible numbers of samples.
    """
    known = None if torch else named_family(what) or _of_known_graph(what)
    if known is not None:
        family, sizes = known
        given: dict[str, Any] = {"batch": batch, "dtype": "bf16" if dtype in (None, FP8) else dtype}
        given |= {"sequence": sequence} | {n: number_or_text(value) for n, value in assignments(changes).items()}
        with as_typed(lambda name: {"batch": "--global-batch"}.get(name, f"--set {name}")):
            return family, family.spec(**{**sizes, **given_sizes(family, given)})
    if sequence is not None:
        raise InputError("--sequence", "applies only to presets and configs; a file of a program has fixed sizes")
    mode = [each for each in changes if each.startswith(f"{_MODE}=")]
    rest = [each for each in changes if each not in mode]
    programs = _of_module(what, dtype, rest) if torch else _of_onnx(what, dtype, rest)
    family = ImportedFamily(short_name(what), _programs(what, programs, micro_batches))
    with as_typed(lambda name: {"batch": "--global-batch"}.get(name, f"--set {name}")):
        return family, family.spec(batch=batch, **assignments(mode))


def short_name(what: str) -> str:
    """Return the name of a preset, or the name of a file without its folder and suffix."""
    path = what.rpartition(":")[0] if ".py:" in what else what
    return Path(path).stem if Path(path).is_file() else what


def graph_to_place(what: str, *, as_graph: bool) -> GraphFile | None:
    """Return the operator graph of a file or sample that shows no known network. None for any other model.

    With `as_graph`, also return a graph that shows a known network. Raises InputError then for any other model.
    """
    found = None if named_family(what) else _graph_file(what)
    if as_graph and found is None:
        raise InputError("--as-graph", f"is for an operator graph, and {what} is not the file or sample of one")
    return found if found is not None and (as_graph or _network(found) is None) else None


def _graph_file(what: str) -> GraphFile | None:
    """Return the operator graph of a file or sample, or None."""
    sample = next((each for each in list_graphs() if each.name == what), None)
    if sample is not None:
        return read_graph_file(sample.path)
    found = read_any(Path(what)) if Path(what).is_file() else None
    return found if isinstance(found, GraphFile) else None


@lru_cache(maxsize=1)
def _network(file: GraphFile) -> tuple[Family, Mapping[str, Any]] | None:
    """Return the network that an operator graph was made from, with its sizes. None if it names none."""
    try:
        family, spec = network_of(file.graph)
    except InputError:
        return None
    return find_family(family.name), sizes_said(family.name, spec)


def _of_known_graph(what: str) -> tuple[Family, Mapping[str, Any]] | None:
    """Return the network that an operator graph was made from.

    Return None for an ONNX model, which `_of_onnx` reads. Raises InputError for other files.
    """
    graph = _graph_file(what)
    if graph is not None:
        return _network(graph)
    if not Path(what).is_file():
        hint = nearest(what, [*FAMILIES, *preset_names()], f"families are {', '.join(FAMILIES)}")
        raise InputError(what, f"is not a preset, family or file, {hint}")
    found = read_any(Path(what))
    if isinstance(found, OnnxModel):
        return None
    raise InputError(what, f"is {a_kind(found)}, but must be a config.json, an ONNX model or an operator graph")


def _programs(what: str, program_of: ProgramOf, asked: tuple[int, ...]) -> dict[int, Distributed]:
    """Return the programs by number of samples per micro-batch.

    The numbers are those in `asked`. If it is empty, they are those of `USUAL_MICRO_BATCHES` that the model allows. If
    it allows none of these, the only program has the number of samples of the file.
    """
    if asked:
        return {samples: program_of(samples)[0] for samples in asked}
    found, why = dict[int, Distributed](), ""
    for samples in USUAL_MICRO_BATCHES:
        try:
            found[samples] = program_of(samples)[0]
        except InputError as error:
            why = error.why
    if found:
        return found
    model, samples = program_of(None)
    print_notes(what, [f"every micro-batch has its {samples} samples ({why})"])
    return {samples: model}


def _of_module(target: str, dtype: str | None, changes: Sequence[str]) -> ProgramOf:
    """Return a function that exports a PyTorch module for a number of samples."""
    from tessel_core.networks.pytorch import import_module

    if any(each.startswith("dtype=") for each in changes):
        raise InputError("--set dtype", "is an option of `tessel graph`; use --dtype here")
    wanted = "bf16" if dtype in (None, FP8) else dtype
    first = asked_module(target, [f"dtype={wanted}", *changes])

    def program(samples: int | None) -> tuple[Distributed, int]:
        if samples in (None, first.batch_size):
            return first.model, first.batch_size
        return import_module(target, wanted, samples).model, samples

    return program


def _of_onnx(what: str, dtype: str | None, changes: Sequence[str]) -> ProgramOf:
    """Return a function that reads an ONNX model for a number of samples.

    This number is the length of the first axis of the first input.
    """
    if dtype is not None:
        raise InputError("--dtype", "does not apply to an ONNX model, whose file fixes the formats")
    source = read_any(Path(what))
    assert isinstance(source, OnnxModel)
    given = open_sizes(changes, "--set")
    unknown = next((name for name in given if name not in source.open_sizes), None)
    if unknown is not None:
        raise InputError(f"--set {unknown}", f"is not an open size; these are {', '.join(source.open_sizes) or 'none'}")
    sizes = asked_sizes(source.open_sizes) | given
    own = _Read.of(source, sizes)
    batch = next((each for each in _batch_names(sizes, given) if _is_batch(source, sizes, own, each)), "")
    assumed = [name for name in sizes if name not in {batch, *given}]
    notes = [f"{name} is assumed to be {sizes[name]}; change it with --set {name}=N" for name in assumed]
    print_notes(what, [*own.warnings, *notes])

    def program(samples: int | None) -> tuple[Distributed, int]:
        if samples in (None, own.samples):
            return own.model, own.samples
        if not batch:
            why = f"fixes its batch at {own.samples}" if own.samples else "has no input with samples"
            raise InputError(what, f"{why}, so no micro-batch has {samples}")
        return _Read.of(source, {**sizes, batch: samples}).model, samples

    return program


@dataclass(frozen=True, slots=True)
class _Read:
    """An ONNX model with values for its symbolic sizes."""

    model: Distributed
    samples: int
    """Length of the first axis of the first input. 0 if the first input has no axis."""
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, source: OnnxModel, sizes: Mapping[str, int]) -> _Read:
        network = source.network(all_sizes(source.open_sizes, sizes))
        found = onnx_program(network)
        shape = network.tensors[network.inputs[0]].shape if network.inputs else ()
        return cls(found.model, shape[0] if shape else 0, found.warnings)


def _batch_names(sizes: Iterable[str], given: Collection[str]) -> list[str]:
    """Return the symbolic sizes that the user has not given. Names with `batch` come first."""
    return sorted((name for name in sizes if name not in given), key=lambda name: "batch" not in name.lower())


def _is_batch(source: OnnxModel, sizes: Mapping[str, int], own: _Read, name: str) -> bool:
    """Return whether a symbolic size is the number of samples."""
    return _Read.of(source, {**sizes, name: sizes[name] + 1}).samples == own.samples + 1
