"""Show the answer of the page Recommend: the fastest strategy, the Pareto front, and details of one strategy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pandas as pd
import streamlit as st

from pages.parts.recommend.moves import open_in
from pages.parts.recommend.order import shorter_order, timelines
from pages.parts.recommend.prices import prices
from pages.shared.widgets import download, file_name, literal, verdict
from tessel_core.exports.launch import LAUNCHERS, Job
from tessel_core.strategies.closely import look_at
from tessel_core.strategies.rates import step_rates
from tessel_core.strategies.recommendation import Candidate, Question, Recommendation
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.messages.recommendation import proof_sentences, refusal

_SHOWN = 12
"""Largest number of strategies in the table."""
_look = lru_cache(maxsize=32)(look_at)


def show_progress(run: Run[Any]) -> None:
    """Show the phase of a running search, and the best step so far."""
    news = run.progress
    best = "" if news is None or news.objective is None else f", best step {show_time(float(news.objective), 's')}"
    st.markdown(f":material/hourglass_top: {literal(news.phase if news else 'starting')}{literal(best)}")


def show_answer(found: Recommendation, name: str) -> None:
    """Show a recommendation, or why nothing fits."""
    if found.best is None:
        first, *rest = refusal(found)
        st.warning(literal(first), icon=":material/block:")
        for line in rest:
            st.markdown(literal(line))
        return
    front = found.front[:_SHOWN]
    numbers, table = st.columns([5, 7], gap="large")
    with table:
        chosen = _table(found.question, front)
    with numbers:
        _figures(found.question, chosen, fastest=chosen is found.best)
    first, *rest = proof_sentences(found)
    verdict(first, proved=found.complete, found=True)
    for line in rest:
        st.caption(literal(line))
    _closely(found.question, chosen, name)


def _table(question: Question, front: tuple[Candidate, ...]) -> Candidate:
    """Draw the Pareto front as a table.

    Return the candidate of the selected row, or the fastest if no row is selected.
    """
    st.markdown("**Best trade-offs of step time and memory**")
    rows = pd.DataFrame([_row(each) for each in front])
    key = f"recommend-front-{len(front)}-{front[0].strategy}"
    state = st.dataframe(rows, key=key, hide_index=True, on_select="rerun", selection_mode="single-row", height=330)
    taken = state["selection"]["rows"]
    return front[taken[0] if taken else 0]


def _row(each: Candidate) -> dict[str, object]:
    """Return one row of the table."""
    strategy = each.strategy
    degrees = {"data": strategy.data, "tensor": strategy.tensor, "context": strategy.context, "expert": strategy.expert}
    stages = f"{strategy.pipeline}" + (f" x {strategy.stages_per_device}" if strategy.stages_per_device > 1 else "")
    return {
        "step": show_time(each.outcome.latency, "s"),
        "memory": show_memory(each.peak, "B"),
        **degrees,
        "pipeline": stages,
        "micro-batches": strategy.micro_batches,
        "ZeRO": strategy.zero,
        "recompute": str(strategy.recompute),
    }


def _figures(question: Question, chosen: Candidate, *, fastest: bool) -> None:
    """Show the key numbers of a step, and the strategy in words."""
    strategy, seconds = chosen.strategy, chosen.outcome.latency
    rates = step_rates(question.family, question.spec, strategy, question.mesh, seconds)
    st.markdown("**The fastest strategy**" if fastest else "**The chosen strategy**")
    tokens, share = rates.tokens_per_s_per_device, rates.model_flops_utilization
    with st.container(horizontal=True):
        st.metric("Step", show_time(seconds, "s"))
        if tokens is not None:
            st.metric("Tokens/s per GPU", f"{tokens:,.0f}")
        if share is not None:
            st.metric("Model FLOPs utilisation", f"{share:.1%}")
        st.metric("Memory", show_memory(chosen.peak, "B"))
    st.markdown(literal(strategy.summary))


def _closely(question: Question, chosen: Candidate, name: str) -> None:
    """Show memory by part, launch files, links to other pages, the timeline and the gains from changes."""
    known = _look(question, chosen)
    searched = shorter_order(known.plan, known.schedule, chosen.strategy)
    memory, files = st.columns([7, 5], gap="large")
    with memory:
        stage = f", at stage {known.fullest}" if chosen.strategy.pipeline > 1 else ""
        st.markdown(f"**Memory of the fullest GPU{stage}**")
        with st.container(horizontal=True):
            for part, amount in known.memory_parts.items():
                st.metric(part.capitalize(), show_memory(amount, "B"))
        open_in(question, chosen.strategy, known.plan, name)
    with files:
        _files(Job(name, question.family, question.spec, chosen.strategy, searched))
    if known.plan is None or known.schedule is None:
        st.caption("The strategy has one stage and no pipeline. *Program* shows what the GPUs wait for.")
    else:
        timelines(known.plan, known.schedule, chosen.strategy)
    prices(question, chosen)


def _files(job: Job) -> None:
    """Offer a launch file for each framework.  A button is disabled with a reason if the framework cannot run it."""
    st.markdown("**Ready to launch**")
    notes = list[str]()
    with st.container(horizontal=True):
        for key, launcher in LAUNCHERS.items():
            objection = launcher.objection(job)
            if objection:
                st.button(launcher.title, key=f"launch-{key}", disabled=True, help=literal(f"{objection}."))
                continue
            launch = launcher.write(job)
            notes += launch.left_out
            download(launcher.title, launch.text, f"{file_name(job.name)}-{key}{launcher.suffix}", "text/plain")
    st.caption("  \n".join(literal(f"{note}.") for note in dict.fromkeys(notes)))
