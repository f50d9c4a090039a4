"""Comparison of all schedules of one network. A form is a way to divide the network into a plan, such as a V."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.networks.forms import FORMS, Terms, forms_of
from tessel_core.scheduling.comparison import Comparison
from tessel_core.scheduling.schedulers import BASELINES, DEFAULT_SCHEDULER, Question, check_micro_batches

_LEFT_OUT = ("sequential",)
"""Published schedules that are left out, because nobody would run them in practice."""


@dataclass(frozen=True, slots=True)
class LineUp:
    """The pairs (plan, scheduler) of one network, and sentences about forms and schedulers that have no pair."""

    comparison: Comparison
    missing: tuple[str, ...]


def line_up(network: str, terms: Terms, micro_batches: int, config_of: Callable[[str], object]) -> LineUp:
    """Return the pairs to compare for a network, published schedules first.

    `config_of` maps a scheduler's name to its options. On forms with two pipelines in opposite directions, half of the
    `micro_batches` run in each direction.

    Raises InputError if the network is unknown, or if terms or the number of micro-batches are out of range.
    """
    plans, lacking = forms_of(network, terms)
    chosen = forms_for_schedulers(plans)
    published = [(name, form) for form in plans for name, on in chosen.items() if on == form]
    comparison = Comparison()
    for name, form in (*published, *((DEFAULT_SCHEDULER, form) for form in plans)):
        check_micro_batches(plans[form], micro_batches)
        try:
            comparison = comparison.with_pair(Question(name, plans[form], micro_batches, config_of(name)))
        except InputError as error:
            lacking[form] = error.why
    unsuited = [BASELINES[name].title for name in BASELINES if name not in chosen and name not in _LEFT_OUT]
    missing = [f"Without the form {FORMS[form].title}: {why}." for form, why in lacking.items()]
    missing += [f"No form suits {', '.join(unsuited)}."] if unsuited else []
    return LineUp(comparison, tuple(missing))


def forms_for_schedulers(plans: Mapping[str, MicroBatchPlan]) -> dict[str, str]:
    """Map the name of each published schedule to the first form whose plan suits it.

    For schedules published for split backward passes, forms with split backward passes come first. Schedules that no
    form suits are left out.
    """
    chosen = {}
    for name, scheduler in BASELINES.items():
        suiting = [form for form, plan in plans.items() if not scheduler.objection(plan)]
        if suiting and name not in _LEFT_OUT:
            chosen[name] = min(suiting, key=lambda form: scheduler.splits and not _is_split(plans[form]))
    return chosen


def _is_split(plan: MicroBatchPlan) -> bool:
    return any(block.kind is BlockKind.WEIGHT for block in plan.blocks)
