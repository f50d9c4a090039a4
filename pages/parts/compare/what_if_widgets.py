"""Components of *What if*: sliders that report while they move, and the map of the winning schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pages.shared.session import unbroken
from pages.shared.widgets import component, text_beside, trigger_value
from tessel_core.charts.palette import ink, slot_colour
from tessel_core.editing.asked import number_in, number_of
from tessel_core.editing.what_if import Slider, WhatIf, what_if_at
from tessel_core.editing.which_wins import Cell, WhichWins
from tessel_core.scheduling import Comparison
from tessel_core.workbench.messages.what_if import cell_text, map_caption, side

_STYLE = text_beside(__file__, "what_if.css")
_SLIDERS = component(__file__, "sliders", '<div class="what-if"></div>', css=_STYLE)
_MAP = component(__file__, "map", '<div class="wins"></div>', css=_STYLE)

Moved = Callable[[WhatIf, int, int, bool], None]
"""Callback for slider values, number of the message, turn that the sliders have seen, and whether they are at rest."""


def sliders_widget(
    shown: Sequence[Slider], now: WhatIf, devices: Sequence[str], answers: tuple[int, int], moved: Moved, *, rests: bool
) -> None:
    """Show the sliders at the values `now`.

    `answers` is the number of the message that this answers, and the current turn. A turn begins each time that the
    page sets the sliders; messages of an earlier turn are ignored. `rests` asks for one more message when the sliders
    come to rest.
    """
    serial, turn = answers
    key = "what-if-sliders"
    rows = [
        {
            "field": s.field,
            "label": s.label,
            "about": s.about,
            "texts": s.texts,
            "own": s.own,
            "of": s.of,
            "at": s.at(now),
        }
        for s in shown
    ]
    data = {
        "sliders": rows,
        "devices": list(devices),
        "device": now.device,
        "serial": serial,
        "turn": turn,
        "rests": rests,
    }
    _SLIDERS(key=key, data=data, on_moved_change=partial(_moved, key, tuple(shown), len(devices), moved))


@unbroken
def _moved(key: str, shown: tuple[Slider, ...], devices: int, moved: Moved) -> None:
    asked = trigger_value(key, "moved")
    at, device = asked.get("at"), number_in(asked, "device")
    stops = {str(field): number_of(stop) for field, stop in at.items()} if isinstance(at, dict) else {}
    now = what_if_at(shown, stops, device if 0 <= device < devices else 0)
    moved(now, number_in(asked, "serial"), number_in(asked, "turn"), asked.get("rest") is True)


def map_widget(
    comparison: Comparison,
    shown: Sequence[Slider],
    of: WhichWins,
    cells: Sequence[Cell],
    here: tuple[int, int] | None,
    opened: Callable[[int, int], None],
) -> None:
    """Show the map, with each cell in the colour of its winner.

    The cell `here` is marked. `opened` is called when a cell is pressed.
    """
    key, labels, won = "which-wins-map", comparison.labels(), set[int]()
    columns, rows = (side(shown, axis)[1] for axis in (of.across, of.down))
    drawn = list[dict[str, Any]]()
    for cell in cells:
        winners = () if cell.standing is None else cell.standing.winners
        won |= {*winners}
        text = cell_text(comparison, shown, of, cell)
        colours = [slot_colour(i) for i in winners]
        look = {"colours": colours, "ink": ink(colours[0]) if colours else ""}
        drawn.append({"column": cell.column, "row": cell.row, **asdict(text), **look})
    legend = [{"name": labels[i], "colour": slot_colour(i)} for i in sorted(won)]
    data = {"caption": map_caption(shown, of), "columns": columns, "rows": rows, "cells": drawn, "legend": legend}
    marked = {"here": None if here is None else {"column": here[0], "row": here[1]}}
    _MAP(key=key, data=data | marked, on_opened_change=partial(_opened, key, opened))


@unbroken
def _opened(key: str, opened: Callable[[int, int], None]) -> None:
    asked = trigger_value(key, "opened")
    opened(number_in(asked, "column"), number_in(asked, "row"))
