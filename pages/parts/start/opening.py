"""First picture of the app: 1F1B and a searched schedule for the same model on the same devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from pages.shared.contents import go_to
from pages.shared.keeping import explain, open_another
from pages.shared.learn_state import DECK, WORDS
from pages.shared.run_panel import answer, start_search
from pages.shared.session import FIRST_SAMPLE, session, workspace
from pages.shared.timeline.component import small_timeline
from pages.shared.widgets import button, picture
from tessel_core.inspection import IdleSplit
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.samples import load_sample
from tessel_core.scheduling import DEFAULT_SCHEDULER, Question, find_scheduler, solve_schedule
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.messages.schedule import speed_up
from tessel_core.workbench.workspace import MICRO_BATCHES

_POLL_S = 0.5
_TOUR = "this-tool"


@dataclass
class _Opening:
    """State of the first picture in this tab."""

    drawn: bool = False


def opening() -> None:
    """Show the explanation, the speed-up and the picture. The searched half is added when its search ends."""
    run = _run()
    if run is None or run.running:
        st.fragment(_find, run_every=_POLL_S)()
    else:
        st.fragment(_draw)(run.result)  # a fragment as before, because Streamlit would otherwise recreate the picture


def _find() -> None:
    """Draw the known schedule first. Start the search in the next run, so that it does not delay the first picture."""
    state = session().of(_Opening)
    if state.drawn and not (_run() or start_search(_searched())).running:
        st.rerun()
    state.drawn = True
    _draw(None)


def _run() -> Run[ScheduleReport] | None:
    """Return the run of the search. None if it was not started, or was cancelled."""
    run = answer(_searched())
    return None if run is not None and run.result is not None and run.result.cancelled else run


def _draw(searched: ScheduleReport | None) -> None:
    known = _known()
    story, drawn = st.columns([3, 9], gap="medium")  # aligned at the top, so that later content moves nothing
    with story:
        _story(None if searched is None else speed_up(known, searched))
    with drawn:
        upper, lower = known.drawable, None if searched is None else searched.drawable
        assert upper is not None
        both = (
            (f"1F1B, V-shaped placement: {_idle(upper)}", upper),
            (f"Searched, M-shaped placement: {_idle(lower)}", lower or _nothing_yet()),
        )
        if not small_timeline(both, "opening"):
            from tessel_core.charts.comparison import Shown, compared  # imported here, because plotly loads slowly

            picture(compared([Shown(*each) for each in both]), "opening")


def _story(faster: float | None) -> None:
    st.markdown("#### Same model, same GPUs")
    st.markdown("# searching …" if faster is None else f"# :blue[{faster:.2f}×] faster")
    st.markdown(
        f"A GPT with a million-token vocabulary and {MICRO_BATCHES} micro-batches. **Above**, 1F1B: the last GPU holds "
        "the vocabulary, so it is always busy and the others wait. **Below**, the vocabulary is spread over all GPUs, "
        "and Tessel searched for the best order of work."
    )
    if button("Open the searched schedule", type="primary", icon=":material/arrow_forward:", width="stretch"):
        session().open_sample(FIRST_SAMPLE)
        session().change(replace(workspace(), asked=_searched()))
        go_to("schedule")
    with st.container(horizontal=True):
        if button("Tour in three minutes", icon=":material/slideshow:", type="tertiary"):
            explain(f"{DECK}{_TOUR}", goes=True)
        if button("Words explained", icon=":material/menu_book:", type="tertiary"):
            explain(WORDS)
    if open_another("Open a saved workspace …"):
        go_to("schedule")


def _idle(schedule: Schedule | None) -> str:
    return "…" if schedule is None else f"GPUs idle {float(IdleSplit.of(schedule).idle):.0%} of the time"


@st.cache_resource(show_spinner=False)
def _nothing_yet() -> Schedule:
    """Return an empty schedule on the devices of the searched half."""
    return Schedule.empty(_searched().plan, MICRO_BATCHES)


@st.cache_resource(show_spinner=False)
def _known() -> ScheduleReport:
    return solve_schedule("1f1b", load_sample("gpt-1m-vocab-v-4"), MICRO_BATCHES)


@st.cache_resource(show_spinner=False)
def _searched() -> Question:
    config = find_scheduler(DEFAULT_SCHEDULER).config()
    return Question(DEFAULT_SCHEDULER, load_sample(FIRST_SAMPLE), MICRO_BATCHES, config)
