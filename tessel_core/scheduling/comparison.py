"""Comparison of several schedules with a reference schedule, for the same number of micro-batches.

If every plan gives its samples per micro-batch, the schedules are for the same number of samples instead, and times are
per sample.
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
"""Schedulers that serve as the reference, in order of preference."""

MAX_PAIRS = 24
"""Largest number of pairs in a comparison."""
MAX_NAME_CHARACTERS = 200
"""Largest length of the name that a user gives to a pair."""


@dataclass(frozen=True, slots=True)
class Made:
    """A schedule that a user made by hand, as an entry of a comparison.

    It is a copy, so later edits do not change it.
    """

    plan: MicroBatchPlan
    starts: tuple[tuple[int, ...], ...]
    """Starts, shaped (micro-batches, blocks)."""

    title: ClassVar[str] = "By hand"
    scheduler: ClassVar[str] = BY_HAND

    @classmethod
    def of(cls, schedule: Schedule) -> Made:
        """Copy the starts of a complete schedule."""
        return cls(schedule.plan, tuple(map(tuple, schedule.starts.tolist())))

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches in the schedule."""
        return len(self.starts)

    def answered_by(self, report: ScheduleReport) -> ScheduleReport:
        """Return the report unchanged, because a schedule made by hand has only one report."""
        return report

    def solve(self, control: Control) -> ScheduleReport:
        """Return a report on the schedule. Raises InputError with the first rule that the schedule breaks."""
        return evaluate(self.schedule, BY_HAND)

    @property
    def schedule(self) -> Schedule:
        """The schedule, with its steady state if it repeats."""
        starts = np.array(self.starts, dtype=np.int64)
        return Schedule.from_starts(self.plan, starts, find_steady_state(starts))


Pair = Question | Made


