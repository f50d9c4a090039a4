"""What the drawing says of a mark under the pointer."""

from __future__ import annotations

from tessel_core.charts.graph.colouring import amount_of, devices_of
from tessel_core.charts.graph.groups import Mark, MarkedGraph
from tessel_core.charts.graph.view import ColourBy, GraphView
from tessel_core.charts.text import plain
from tessel_core.model import Operator, OperatorGraph, Placement
from tessel_core.units import show_flops, show_memory, show_time

_MOST_TOLD = 5_000
"""Marks up to which everything is told; of more only the names, so that a picture stays below two megabytes."""
_LONGEST, _BRIEF = 60, 24
"""Letters of a name; briefly, its last ones."""
_MOST_LISTED = 6


def hover_texts(marked: MarkedGraph, view: GraphView, placement: Placement | None) -> list[str]:
    """Per mark, lines of text for plotly."""
    if len(marked.marks) > _MOST_TOLD:
        return [
            plain(mark.name if len(mark.name) <= _BRIEF else "…" + mark.name[1 - _BRIEF :], _BRIEF)
            for mark in marked.marks
        ]
    return ["<br>".join(filter(None, _told(marked.graph, mark, view, placement))) for mark in marked.marks]


def _told(graph: OperatorGraph, mark: Mark, view: GraphView, placement: Placement | None) -> list[str]:
    operators = [graph.operators[i] for i in mark.members]
    single = operators[0] if len(operators) == 1 else None
    direction = "backward" if mark.backward else "forward"
    what = (single.kind or "operator") if single else f"{len(operators):,} operators"
    times = [(kind, amount_of(operators, ColourBy.TIME, kind)) for kind in graph.kinds]
    on = [f"{show_time(time, graph.time_unit)} on {kind}" for kind, time in times if time is not None]
    flops = amount_of(operators, ColourBy.FLOPS, "")
    pinned = sum(operator.name in view.pinned for operator in operators)
    return [
        f"<b>{plain(mark.name, _LONGEST)}</b>",
        f"{plain(what, _LONGEST)}, {direction}"
        + ("" if not pinned else ", pinned" if single else f", {pinned} pinned"),
        _listed(on),
        show_flops(flops) if flops else "",
        _memory_told(operators),
        _devices_told(mark, placement),
        _colours_told(operators),
    ]


def _memory_told(operators: list[Operator]) -> str:
    parts = (
        ("weights", [each.weight_bytes for each in operators]),
        ("activations", [each.activation_bytes for each in operators]),
        ("output" if len(operators) == 1 else "outputs", [each.output_bytes for each in operators]),
        ("holds", [each.size for each in operators]),
    )
    known = [(what, [each for each in amounts if each is not None]) for what, amounts in parts]
    return ", ".join(f"{what} {show_memory(sum(amounts), 'B')}" for what, amounts in known if amounts)


def _devices_told(mark: Mark, placement: Placement | None) -> str:
    if placement is None:
        return ""
    names = [placement.devices[d].name for d in devices_of(mark, placement)]
    return f"on {_listed(names)}" if names else "on no device"


def _colours_told(operators: list[Operator]) -> str:
    classes = list(dict.fromkeys(each.colour for each in operators if each.colour is not None))
    return f"colour class {_listed(classes)}" if classes else ""


def _listed(parts: list[str]) -> str:
    return ", ".join(plain(part, _LONGEST) for part in parts[:_MOST_LISTED]) + (
        " …" if len(parts) > _MOST_LISTED else ""
    )
