"""Sentences about schedules with random durations (jitter)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessel_core.inspection.jitter import RUN, USUAL_DRAWS, Jitter, equal_work
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.units import show_times


def jitter_sentences(schedules: Sequence[Schedule], jitter: Jitter) -> tuple[str, ...]:
    """Return sentences on the random draws, and on schedules that are left out of the win probabilities."""
    what = "every run has a random duration" if jitter.of == RUN else "every device has a random speed"
    found = [
        f"{jitter.draws:,} draw{'s' * (jitter.draws != 1)}. In each, {what}: lognormal, with the plan's value on "
        f"average and a spread of {100 * jitter.spread:.3g} %. Devices keep their order. Equal blocks get equal draws "
        "in all schedules."
    ]
    usual = replace(jitter, draws=USUAL_DRAWS)
    if jitter != usual and jitter == usual.affordable(schedules):
        runs = sum(len(each.start) for each in schedules)
        found.append(f"There are fewer than {USUAL_DRAWS:,} draws, because the schedules have {runs:,} runs in all.")
    found += _unequal_work(schedules)
    if any(any(MemoryProfile.of(each).excess) for each in schedules):
        found.append("A schedule that does not fit in memory has no chance to win.")
    return tuple(found)


def _unequal_work(schedules: Sequence[Schedule]) -> list[str]:
    """Explain why some win probabilities are missing. Empty if all schedules do the same work."""
    groups = equal_work(schedules)
    if len(groups) < 2:
        return []
    firsts = [schedules[group[0]] for group in groups]
    totals = show_times([each.micro_batches * sum(each.plan.work) for each in firsts], firsts[0].plan.time_unit)
    names = [", ".join(dict.fromkeys(schedules[i].plan.name for i in group)) for group in groups]
    works = [f"{total} in {named}" for total, named in zip(totals, names, strict=True)]
    return [f"Only schedules of equal work compete. Work over all devices: {'; '.join(works)}."]
