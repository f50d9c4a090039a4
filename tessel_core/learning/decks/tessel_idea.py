"""Slides on the two-phase search, for a network whose vocabulary makes one device slow."""

from __future__ import annotations

from tessel_core.inspection import IdleSplit
from tessel_core.learning.deck import Deck, Slide
from tessel_core.learning.levels.repetend import plan, refused, repetend_of
from tessel_core.learning.solved import drawn, percent, searched
from tessel_core.learning.task import Facts, Titled
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.networks import build_shape
from tessel_core.samples import load_sample
from tessel_core.scheduling.bounds import period_bound
from tessel_core.units import counted, show_time

_COUNT, _SHORT = 16, 8


def found() -> ScheduleReport:
    """Search a schedule of the M-shaped placement."""
    return searched(load_sample("gpt-1m-vocab-m-4"), _COUNT)


def slow_schedule() -> Schedule:
    """Return the 1F1B schedule of the V-shaped placement."""
    return drawn("1f1b", load_sample("gpt-1m-vocab-v-4"), _COUNT)


def _abstract(count: int) -> ScheduleReport:
    return searched(build_shape("m-shape"), count)


def _schedule(report: ScheduleReport) -> Schedule:
    schedule = report.drawable
    assert schedule is not None
    return schedule


def best_schedule() -> Schedule:
    """Return the searched schedule of the M-shaped placement."""
    return _schedule(found())


def _both() -> tuple[Titled, ...]:
    return ("1F1B, V-shaped placement", slow_schedule()), ("Searched, M-shaped placement", _schedule(found()))


def _facts() -> Facts:
    slow, report, toy = slow_schedule(), found(), _abstract(_COUNT)
    split, best = IdleSplit.of(slow), best_schedule()
    alone, three = repetend_of(1), repetend_of(3)
    return {
        "imbalance": percent(split.imbalance),
        "bubble": percent(split.bubble),
        "slow": show_time(slow.makespan, "ns"),
        "fast": show_time(best.makespan, "ns"),
        "ratio": f"{slow.makespan / best.makespan:.2f}",
        "bound": show_time(report.makespan_bound, "ns"),
        "period": str(toy.period_per_micro_batch),
        "least": str(toy.period_bound),
        "alone": counted(alone.period, "step"),
        "three": counted(three.period, "step"),
        "below": str(period_bound(plan())),
        "tried": " and ".join(map(str, refused(1))),
        "toy": str(_schedule(toy).makespan),
    }


DECK = Deck(
    name="tessel",
    place=3,
    title="Tessel's idea",
    about="Why placement and order belong together, and how a search of a few micro-batches schedules many.",
    facts=_facts,
    slides=(
        Slide(
            "One device is slow",
            (
                "A GPT with a million-token vocabulary, cut into a V: the last device computes the vocabulary.",
                "The others wait for it: {imbalance} of all time is imbalance, and only {bubble} is bubble.",
                "No order of this placement can help.",
            ),
            lambda: (("1F1B, V-shaped placement", slow_schedule()),),
        ),
        Slide(
            "Another placement",
            (
                "Spread over all devices, the vocabulary costs each of them the same. The placement is M-shaped.",
                "No published order suits this placement: blocks on all devices interrupt the pipeline.",
            ),
            lambda: (("One micro-batch", drawn("sequential", build_shape("m-shape"), 1)),),
        ),
        Slide(
            "Phase 1: what repeats",
            (
                "Long schedules repeat. The search looks for the shortest part that can repeat: the repetend.",
                "Here it takes {period} steps per micro-batch, and no schedule can be faster than {least}.",
            ),
            lambda: (("Eight micro-batches", _schedule(_abstract(_SHORT))),),
        ),
        Slide(
            "How a period is proved impossible",
            (
                "Take a V with less memory and blocks of one micro-batch. No period can be below the bound of {below} "
                "steps.",
                "Periods {tried} are proved impossible, so {alone} is the least. Then the search tries larger blocks.",
                "Blocks of three repeat every {three}: this meets the bound, so the search ends.",
            ),
            lambda: tuple(
                (f"A block of {counted(unroll, 'micro-batch')}", repetend_of(unroll).expand(_SHORT))
                for unroll in (1, 3)
            ),
        ),
        Slide(
            "Phase 2: warmup and cooldown",
            (
                "The parts before and after the repetend are searched separately.",
                "More micro-batches only repeat the middle, so the search does not grow with their number.",
            ),
            lambda: (("Sixteen micro-batches", _schedule(_abstract(_COUNT))),),
        ),
        Slide(
            "The same model, the same devices",
            (
                "{slow} with 1F1B on the V, {fast} searched on the M: {ratio} times faster.",
                "The bound is {bound}: no order of this placement and memory ends before it.",
            ),
            _both,
        ),
    ),
)
