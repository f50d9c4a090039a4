"""The first picture: a schedule that people know, and what a search makes of the same model on the same devices."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from tessel_core.control import Control
from tessel_core.model import BubbleBreakdown, Schedule, ScheduleReport
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule, speed_up

MICRO_BATCHES = 8
_LONGEST_SEARCH_S = 5.0


@dataclass(frozen=True)
class Opening:
    """1F1B on the V-shaped plan, and the search on the M-shaped plan."""

    known: ScheduleReport
    searched: ScheduleReport

    @property
    def schedules(self) -> tuple[Schedule, Schedule]:
        known, searched = self.known.drawable, self.searched.drawable
        assert known is not None
        assert searched is not None
        return known, searched

    @property
    def titles(self) -> tuple[str, str]:
        known, searched = (BubbleBreakdown.of(schedule).idle_share for schedule in self.schedules)
        return (
            f"1F1B, V-shaped placement: GPUs idle {known:.0%} of the time",
            f"Searched schedule, M-shaped placement: GPUs idle {searched:.0%}",
        )

    @property
    def times_faster(self) -> str:
        ratio = speed_up(self.known, self.searched)
        return "" if ratio is None else f"{ratio:.1f}×"


@st.cache_resource(show_spinner="Searching a schedule …")
def opening() -> Opening:
    """Solved once a process."""
    search = "tessel" if "tessel" in SCHEDULERS else "1f1b+"
    return Opening(
        solve_schedule("1f1b", load_sample("gpt-1m-vocab-v-4"), MICRO_BATCHES),
        solve_schedule(search, load_sample("gpt-1m-vocab-m-4"), MICRO_BATCHES, None, Control(_LONGEST_SEARCH_S)),
    )
