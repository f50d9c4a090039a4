"""Schedules side by side: questions about one number of micro-batches, and their answers against a reference.

Where every plan says how many samples its micro-batch has, all pairs run the same samples, and times are per sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.inspection import IdleSplit, Jitter, Jittered, under_jitter
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.scheduling.finish import BY_HAND
from tessel_core.scheduling.reports import evaluate
from tessel_core.scheduling.schedulers import Question
from tessel_core.scheduling.steady import find_steady_state
from tessel_core.units import counted

_REFERENCES = ("1f1b", "1f1b+", "sequential")
"""Schedulers to compare with, best known first."""

MOST_PAIRS = 24
"""The most pairs of one comparison."""
LONGEST_NAME = 200
"""Characters of a name that somebody gives a pair."""


@dataclass(frozen=True, slots=True)
class Made:
    """A schedule that somebody made, among the pairs of a comparison: it stays as it was when it was added."""

    plan: MicroBatchPlan
    starts: tuple[tuple[int, ...], ...]
    """Shaped (micro-batches, blocks)."""

    title: ClassVar[str] = "By hand"
    scheduler: ClassVar[str] = BY_HAND

    @classmethod
    def of(cls, schedule: Schedule) -> Made:
        """This schedule, complete."""
        return cls(schedule.plan, tuple(map(tuple, schedule.starts.tolist())))

    @property
    def micro_batches(self) -> int:
        """The number that it schedules."""
        return len(self.starts)

    def answered_by(self, report: ScheduleReport) -> ScheduleReport:
        """The report itself."""
        return report

    def solve(self, control: Control) -> ScheduleReport:
        """The referee's report; raises InputError with the first rule that it breaks."""
        return evaluate(self.schedule, BY_HAND)

    @property
    def schedule(self) -> Schedule:
        """The schedule, with its repetend where it repeats."""
        starts = np.array(self.starts, dtype=np.int64)
        return Schedule.from_starts(self.plan, starts, find_steady_state(starts))


Pair = Question | Made


@dataclass(frozen=True)
class Comparison:
    """(plan, scheduler) pairs of one unit of time and one number of micro-batches, in the order of their pictures.

    Plans that say their samples have one number of samples instead: of twice the samples, half as many micro-batches.
    A pair that does not apply or does not fit may be in the list; its answer says why there is no schedule.

    Raises InputError where the units of time or the numbers differ, a pair stands twice, or there are too many.
    """

    pairs: tuple[Pair, ...] = ()
    reference: int | None = None
    """The pair that others are compared with; None is the first that `default_reference` finds."""

    names: Mapping[Pair, str] = field(default_factory=lambda: MappingProxyType({}))
    """What people call a pair, where they gave it a name of their own."""

    def __post_init__(self) -> None:
        if any(len(name) > LONGEST_NAME for name in self.names.values()):
            raise InputError("comparison", f"a name of a pair has more than {LONGEST_NAME} characters")
        if len(self.pairs) > MOST_PAIRS:
            raise InputError("comparison", f"has {len(self.pairs)} pairs, more than {MOST_PAIRS}")
        for pair in self.pairs[1:]:
            self._check_suits(pair)
        if len(set(self.pairs)) < len(self.pairs):
            raise InputError("comparison", "holds the same plan, scheduler and options twice")
        if self.reference is not None and not 0 <= self.reference < len(self.pairs):
            raise InputError("comparison", f"has no pair {self.reference + 1} to compare with")

    def _check_suits(self, pair: Pair) -> None:
        first = self.pairs[0]
        if pair.plan.time_unit != first.plan.time_unit:
            units = f"its times are in {pair.plan.time_unit}, those of {first.plan.name} in {first.plan.time_unit}"
            raise InputError(f"plan {pair.plan.name}", f"{units}: one time axis needs one unit")
        asked = _as_many(pair, first.plan, first.micro_batches).micro_batches
        if pair.micro_batches != asked:
            beside = f"beside {first.micro_batches} of {first.plan.name}"
            why = f"has {counted(pair.micro_batches, 'micro-batch')}, {beside} it needs {asked}"
            raise InputError(f"plan {pair.plan.name}", why)

    @property
    def micro_batches(self) -> int | None:
        """The number common to all pairs, that of the smallest micro-batches; None for an empty list."""
        return max((pair.micro_batches for pair in self.pairs), default=None)

    @property
    def per_sample(self) -> bool:
        """Whether every plan says how many samples its micro-batch has."""
        return all(pair.plan.samples is not None for pair in self.pairs)

    def with_pair(self, pair: Pair) -> Comparison:
        """With one more pair at the end, at the list's own number of micro-batches; InputError as for a new list."""
        if self.pairs:
            pair = _as_many(pair, self.pairs[0].plan, self.pairs[0].micro_batches)
        if pair in self.pairs:
            how = "as it was changed by hand" if isinstance(pair, Made) else "with this scheduler and these options"
            raise InputError(f"plan {pair.plan.name}", f"is in the list already {how}")
        return replace(self, pairs=(*self.pairs, pair))

    def has(self, pair: Pair) -> bool:
        """Whether a pair is on the list already, at the list's own number of micro-batches."""
        try:
            return bool(self.pairs) and _as_many(pair, self.pairs[0].plan, self.pairs[0].micro_batches) in self.pairs
        except InputError:
            return False

    def without(self, index: int) -> Comparison:
        """Without pair `index`; the reference stays with its pair while that is there."""
        return self.only([i for i in range(len(self.pairs)) if i != index])

    def only(self, order: Sequence[int]) -> Comparison:
        """Of these pairs in this order; the reference stays with its pair while that is there."""
        pairs = tuple(self.pairs[i] for i in order)
        reference = order.index(self.reference) if self.reference in order else None
        return Comparison(pairs, reference, {pair: self.names[pair] for pair in pairs if pair in self.names})

    def named(self, index: int, name: str) -> Comparison:
        """With a name for pair `index`; nothing but spaces gives it back its usual one."""
        names = {**self.names, self.pairs[index]: name.strip()}
        return replace(self, names={pair: text for pair, text in names.items() if text})

    def with_micro_batches(self, micro_batches: int) -> Comparison:
        """The same pairs with another number of micro-batches, counted as `micro_batches` does.

        Raises InputError where a pair has no whole number of micro-batches of as many samples.
        """
        finest = max(self.pairs, key=lambda pair: pair.micro_batches)
        now = {pair: _as_many(pair, finest.plan, micro_batches) for pair in self.pairs}
        names = {now[pair]: name for pair, name in self.names.items()}
        return replace(self, pairs=tuple(now.values()), names=names)

    def labels(self) -> tuple[str, ...]:
        """Each pair as people tell it from the others: its name, else scheduler and plan; numbers where need be."""
        names = [self.names.get(pair) or f"{pair.title}, {pair.plan.name}" for pair in self.pairs]
        return tuple(
            name if names.count(name) == 1 else f"{name} ({names[:i].count(name) + 1})" for i, name in enumerate(names)
        )