@dataclass(frozen=True)
class Comparison:
    """Pairs (plan, scheduler) to compare, in the order of their charts. All plans have the same unit of time.

    The pairs have the same number of micro-batches. But if all plans give their samples per micro-batch, the pairs have
    the same number of samples. Then a plan with twice the samples per micro-batch has half as many micro-batches. A
    pair whose scheduler does not apply, or whose schedule does not fit, may be in the list. Its answer says why there
    is no schedule.

    Raises InputError if units of time differ, if numbers of micro-batches or samples do not match, if a pair occurs
    twice, or if there are too many pairs.
    """

    pairs: tuple[Pair, ...] = ()
    reference: int | None = None
    """Index of the pair with which the others are compared. None means the choice of `default_reference`."""

    names: Mapping[Pair, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names that the user gave to pairs."""

    def __post_init__(self) -> None:
        if any(len(name) > MAX_NAME_CHARACTERS for name in self.names.values()):
            raise InputError("comparison", f"a name of a pair has more than {MAX_NAME_CHARACTERS} characters")
        if len(self.pairs) > MAX_PAIRS:
            raise InputError("comparison", f"has {len(self.pairs)} pairs, more than {MAX_PAIRS}")
        for pair in self.pairs[1:]:
            self._check_suits(pair)
        if len(set(self.pairs)) < len(self.pairs):
            raise InputError("comparison", "contains the same plan, scheduler and options twice")
        if self.reference is not None and not 0 <= self.reference < len(self.pairs):
            raise InputError("comparison", f"has no pair {self.reference + 1} to compare with")

    def _check_suits(self, pair: Pair) -> None:
        first = self.pairs[0]
        if pair.plan.time_unit != first.plan.time_unit:
            units = f"its times are in {pair.plan.time_unit}, but those of {first.plan.name} in {first.plan.time_unit}"
            raise InputError(f"plan {pair.plan.name}", f"{units}: one time axis needs one unit")
        wanted = _with_equal_samples(pair, first.plan, first.micro_batches).micro_batches
        if pair.micro_batches != wanted:
            match = f"to match {first.micro_batches} of {first.plan.name}"
            why = f"has {counted(pair.micro_batches, 'micro-batch')}, but needs {wanted} {match}"
            raise InputError(f"plan {pair.plan.name}", why)

    @property
    def micro_batches(self) -> int | None:
        """Number of micro-batches of the pairs, the largest if they differ. None if there are no pairs."""
        return max((pair.micro_batches for pair in self.pairs), default=None)

    @property
    def per_sample(self) -> bool:
        """Whether every plan gives its number of samples per micro-batch."""
        return all(pair.plan.samples is not None for pair in self.pairs)

    def with_pair(self, pair: Pair) -> Comparison:
        """Return the list with one more pair at the end. The pair gets the number of micro-batches of the list.

        Raises InputError if the pair is in the list already, has another unit of time, or cannot get that number of
        micro-batches.
        """
        pair = self._suited(pair)
        if pair in self.pairs:
            how = "as it was changed by hand" if isinstance(pair, Made) else "with this scheduler and these options"
            raise InputError(f"plan {pair.plan.name}", f"is already in the list {how}")
        return replace(self, pairs=(*self.pairs, pair))

    def _suited(self, pair: Pair) -> Pair:
        """Return the pair with the number of samples or micro-batches that all pairs of the list have."""
        first = self.pairs[0] if self.pairs else pair
        return _with_equal_samples(pair, first.plan, first.micro_batches)

    def has(self, pair: Pair) -> bool:
        """Return whether a pair is in the list. The number of micro-batches of the pair does not matter."""
        try:
            return self._suited(pair) in self.pairs
        except InputError:
            return False

    def without(self, index: int) -> Comparison:
        """Return the list without pair `index`. The reference stays with its pair if that pair remains."""
        return self.only([i for i in range(len(self.pairs)) if i != index])

    def only(self, order: Sequence[int]) -> Comparison:
        """Return the list with the pairs at the indices `order`, in this order.

        The reference stays with its pair if that pair remains.
        """
        pairs = tuple(self.pairs[i] for i in order)
        reference = order.index(self.reference) if self.reference in order else None
        return Comparison(pairs, reference, {pair: self.names[pair] for pair in pairs if pair in self.names})

    def named(self, index: int, name: str) -> Comparison:
        """Return the list with a name for pair `index`. A blank name restores the default name."""
        names = {**self.names, self.pairs[index]: name.strip()}
        return replace(self, names={pair: text for pair, text in names.items() if text})

    def with_micro_batches(self, micro_batches: int) -> Comparison:
        """Return the same pairs with `micro_batches` for the pair that has the most, and equal samples for the others.

        Raises InputError if these samples are not a whole number of micro-batches of some pair.
        """
        finest = max(self.pairs, key=lambda pair: pair.micro_batches)
        now = {pair: _with_equal_samples(pair, finest.plan, micro_batches) for pair in self.pairs}
        names = {now[pair]: name for pair, name in self.names.items()}
        return replace(self, pairs=tuple(now.values()), names=names)

    def labels(self) -> tuple[str, ...]:
        """Return a distinct label for each pair: its name, or else scheduler and plan. Equal labels get numbers."""
        names = [self.names.get(pair) or f"{pair.title}, {pair.plan.name}" for pair in self.pairs]
        return tuple(
            name if names.count(name) == 1 else f"{name} ({names[:i].count(name) + 1})" for i, name in enumerate(names)
        )


def _with_equal_samples(pair: Pair, plan: MicroBatchPlan, micro_batches: int) -> Pair:
    """Return the pair with as many samples as `micro_batches` micro-batches of `plan` have.

    If one of the two plans does not give its samples, the pair gets `micro_batches` micro-batches. Raises InputError if
    the pair cannot have this number.
    """
    count = micro_batches
    if pair.plan.samples is not None and plan.samples is not None:
        samples = micro_batches * plan.samples
        count, rest = divmod(samples, pair.plan.samples)
        if rest:
            each = pair.plan.samples
            why = f"has {each} samples per micro-batch, which do not divide the {samples} samples to compare"
            raise InputError(f"plan {pair.plan.name}", why)
    if isinstance(pair, Question):
        return replace(pair, micro_batches=count)
    if count != pair.micro_batches:
        why = f"was changed by hand for {counted(pair.micro_batches, 'micro-batch')}, but the list needs {count}"
        raise InputError(f"schedule of {pair.plan.name}", why)
    return pair


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of one pair: a report, an error message, or neither while it is being solved."""

    report: ScheduleReport | None = None
    complaint: str = ""
    begun: bool = True
    """False if the search was stopped before it reached this pair."""

    @classmethod
    def to(cls, pair: Pair, control: Control | None = None) -> Answer:
        """Solve the pair and return the answer. The message of an InputError becomes the `complaint`."""
        try:
            return cls(pair.solve(control or Control()))
        except InputError as error:
            return cls(complaint=error.why)

    @property
    def why_none(self) -> str:
        """One sentence on why there is no valid schedule. Empty if there is one, or if the pair is not solved yet."""
        if self.complaint:
            return self.complaint
        if self.report is None or self.report.solution is not None:
            return ""
        return self.report.reason or "no schedule was found in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a comparison.

    Memory and times are in the plans' units. None means that there is no schedule to measure.
    """

    label: str
    is_reference: bool
    plan: str
    work: Fraction
    """Ticks of work on all devices, per sample or per micro-batch (see `each`)."""
    each: str
    """The word "sample" if work and periods are per sample, else "micro-batch"."""
    outcome: str
    """The result in two or three words, such as "does not fit"."""
    period: Fraction | None = None
    """Period in ticks per sample or per micro-batch (see `each`). `period_bound` has the same unit."""
    period_ratio: float | None = None
    """Period of the reference / period of this row. Above 1 means faster."""
    period_bound: Fraction | None = None
    makespan: int | None = None
    makespan_ratio: float | None = None
    """Makespan of the reference / makespan of this row. Above 1 means faster."""
    makespan_bound: int | None = None
    time_each: Fraction | None = None
    """Makespan in ticks divided by the number of samples or micro-batches (see `each`)."""
    idle: IdleSplit | None = None
    """Idle time of the whole schedule."""
    steady_idle: IdleSplit | None = None
    """Idle time of the steady state with the shortest period found, even if the schedule does not keep it."""
    peak: int | None = None
    """Peak memory of the fullest device."""
    memory_unit: str | None = None
    wall_s: float | None = None
    why_none: str = ""
    jittered: Jittered | None = None
    """Makespans under random durations."""


def compare(comparison: Comparison, answers: Sequence[Answer], jitter: Jitter | None = None) -> tuple[Row, ...]:
    """Return one row per pair, with ratios to the reference. With `jitter`, rows also have makespans under jitter."""
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
    """Return the schedule of each answer that has one, in order. Schedules that exceed a capacity are included."""
    reports = (answer.report for answer in answers)
    return tuple(each.drawable for each in reports if each is not None and each.drawable is not None)


def opposed(comparison: Comparison, answers: Sequence[Answer], ticked: Collection[int] = ()) -> tuple[int, int] | None:
    """Return the indices of two pairs to draw beside each other: the reference, and the shortest other schedule.

    Schedules that fit in memory come before all others. If the user has ticked pairs, the choice is among the ticked
    pairs. A single ticked pair is compared with the reference. The result is None if there are not two schedules.
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
    """Return the index of the first schedule by 1F1B, else 1F1B+, else the sequential order, else any scheduler."""
    drawable = [i for i, answer in enumerate(answers) if answer.report is not None and answer.report.drawable]
    known = [i for name in _REFERENCES for i in drawable if comparison.pairs[i].scheduler == name]
    return next(iter(known + drawable), None)


def _row(label: str, pair: Pair, per_sample: bool, answer: Answer) -> Row:
    """Return the row of a pair, without ratios to the reference."""
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
        return "not started"
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
