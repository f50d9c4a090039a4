"""Comparisons and curves contain the values of the single answers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from helpers.brute_force import least_period
from helpers.plans import random_plan
from helpers.seeds import one_in

from tessel_core.charts.curves import count_curves, memory_curve
from tessel_core.control import Control
from tessel_core.editing.schedule import reordered
from tessel_core.errors import InputError
from tessel_core.inspection import IdleSplit, Jitter
from tessel_core.model import PERIOD, MemoryProfile, MicroBatchPlan, Status
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, Answer, Comparison, Question, compare, solve_schedule
from tessel_core.scheduling.comparison import Made, opposed
from tessel_core.scheduling.curves import CapacityRange, CountSweep, MemorySweep, latest_points, lines_of
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.comparison import comparison_columns

QUICK = TesselConfig(time_limit=2.0, polish=0.0, max_unroll=2)


def pair(scheduler: str, plan: MicroBatchPlan, micro_batches: int = 8) -> Question:
    config = QUICK if scheduler == "tessel" else SCHEDULERS[scheduler].config()
    return Question(scheduler, plan, micro_batches, config)


def all_of(plan: MicroBatchPlan, micro_batches: int = 8) -> Comparison:
    names = [name for name in SCHEDULERS if name != "time-optimal"]
    return Comparison(tuple(pair(name, plan, micro_batches) for name in names))


@pytest.mark.parametrize("sample", ["v-shape-4", "m-shape-4", "k-shape-4", "split-v-4", "v-shape-4-inference"])
def test_rows_say_what_the_reports_say(sample: str) -> None:
    comparison = all_of(load_sample(sample))
    answers = [Answer.to(each) for each in comparison.pairs]
    rows = compare(comparison, answers)
    reference = next(row for row in rows if row.is_reference)
    for row, each, answer in zip(rows, comparison.pairs, answers, strict=True):
        if answer.report is None:
            assert row.outcome == "does not apply"
            assert row.why_none
            assert SCHEDULERS[each.scheduler].why_not(each.plan, each.micro_batches) in row.why_none
            continue
        assert row.makespan == answer.report.makespan
        assert row.makespan_ratio == pytest.approx(reference.makespan / row.makespan)
        assert (row.outcome == "does not fit") == (answer.report.status is Status.INFEASIBLE) == bool(row.why_none)
        assert row.peak == max(MemoryProfile.of(answer.report.drawable).peaks)


def test_a_schedule_changed_by_hand_is_a_row_like_any_other_and_stays_as_it_was() -> None:
    plan = load_sample("v-shape-4")
    built = solve_schedule("1f1b", plan, 8).solution
    assert built is not None
    slower = reordered(built, (plan.block_index("F3"), 0), 9)
    comparison = Comparison((pair("1f1b", plan),)).with_pair(Made.of(slower)).named(1, "mine")
    answers = [Answer.to(each) for each in comparison.pairs]
    first, second = compare(comparison, answers, Jitter(draws=100))
    assert (second.label, second.outcome, second.is_reference) == ("mine", "by hand, period proved", False)
    assert second.makespan == slower.makespan
    assert second.makespan_ratio == pytest.approx(first.makespan / slower.makespan)
    assert second.jittered is not None
    assert opposed(comparison, answers) == (0, 1)
    for refused, why in (
        (lambda: comparison.with_pair(Made.of(slower)), "is already in the list as it was changed by hand"),
        (lambda: comparison.with_micro_batches(9), "was changed by hand for 8 micro-batches, but the list needs 9"),
        (lambda: Comparison((pair("1f1b", plan, 9),)).with_pair(Made.of(slower)), "the list needs 9"),
    ):
        with pytest.raises(InputError, match=why):
            refused()
    broken = Made(plan, tuple(row if m else tuple(0 for _ in row) for m, row in enumerate(Made.of(slower).starts)))
    assert "(rule: no overlap)" in Answer.to(broken).complaint


def test_names_and_the_reference_go_with_their_pairs() -> None:
    plan = load_sample("v-shape-4")
    comparison = Comparison(tuple(pair(name, plan) for name in ("1f1b", "gpipe", "sequential")), reference=1)
    named = comparison.named(1, " mine ").named(0, "first")
    assert named.labels() == ("first", "mine", "Sequential, v-shape-4")
    down = named.only([0, 2, 1])
    assert (down.labels(), down.reference) == (("first", "Sequential, v-shape-4", "mine"), 2)
    assert down.only([0, 2, 1]) == named
    assert down.without(0).labels() == ("Sequential, v-shape-4", "mine")
    assert down.without(0).reference == 1
    assert down.without(2).reference is None
    assert down.with_micro_batches(3).labels() == down.labels()
    assert named.named(0, " ").named(1, "") == comparison
    assert named.named(0, "mine").labels()[:2] == ("mine (1)", "mine (2)")
    with pytest.raises(InputError, match="more than 200 characters"):
        comparison.named(0, "x" * 201)


def test_a_difference_is_from_the_reference_to_the_best_that_is_ticked() -> None:
    """GPipe is as short as 1F1B, and does not fit."""
    plan = load_sample("v-shape-4")
    comparison = Comparison(tuple(pair(name, plan) for name in ("gpipe", "1f1b", "sequential", "1f1b+")))
    answers = [Answer.to(each) for each in comparison.pairs]
    assert opposed(comparison, answers) == (1, 2)
    assert opposed(comparison, answers, (0,)) == (1, 0)
    assert opposed(comparison, answers, (0, 2)) == (0, 2)
    assert opposed(comparison, answers, (1,)) == (1, 2)
    assert opposed(comparison, answers, (3,)) == (1, 2), "it has no schedule"
    assert opposed(replace(comparison, reference=2), answers) == (2, 1)
    assert opposed(comparison, [answers[0], *[Answer()] * 3]) is None
    assert opposed(Comparison(), []) is None


def test_columns_that_differ_come_first() -> None:
    plan = load_sample("v-shape-4")
    comparison = Comparison(tuple(pair(name, plan) for name in ("1f1b", "gpipe")))
    columns = comparison_columns(compare(comparison, [Answer.to(each) for each in comparison.pairs]), "step")
    brief = [each for each in columns if each.brief]
    same = [len(set(each.values)) == 1 for each in brief]
    assert [each.heading for each in brief[:2]] == ["Pair", "Outcome"]
    assert brief[2].heading.startswith("Least period"), "only 1F1B repeats"
    assert same[2:] == sorted(same[2:])


def test_a_search_may_stand_in_the_list_once_for_each_objective() -> None:
    """Four micro-batches of a K: no schedule that repeats is as short as the shortest."""
    asked = pair("tessel", load_sample("k-shape-4"), 4)
    comparison = Comparison((asked,)).with_pair(asked.about(PERIOD))
    assert comparison.labels() == ("Tessel search, k-shape-4", "Tessel search (steady), k-shape-4")
    answers = [Answer.to(each) for each in comparison.pairs]
    shortest, steady = compare(comparison, answers)
    assert (shortest.outcome, steady.outcome) == ("makespan proved", "period proved")
    assert shortest.period == steady.period == 6, "of the steadiest repetend, whichever schedule is meant"
    assert (shortest.makespan, shortest.makespan_bound) == (28, 28)
    assert steady.makespan == answers[1].report.repetend_makespan > 28


@pytest.mark.parametrize(
    ("sample", "wanted"), [("v-shape-4", "1F1B"), ("m-shape-4", "1F1B+"), ("x-shape-4", "Sequential")]
)
def test_the_reference_is_what_people_know_best(sample: str, wanted: str) -> None:
    comparison = all_of(load_sample(sample))
    rows = compare(comparison, [Answer.to(each) for each in comparison.pairs])
    assert [row.label.split(",")[0] for row in rows if row.is_reference] == [wanted]


def test_a_chosen_reference_stays_with_its_pair() -> None:
    comparison = replace(all_of(load_sample("v-shape-4")), reference=3)
    kept = comparison.pairs[3]
    for gone in (0, 3, 5):
        left = comparison.without(gone)
        assert left.reference is None if gone == 3 else left.pairs[left.reference] == kept


def test_all_pairs_have_one_number_of_micro_batches() -> None:
    plan = load_sample("v-shape-4")
    comparison = Comparison((pair("1f1b", plan, 8),)).with_pair(pair("gpipe", plan, 20))
    assert [each.micro_batches for each in comparison.pairs] == [8, 8]
    assert [each.micro_batches for each in comparison.with_micro_batches(5).pairs] == [5, 5]


def test_what_cannot_be_compared_is_refused_in_one_sentence() -> None:
    steps, real = load_sample("v-shape-4"), load_sample("gpt-1m-vocab-v-4")
    comparison = Comparison((pair("1f1b", steps),))
    with pytest.raises(InputError, match=r"in ns, but those of v-shape-4 in step: one time axis needs one unit"):
        comparison.with_pair(pair("1f1b", real))
    with pytest.raises(InputError, match="already"):
        comparison.with_pair(pair("1f1b", steps))
    with pytest.raises(InputError, match="more than"):
        Comparison(tuple(pair("1f1b", replace(steps, name=f"p{i}")) for i in range(25)))
    with pytest.raises(InputError, match="no pair 5"):
        Comparison(comparison.pairs, 4)


def test_the_table_has_a_value_of_one_kind_a_pair() -> None:
    comparison = all_of(load_sample("v-shape-4"))
    rows = compare(comparison, [Answer.to(each) for each in comparison.pairs])
    columns = comparison_columns(rows, "step")
    for column in columns:
        assert len(column.values) == len(rows)
        assert len({type(value) for value in column.values if value is not None}) == 1, column.heading
        assert all(column.shown(i) == "" for i, value in enumerate(column.values) if value is None)
    makespans = next(column for column in columns if column.heading == "Makespan (steps)")
    assert makespans.shown(list(SCHEDULERS).index("1f1b") - 1) == "44"


def test_unanswered_pairs_are_rows_too() -> None:
    comparison = all_of(load_sample("v-shape-4"))
    rows = compare(comparison, [Answer() for _ in comparison.pairs])
    assert {row.outcome for row in rows} == {"searching"}
    assert [column.heading for column in comparison_columns(rows, "step")] == ["Pair", "Outcome"]


def test_a_curve_over_micro_batches_is_solved_at_every_point() -> None:
    plan = load_sample("v-shape-4")
    sweep = CountSweep((pair("1f1b", plan), pair("gpipe", plan)), (1, 4, 16))
    control = Control()
    points = sweep.solve(control)
    assert tuple(control.parts) == points
    for line, each in zip(lines_of(sweep.pairs, points), sweep.pairs, strict=True):
        assert [point.micro_batches for point in line] == [1, 4, 16]
        for point in line:
            alone = solve_schedule(each.scheduler, plan, point.micro_batches)
            assert point.time_each() == Fraction(alone.makespan, point.micro_batches)
            assert alone.drawable is not None
            assert point.idle == float(IdleSplit.of(alone.drawable).idle)
            assert point.fits == (alone.solution is not None)
    figure = count_curves([("1F1B", points[::2]), ("GPipe", points[1::2])], "step")
    assert list(figure.data[0].y) == [100 * point.idle for point in points[::2]]
    (twice,) = CountSweep((pair("1f1b", replace(plan, samples=2)),), (4,)).solve(control)
    assert twice.time_each(per_sample=True) == points[2].time_each() / 2, "a micro-batch of two samples"
    figure = count_curves([("1F1B", [twice])], "step", per_sample=True)
    assert list(figure.data[1].y) == [float(twice.time_each(per_sample=True))]
    assert figure.layout.yaxis2.title.text == "steps per sample"


def test_published_orders_are_the_first_points_of_a_curve() -> None:
    plan = load_sample("v-shape-4")
    points = CountSweep((pair("list-scheduling", plan), pair("1f1b", plan)), (1, 2)).solve(Control())
    found = [(point.pair.scheduler, point.micro_batches) for point in points]
    assert found == [("1f1b", 1), ("1f1b", 2), ("list-scheduling", 1), ("list-scheduling", 2)]


def test_a_cancelled_curve_keeps_its_points() -> None:
    control = Control()
    control.cancel()
    assert CountSweep((pair("1f1b", load_sample("v-shape-4")),)).solve(control) == ()
    assert MemorySweep(load_sample("v-shape-4"), (3, 4), QUICK).solve(control) == ()


@pytest.mark.parametrize("seed", one_in(3, range(12)))
def test_a_memory_curve_is_what_brute_force_finds(seed: int) -> None:
    plan = random_plan(seed)
    capacities = tuple(range(1, 9))
    control = Control()
    points = MemorySweep(plan, capacities, replace(QUICK, max_unroll=1)).solve(control)
    assert tuple(point.capacity for point in points) == capacities
    assert latest_points(control.parts) == points
    for point in points:
        wanted = least_period(plan.with_capacity(point.capacity), 1)
        assert (point.period is None) == (wanted is None)
        if wanted is not None:
            assert point.period <= wanted, "an unroll of 1 or better"
            assert point.bound <= point.period
            assert point.peak <= point.capacity
            assert point.status is not Status.PROVED_OPTIMAL or point.period == point.bound


@pytest.mark.parametrize("sample", ["m-shape-4", "k-shape-4", "gpt-1m-vocab-v-4"])
def test_less_memory_never_makes_a_shorter_period(sample: str) -> None:
    plan = load_sample(sample)
    reach = CapacityRange.of(plan, Control())
    points = MemorySweep(plan, reach.spread(reach.shown, 6), replace(QUICK, time_limit=0.5)).solve(Control())
    assert points[0].period is not None, "the least capacity of the range has a schedule"
    periods = [point.period for point in points]
    assert periods == sorted(periods, reverse=True)
    figure = memory_curve(points, plan)
    marks = sum(len(trace.x) for trace in figure.data if trace.mode == "markers")
    assert marks == len(points)


def test_a_range_of_capacities_is_spread_evenly_from_end_to_end() -> None:
    reach = CapacityRange(3, 40, 1.0, "slots")
    assert reach.spread((3.0, 40.0), 5) == (3, 12, 21, 30, 40)
    assert reach.spread((5.0, 6.0), 9) == (5, 6)
    assert reach.spread((7.0, 7.0), 9) == (7,)
    assert reach.spread((-4.0, 99.0), 2) == (3, 40), "never beyond the range"