def _as_many(pair: Pair, plan: MicroBatchPlan, micro_batches: int) -> Pair:
    """The pair at as many samples as so many of the plan have, or as many micro-batches where samples are not known."""
    count = micro_batches
    if pair.plan.samples is not None and plan.samples is not None:
        samples = micro_batches * plan.samples
        count, rest = divmod(samples, pair.plan.samples)
        if rest:
            why = f"takes {pair.plan.samples} samples at a time, and {samples} are no multiple of that"
            raise InputError(f"plan {pair.plan.name}", why)
    if isinstance(pair, Question):
        return replace(pair, micro_batches=count)
    if count != pair.micro_batches:
        why = f"was changed by hand for {counted(pair.micro_batches, 'micro-batch')}, and the list needs {count}"
        raise InputError(f"schedule of {pair.plan.name}", why)
    return pair


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of one pair: a report, a complaint, or neither while it is being solved."""

    report: ScheduleReport | None = None
    complaint: str = ""
    begun: bool = True
    """False where its turn never came."""

    @classmethod
    def to(cls, pair: Pair, control: Control | None = None) -> Answer:
        """Solve the pair now; wrong input becomes a complaint."""
        try:
            return cls(pair.solve(control or Control()))
        except InputError as error:
            return cls(complaint=error.why)

    @property
    def why_none(self) -> str:
        """Why there is no schedule that keeps the rules, in one sentence; empty where there is one or none is known."""
        if self.complaint:
            return self.complaint
        if self.report is None or self.report.solution is not None:
            return ""
        return self.report.reason or "no schedule was found in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a comparison; amounts in the plans' units, None where there is nothing to measure."""

    label: str
    is_reference: bool
    plan: str
    work: Fraction
    """Ticks of all devices, for one `each`."""
    each: str
    """What work and periods are of: a micro-batch, or a sample where every plan of the comparison says its samples."""
    outcome: str
    """The result in two or three words."""
    period: Fraction | None = None
    """Of one `each`, as its bound."""
    period_ratio: float | None = None
    """The reference's period / this one's: above 1 is faster."""
    period_bound: Fraction | None = None
    makespan: int | None = None
    makespan_ratio: float | None = None
    """The reference's makespan / this one's: above 1 is faster."""
    makespan_bound: int | None = None
    time_each: Fraction | None = None
    """Makespan / samples; of a micro-batch: the period that the schedule keeps, else makespan / micro-batches."""
    idle: IdleSplit | None = None
    """Idle time of the whole schedule."""
    steady_idle: IdleSplit | None = None
    """Idle time of the steadiest state found, kept or not."""
    peak: int | None = None
    """Memory on the device that holds most."""
    memory_unit: str | None = None
    wall_s: float | None = None
    why_none: str = ""
    jittered: Jittered | None = None
    """What becomes of the makespan when durations vary."""


