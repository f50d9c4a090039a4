"""Operator graphs as they are kept whatever file they came from: as tessel-graph, published inputs as what they are."""

from __future__ import annotations

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, document_text, read_with
from tessel_core.formats.graph_file import GraphFile, graph_document, graph_from
from tessel_core.formats.published_graph import looks_like_published_graph, published_document, published_graph_from
from tessel_core.model import DevicePool, OperatorGraph


def kept_graph(graph: OperatorGraph, pool: DevicePool | None = None) -> GraphFile:
    """The graph as it reads back from its file, with its fingerprint; `pool` for one from the published JSON.

    Raises
    ------
    InputError
        Where a published input would get a name that its format cannot have.
    """
    if pool is not None:
        _check_numbered(graph)
    # Read back, because 1 and 1.0 are equal but are not the same canonical JSON.
    return kept_graph_from(Fields(_document(graph, pool), ""))


def kept_graph_document(file: GraphFile) -> dict[str, object]:
    """The graph as a JSON-ready document, in the format of its file."""
    return _document(file.graph, file.pool)


def kept_graph_text(file: GraphFile) -> str:
    """The text of a file that `read_kept_graph` and everything else here reads."""
    return document_text(kept_graph_document(file))


def kept_graph_from(fields: Fields) -> GraphFile:
    """A graph from a parsed document of either format."""
    return published_graph_from(fields) if looks_like_published_graph(fields) else graph_from(fields)


def read_kept_graph(data: bytes, name: str = "graph") -> GraphFile:
    """A graph from the bytes of a file of either format; InputError with the place and the reason, `name` first."""
    return read_with(kept_graph_from, data, name)


def _document(graph: OperatorGraph, pool: DevicePool | None) -> dict[str, object]:
    return graph_document(graph) if pool is None else published_document(graph, pool)


def _check_numbered(graph: OperatorGraph) -> None:
    for operator in graph.operators:
        for what, text in (("its name", operator.name), ("its colour", operator.colour)):
            if text is not None and not _is_number(text):
                why = f"{what} must be a whole number in a published input, got {text!r}"
                raise InputError(f"operator {operator.name}", why)


def _is_number(text: str) -> bool:
    try:
        return str(int(text)) == text
    except ValueError:
        return False
