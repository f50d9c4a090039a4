"""Level in which a player builds a repeating block on the board and chooses its period."""

from __future__ import annotations

import streamlit as st

from pages.parts.learn.board import board
from pages.parts.learn.levels import show_verdict
from pages.parts.learn.play import moved
from pages.shared.session import workspace
from pages.shared.timeline.component import timeline
from pages.shared.widgets import complaining, literal
from tessel_core.learning import Level, Stamping
from tessel_core.learning.coach import runs_kept
from tessel_core.learning.stamping import best_line, judge_stamp, target_of


def play_stamping(level: Level, task: Stamping) -> None:
    """Show the task and the board. Show the verdict once the player has chosen a period."""
    st.markdown(f"**{literal(level.asks)}**  \n:gray[{literal(task.puzzle.setting)}]")
    play, best = workspace().play(level.name), task.best()
    placed = runs_kept(play.placed)
    board(
        level.name,
        task.puzzle,
        placed,
        target=target_of(task),
        score=best_line(task),
        hints=level.hints,
        stamp={"period": play.chosen, "best": best.period},
        moved=moved,
        asked=moved,
    )
    if play.chosen is None:
        return
    with complaining():
        block = task.block_of(placed, play.chosen)
        if block is not None:
            stamped = judge_stamp(task, block)
            show_verdict(level, stamped.sentence, reached=stamped.reached)
            timeline(stamped.shown, f"stamped-{level.name}")
