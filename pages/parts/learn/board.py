"""The board: a component on which a player places runs by hand. The browser checks the rules of the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pages.shared.session import session, unbroken
from pages.shared.widgets import component, text_beside, trigger_value
from tessel_core.charts.palette import SHADES, ink, shade
from tessel_core.charts.timeline import plan_header
from tessel_core.charts.timeline_script import one_module
from tessel_core.editing.asked import number_of
from tessel_core.learning import Puzzle
from tessel_core.learning.coach import Advice, Placed
from tessel_core.learning.verdict import horizon
from tessel_core.model import BlockKind, Schedule

_SCRIPTS = "../../shared/timeline/scale.mjs", "puzzle.mjs", "board.mjs"
"""Scripts in the order of their imports: each one needs only those before it."""


_SCRIPT = one_module([text_beside(__file__, name) for name in _SCRIPTS])
_BOARD = component(__file__, "board", '<div class="board"></div>', js=_SCRIPT)

Take = Callable[[str, tuple[Placed, ...], int | None], None]
"""Callback for level, placed runs, and the period at which the block is stamped (None if it is not)."""


def board(
    level: str,
    puzzle: Puzzle,
    placed: Sequence[Sequence[int]],
    *,
    target: Schedule | None,
    score: str,
    hints: Sequence[str],
    advice: tuple[Sequence[Placed], Advice] | None = None,
    stamp: Mapping[str, int | None] | None = None,
    moved: Take,
    asked: Take,
) -> None:
    """Show the board of a puzzle with the runs in `placed`.

    `moved` is called after every change, and `asked` when the player asks the coach. `target` is the schedule that the
    coach leads to, and `score` describes its makespan. `advice` is the coach's latest answer, with the runs that were
    placed when the coach was asked. `stamp` has the player's period and the coach's, in levels that stamp a block.
    """
    plan, key = puzzle.plan, f"board-{level}-{session().generation}"
    data = {
        "level": level,
        "plan": plan_header(plan, puzzle.micro_batches),
        "memoryUnit": plan.memory_unit,
        "colours": [[(ground := shade(kind, m), ink(ground)) for m in range(SHADES)] for kind in BlockKind],
        "placed": [list(each) for each in placed],
        "horizon": horizon(puzzle),
        "target": None if target is None else target.starts.tolist(),
        "least": None if target is None or stamp is not None else target.makespan,
        "score": score,
        "begin": _BEGIN,
        "hints": list(hints),
        "stamp": stamp,
        "advice": None if advice is None else _told(*advice),
    }
    listened: dict[str, Any] = {
        "on_moves_change": partial(_heard, key, "moves", moved),
        "on_ask_change": partial(_heard, key, "ask", asked),
    }
    _BOARD(key=key, data=data, **listened)


_BEGIN = (
    "Click a coloured run to place it as early as possible, or drag it to its device. Point at a pale run to see why "
    "it cannot be placed."
)


def _told(placed: Sequence[Placed], advice: Advice) -> Mapping[str, Any]:
    of = json.dumps([list(each) for each in placed], separators=(",", ":"))
    return {"of": of, "starts": advice.starts, "proved": advice.proved}


@unbroken
def _heard(key: str, name: str, take: Take) -> None:
    asked = trigger_value(key, name)
    runs = asked.get("list")
    if isinstance(runs, list):
        found = [each for each in runs if isinstance(each, list) and len(each) == 3]
        placed = tuple((number_of(b), number_of(m), number_of(at)) for b, m, at in found)
        take(str(asked.get("level", "")), placed, number_of(asked["period"]) if asked.get("period") else None)
