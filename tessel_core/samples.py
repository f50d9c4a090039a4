"""Catalogue of `sample_models/`: plans, operator graphs and meshes, and where each comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tessel_core.bundle import BUNDLE
from tessel_core.errors import InputError, nearest
from tessel_core.formats.fields import Fields, header, parse
from tessel_core.formats.files import read_bytes
from tessel_core.formats.graph_file import read_graph
from tessel_core.formats.mesh_file import read_mesh
from tessel_core.formats.plan_file import read_plan
from tessel_core.formats.record import Record
from tessel_core.model import DeviceMesh, MicroBatchPlan, OperatorGraph

SAMPLE_FOLDER = BUNDLE / "sample_models"
WORKED_ANSWER = SAMPLE_FOLDER / "recommended.json"
"""Saved result of `tessel recommend` for one model on one cluster. It is written by tools/make_recommended.py."""
CATALOGUE = "catalogue.json"
CATALOGUE_FORMAT = "tessel-catalogue"
PLANS, GRAPHS, MESHES = "samples", "graphs", "meshes"
"""Keys of the catalogue."""
_SUFFIXES = (".json", ".onnx")
"""Suffixes that mark a name as a file.  Names of samples may contain dots too, such as gpt-6.7b-v-8."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One entry of the catalogue.  Its file is read later, on request."""

    name: str
    title: str
    description: str
    provenance: str
    family: str
    path: Path


_SAMPLE = Record(Sample, without=("path",))


def list_samples(folder: Path = SAMPLE_FOLDER) -> tuple[Sample, ...]:
    """Return the sample plans in the order of the catalogue.

    Raises InputError if the catalogue is missing or malformed.
    """
    return _listed(folder)[PLANS]


def list_graphs(folder: Path = SAMPLE_FOLDER) -> tuple[Sample, ...]:
    """Return the sample graphs; see `list_samples`."""
    return _listed(folder)[GRAPHS]


def list_meshes(folder: Path = SAMPLE_FOLDER) -> tuple[Sample, ...]:
    """Return the sample meshes; see `list_samples`."""
    return _listed(folder)[MESHES]


def load_sample(name: str, folder: Path = SAMPLE_FOLDER) -> MicroBatchPlan:
    """Read the sample plan called `name`.  Case, spaces, hyphens and underscores in the name do not matter.

    >>> load_sample("V shape 4").name
    'v-shape-4'

    Raises InputError with similar names if the name is unknown, or if the file cannot be read.
    """
    return read_plan(*_opened(name, list_samples(folder)))


def load_graph(name: str, folder: Path = SAMPLE_FOLDER) -> OperatorGraph:
    """Read the sample graph called `name`.  Raises InputError like `load_sample`."""
    return read_graph(*_opened(name, list_graphs(folder))).graph


def load_mesh(name: str, folder: Path = SAMPLE_FOLDER) -> DeviceMesh:
    """Read the sample mesh called `name`.  Raises InputError like `load_sample`."""
    return read_mesh(*_opened(name, list_meshes(folder))).mesh


def _opened(name: str, among: Sequence[Sample]) -> tuple[bytes, str]:
    """Return the contents of a sample's file and its name for error messages."""
    path = _sample_called(name, among).path
    return read_bytes(path), str(path)


def sample_or_file(name_or_path: str, folder: Path = SAMPLE_FOLDER) -> Path:
    """Return the path of the sample of this name, or else the path itself; `./name` is always a file.

    Raises InputError with similar names if a bare name is neither a sample nor a file.
    """
    all_samples = [sample for samples in _listed(folder).values() for sample in samples]
    for sample in all_samples:
        if sample.name == name_or_path:
            return sample.path
    path = Path(name_or_path)
    if path.suffix in _SUFFIXES or path.name != name_or_path or path.exists():
        return path
    hint = nearest(name_or_path, (sample.name for sample in all_samples), "`tessel samples` lists all samples")
    raise InputError(name_or_path, f"is neither a sample nor a file, {hint}")


def sample_text(name: str, folder: Path = SAMPLE_FOLDER) -> str:
    """Return the text of the sample file called `name`, of any kind.  Raises InputError like `load_sample`."""
    all_samples = [sample for samples in _listed(folder).values() for sample in samples]
    return read_bytes(_sample_called(name, all_samples).path).decode()


def _listed(folder: Path) -> dict[str, tuple[Sample, ...]]:
    """Return the samples for each key of the catalogue. The keys for graphs and meshes may be missing."""
    return _read(folder, read_bytes(folder / CATALOGUE))


@lru_cache(maxsize=2)
def _read(folder: Path, catalogue: bytes) -> dict[str, tuple[Sample, ...]]:
    path = folder / CATALOGUE
    fields = parse(catalogue, str(path))
    try:
        header(fields, CATALOGUE_FORMAT)
        fields.only("format", "version", PLANS, GRAPHS, MESHES)
        return {
            key: tuple(_sample(each, folder) for each in fields.objects(key)) if key == PLANS or fields.has(key) else ()
            for key in (PLANS, GRAPHS, MESHES)
        }
    except InputError as error:
        raise error.within(str(path)) from None


def _sample_called(name: str, among: Sequence[Sample]) -> Sample:
    samples = {sample.name: sample for sample in among}
    by_bare_name = {_bare(each): sample for each, sample in samples.items()}
    sample = samples.get(name) or by_bare_name.get(_bare(name))
    if sample is not None:
        return sample
    hint = nearest(name, samples, f"`tessel samples` lists all {len(samples)}")
    raise InputError("sample", f"{name!r} is not known, {hint}")


def _bare(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).casefold()


def _sample(fields: Fields, folder: Path) -> Sample:
    name = fields.text("name")
    if Path(name).name != name:
        raise InputError(fields.place("name"), f"must be a plain file name, got {name!r}")
    return _SAMPLE.from_fields(fields, path=folder / f"{name}.json")
