"""The placement as one lane per device. Operators are dragged from lane to lane."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

from pages.parts.placement.state import PlacementState
from pages.shared.session import session, workspace
from pages.shared.timeline.component import placement_timeline
from tessel_core.charts.graph.groups import GraphView, marked
from tessel_core.charts.placement_lanes import pieces_of, placement_data
from tessel_core.charts.timeline import Look
from tessel_core.editing.asked import number_in
from tessel_core.editing.placement import Movable
from tessel_core.errors import InputError
from tessel_core.model import THROUGHPUT
from tessel_core.workbench.messages.placement import known_bound, move_effect

_marks = lru_cache(maxsize=8)(marked)


def lanes(view: GraphView) -> None:
    """Show the lanes, with operators grouped as `view` groups them in the drawing."""
    placing, state = workspace().placing, session().of(PlacementState)
    movable, grouping = placing.movable, GraphView(view.group_by, view.depth, view.expanded)
    bound = known_bound(placing) if placing.objective == THROUGHPUT else None
    look = Look(quiet=True)
    if state.left == placing:
        look = Look(quiet=True, verdict=state.dropped, refused=state.refused)
    data = _data(movable, grouping, bound, look)
    placement_timeline(data, "placement-lanes", partial(_drop, movable, grouping))


def _drop(movable: Movable, view: GraphView, asked: Mapping[str, object]) -> None:
    """Move the dropped operators. This callback runs before the page, so that all of the page shows the result."""
    state, before = session().of(PlacementState), workspace().placing
    pieces = pieces_of(movable.placement, _marks(movable.placement.graph, view, movable.placement))
    block, target = number_in(asked, "block"), number_in(asked, "target")
    if not (0 <= block < len(pieces) and 0 <= target < len(movable.placement.devices)):
        return
    try:
        after = before.dropped(pieces[block].operators, target)
    except InputError as error:
        state.dropped, state.refused, state.left = str(error), True, before
        return
    state.dropped, state.refused, state.left, state.complaint = move_effect(before, after), False, after, ""
    session().change_placing(after)


@lru_cache(maxsize=8)
def _data(movable: Movable, view: GraphView, bound: float | None, look: Look) -> bytes:
    marks = _marks(movable.placement.graph, view, movable.placement)
    return placement_data(movable, marks, bound=bound, look=look)
