"""The catalogue of `sample_models/`: plans, operator graphs and meshes to start from, each with where it comes from."""

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
"""What `tessel recommend` says of one model on one cluster; tools/make_recommended.py makes it."""
CATALOGUE = "catalogue.json"
CATALOGUE_FORMAT = "tessel-catalogue"
PLANS, GRAPHS, MESHES = "samples", "graphs", "meshes"
"""Keys of the catalogue."""
_SUFFIXES = (".json", ".onnx")
"""Suffixes of files; a sample's name may have a dot as well, as gpt-6.7b-v-8 does."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One entry of the catalogue; the file itself is read when it is asked for."""

    name: str
    title: str
    description: str
    provenance: str
    family: str
    path: Path


_SAMPLE = Record(Sample, without=("path",))


def list_samples(folder: Path = SAMPLE_FOLDER) -> tuple[Sample, ...]:
    """Every sample plan, in the order of the catalogue; reads one small file.

    Raises InputError when the catalogue is missing or not what it should be.
    """
    return _listed(folder)[PLANS]


def list_graphs(folder: Path = SAMPLE_FOLDER) -> tuple[Sample, ...]:
    """Every sample graph, as `list_samples`."""
    return _listed(folder)[GRAPHS]


def list_meshes(folder: Path = SAMPLE_FOLDER) -> tuple[Sample, ...]:
    """Every sample mesh, as `list_samples`."""
    return _listed(folder)[MESHES]


def load_sample(name: str, folder: Path = SAMPLE_FOLDER) -> MicroBatchPlan:
    """The plan of the sample called `name`, or else so but for hyphens, underscores, spaces and case.

    >>> load_sample("V shape 4").name
    'v-shape-4'

    Raises InputError with the nearest names, if any, where there is none, and as for files.
    """
    return read_plan(*_opened(name, list_samples(folder)))


def load_graph(name: str, folder: Path = SAMPLE_FOLDER) -> OperatorGraph:
    """The sample graph called `name`; InputError as for `load_sample`."""
    return read_graph(*_opened(name, list_graphs(folder))).graph


def load_mesh(name: str, folder: Path = SAMPLE_FOLDER) -> DeviceMesh:
    """The sample mesh called `name`; InputError as for `load_sample`."""
    return read_mesh(*_opened(name, list_meshes(folder))).mesh


def _opened(name: str, among: Sequence[Sample]) -> tuple[bytes, str]:
    """A sample's file and what it is called in complaints."""
    path = _found(name, among).path
    return read_bytes(path), str(path)


def sample_or_file(name_or_path: str, folder: Path = SAMPLE_FOLDER) -> Path:
    """The file of the sample called so, of any kind, else the file at that path; `./name` is always a file.

    Raises InputError with the nearest names, where a bare name is neither.
    """
    every = [sample for samples in _listed(folder).values() for sample in samples]
    for sample in every:
        if sample.name == name_or_path:
            return sample.path
    path = Path(name_or_path)
    if path.suffix in _SUFFIXES or path.name != name_or_path or path.exists():
        return path
    hint = nearest(name_or_path, (sample.name for sample in every), "`tessel samples` lists all samples")
    raise InputError(name_or_path, f"is neither a sample nor a file, {hint}")


def sample_text(name: str, folder: Path = SAMPLE_FOLDER) -> str:
    """The file of the sample called `name`, whatever it holds; InputError as for `load_sample`."""
    every = [sample for samples in _listed(folder).values() for sample in samples]
    return read_bytes(_found(name, every).path).decode()


def _listed(folder: Path) -> dict[str, tuple[Sample, ...]]:
    """Per key of the catalogue, its samples; only plans must be there."""
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


def _found(name: str, among: Sequence[Sample]) -> Sample:
    samples = {sample.name: sample for sample in among}
    loosely = {_bare(each): sample for each, sample in samples.items()}
    found = samples.get(name) or loosely.get(_bare(name))
    if found is not None:
        return found
    hint = nearest(name, samples, f"`tessel samples` lists all {len(samples)}")
    raise InputError("sample", f"{name!r} is not known, {hint}")


def _bare(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).casefold()


def _sample(fields: Fields, folder: Path) -> Sample:
    name = fields.text("name")
    if Path(name).name != name:
        raise InputError(fields.place("name"), f"must be a plain file name, got {name!r}")
    return _SAMPLE.from_fields(fields, path=folder / f"{name}.json")
