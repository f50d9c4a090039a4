"""Schedules under jitter in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessel_core.inspection.jitter import RUN, USUAL_DRAWS, Jitter, equal_work
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.units import show_times


def jitter_sentences(schedules: Sequence[Schedule], jitter: Jitter) -> tuple[str, ...]:
    """What was drawn, and which schedules are not compared with which."""
    what = "every run has a duration of its own" if jitter.of == RUN else "every device has a speed of its own"
    found = [
        f"{jitter.draws:,} draw{'s' * (jitter.draws != 1)}, in each of which {what}: lognormal, the plan's on average, "
        f"with a spread of {100 * jitter.spread:.3g} %. Devices keep their order, and equal blocks are drawn alike in "
        "all schedules."
    ]
    usual = replace(jitter, draws=USUAL_DRAWS)
    if jitter != usual and jitter == usual.affordable(schedules):
        runs = sum(len(each.start) for each in schedules)
        found.append(f"Draws are fewer than {USUAL_DRAWS:,} because the schedules have {runs:,} runs together.")
    found += _unequal_work(schedules)
    if any(any(MemoryProfile.of(each).excess) for each in schedules):
        found.append("A schedule that exceeds the memory has no chance to win.")
    return tuple(found)


def _unequal_work(schedules: Sequence[Schedule]) -> list[str]:
    """Why some have no common chance; nothing where all works are equal to rounding."""
    groups = equal_work(schedules)
    if len(groups) < 2:
        return []
    firsts = [schedules[group[0]] for group in groups]
    totals = show_times([each.micro_batches * sum(each.plan.work) for each in firsts], firsts[0].plan.time_unit)
    names = [", ".join(dict.fromkeys(schedules[i].plan.name for i in group)) for group in groups]
    works = [f"{total} in {named}" for total, named in zip(totals, names, strict=True)]
    return [f"The chance to win is among schedules of equal work only: over all devices they take {'; '.join(works)}."]
