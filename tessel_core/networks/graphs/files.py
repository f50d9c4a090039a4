"""Operator graphs from files of any format."""

from __future__ import annotations

from pathlib import Path

from tessel_core.formats import GraphFile
from tessel_core.formats.files import Known, read_any, refused
from tessel_core.formats.onnx import OnnxModel


def read_graph_file(path: Path, name: str = "") -> GraphFile:
    """A graph of any format; of an ONNX model that of its program, with 1 for each size that the model leaves open.

    Raises InputError where the file holds something else; complaints call it by `name`, else by its path.
    """
    found = with_graph(read_any(path, name))
    if isinstance(found, GraphFile):
        return found
    raise refused(found, name or str(path), "an operator graph")


def with_graph(found: Known) -> Known:
    """The graph of an ONNX model; anything else as it is."""
    if not isinstance(found, OnnxModel):
        return found
    from tessel_core.networks.onnx import model_graph

    return model_graph(found)
