"""One model, many schedules: each published schedule on the form that it needs, the search on every form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.networks.forms import FORMS, Terms, forms_of
from tessel_core.scheduling.comparison import Comparison
from tessel_core.scheduling.schedulers import BASELINES, DEFAULT_SCHEDULER, Question, check_micro_batches

_LEFT_OUT = ("sequential",)
"""It is no order that people would run."""


@dataclass(frozen=True, slots=True)
class LineUp:
    """Pairs of one network, and what it has no pair of."""

    comparison: Comparison
    missing: tuple[str, ...]
    """Sentences."""


def line_up(network: str, terms: Terms, micro_batches: int, config_of: Callable[[str], object]) -> LineUp:
    """The pairs of a network by name, those that need no search first; `config_of` says how a scheduler is configured.

    `micro_batches` are of `terms`; on X forms half of them run each way.

    Raises InputError for an unknown network, and terms or a number of micro-batches out of range.
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
    """The form on which each published schedule runs: the first that suits it, with split backward passes where it was
    published for them if one has; those that suit no form are left out."""
    found = {}
    for name, scheduler in BASELINES.items():
        suiting = [form for form, plan in plans.items() if not scheduler.objection(plan)]
        if suiting and name not in _LEFT_OUT:
            found[name] = min(suiting, key=lambda form: scheduler.splits and not _is_split(plans[form]))
    return found


def _is_split(plan: MicroBatchPlan) -> bool:
    return any(block.kind is BlockKind.WEIGHT for block in plan.blocks)
