"""Read operator graphs from files of any format."""

from __future__ import annotations

from pathlib import Path

from tessel_core.formats import GraphFile
from tessel_core.formats.files import Known, read_any, refused
from tessel_core.formats.onnx import OnnxModel


def read_graph_file(path: Path, name: str = "") -> GraphFile:
    """Read a graph of any format from a file. An ONNX model is converted, and each of its open sizes is set to 1.

    Raises InputError if the file contains no graph. Error messages begin with `name`, or with the path.
    """
    contents = with_graph(read_any(path, name))
    if isinstance(contents, GraphFile):
        return contents
    raise refused(contents, name or str(path), "an operator graph")


def with_graph(contents: Known) -> Known:
    """Convert an ONNX model to its graph, and return any other contents unchanged."""
    if not isinstance(contents, OnnxModel):
        return contents
    from tessel_core.networks.onnx import model_graph

    return model_graph(contents)