def compare(comparison: Comparison, answers: Sequence[Answer], jitter: Jitter | None = None) -> tuple[Row, ...]:
    """A row a pair, with ratios to the reference, and under jitter where it is given."""
    reference = default_reference(comparison, answers) if comparison.reference is None else comparison.reference
    rows = [
        _row(label, pair, comparison.per_sample, answer)
        for label, pair, answer in zip(comparison.labels(), comparison.pairs, answers, strict=True)
    ]
    if reference is not None:
        rows = [_against(rows[reference], row, i == reference) for i, row in enumerate(rows)]
    if jitter is not None:
        drawn = iter(under_jitter(drawable_of(answers), jitter))
        rows = [row if row.makespan is None else replace(row, jittered=next(drawn)) for row in rows]
    return tuple(rows)


def drawable_of(answers: Sequence[Answer]) -> tuple[Schedule, ...]:
    """The schedules that there are, also those that exceed a capacity, in the order of their pairs."""
    reports = (answer.report for answer in answers)
    return tuple(each.drawable for each in reports if each is not None and each.drawable is not None)


def opposed(comparison: Comparison, answers: Sequence[Answer], ticked: Collection[int] = ()) -> tuple[int, int] | None:
    """The reference and the shortest other, which fits if any does; None without two schedules.

    Of the `ticked` pairs, where there are any; one alone is held against the reference.
    """
    ends = {i: each.report for i, each in enumerate(answers) if each.report is not None and each.report.drawable}
    reference = default_reference(comparison, answers) if comparison.reference not in ends else comparison.reference
    chosen = [i for i in ends if i in ticked]
    if len(chosen) > 1 and reference not in chosen:
        reference = chosen[0]
    others = [i for i in chosen if i != reference] or [i for i in ends if i != reference]
    if reference is None or not others:
        return None
    return reference, min(others, key=lambda i: (ends[i].solution is None, ends[i].makespan or 0))


def default_reference(comparison: Comparison, answers: Sequence[Answer]) -> int | None:
    """The first pair by 1F1B, else by 1F1B+, else one after the other, that has a schedule; else the first that has."""
    drawable = [i for i, answer in enumerate(answers) if answer.report is not None and answer.report.drawable]
    known = [i for name in _REFERENCES for i in drawable if comparison.pairs[i].scheduler == name]
    return next(iter(known + drawable), None)


def _row(label: str, pair: Pair, per_sample: bool, answer: Answer) -> Row:
    """Without a reference."""
    report, size = answer.report, (pair.plan.samples if per_sample else None) or 1
    row = Row(
        label=label,
        is_reference=False,
        plan=pair.plan.name,
        work=Fraction(sum(pair.plan.work), size),
        each="sample" if per_sample else "micro-batch",
        outcome=f"by hand, {_outcome(answer)}" if isinstance(pair, Made) else _outcome(answer),
        why_none=answer.why_none,
    )
    if report is None or report.drawable is None:
        return row
    whole, steady = IdleSplit.of_report(report)
    period, bound = report.period_per_micro_batch, report.period_bound
    return replace(
        row,
        period=None if period is None else period / size,
        period_bound=None if bound is None else bound / size,
        makespan=report.makespan,
        makespan_bound=report.makespan_bound,
        time_each=Fraction(report.drawable.makespan, pair.micro_batches * size),
        idle=whole,
        steady_idle=steady,
        peak=max(report.peak_memory or (0,)),
        memory_unit=report.drawable.plan.memory_unit,
        wall_s=report.wall_s,
    )


def _against(reference: Row, row: Row, is_reference: bool) -> Row:
    return replace(
        row,
        is_reference=is_reference,
        period_ratio=_ratio(reference.period, row.period),
        makespan_ratio=_ratio(reference.makespan, row.makespan),
    )


def _outcome(answer: Answer) -> str:
    report = answer.report
    if not answer.begun:
        return "not begun"
    if report is None:
        return "does not apply" if answer.complaint else "searching"
    if report.status is Status.PROVED_OPTIMAL:
        return f"{report.objective_name} proved"
    if report.status is Status.INFEASIBLE:
        return "does not fit"
    if report.cancelled:
        return "cancelled"
    return "no schedule" if report.solution is None else "found"


def _ratio(reference: Fraction | int | None, value: Fraction | int | None) -> float | None:
    return None if not reference or not value else float(Fraction(reference) / value)
