"""Laws that every scheduler keeps on every sample."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from helpers.plans import random_plan
from helpers.seeds import one_in
from helpers.simulator import broken_rules, peaks, runs_of

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import (
    MAKESPAN,
    PERIOD,
    Block,
    BlockKind,
    Dependency,
    MicroBatchPlan,
    Phase,
    PlanDevice,
    Repetend,
    Schedule,
    ScheduleReport,
    Status,
)
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.order import run_in_order
from tessel_core.scheduling.tessel import TesselConfig


def objection(scheduler: str, plan: MicroBatchPlan) -> str:
    """Return why the scheduler does not apply; empty if it does."""
    return SCHEDULERS[scheduler].objection(plan)


QUICK = {"time_limit": 0.1, "polish": 0.0}
SAMPLES = {sample.name: load_sample(sample.name) for sample in list_samples()}
APPLIES = [(name, sample) for sample, plan in SAMPLES.items() for name in SCHEDULERS if not objection(name, plan)]
SEARCHES = ("tessel", "time-optimal", "list-scheduling")


def tried(scheduler: str, number: int, plan: MicroBatchPlan) -> bool:
    """Return whether every test run includes this pair. Other pairs have the mark `more`."""
    share = 6 if len(plan.devices) <= 4 else 12
    return {"tessel": number % share == 0, "time-optimal": number % 12 == 0}.get(scheduler, True)


def cases() -> Iterator[Any]:
    """Return the pairs of samples and schedulers that apply."""
    for number, (sample, plan) in enumerate(SAMPLES.items()):
        applying = [name for name in SCHEDULERS if (name, sample) in APPLIES]
        often = [name for name in applying if tried(name, number, plan)]
        yield pytest.param(sample, often, id=sample)
        if often != applying:
            rest = [name for name in applying if name not in often]
            yield pytest.param(sample, rest, id=f"{sample}-more", marks=pytest.mark.more)


every_case = pytest.mark.parametrize(("sample", "schedulers"), list(cases()))
every_sample = pytest.mark.parametrize(
    "sample",
    [
        sample if tried("tessel", number, plan) else pytest.param(sample, marks=pytest.mark.more)
        for number, (sample, plan) in enumerate(SAMPLES.items())
    ],
)
MICRO_BATCHES = (1, 3, 8)
"""One, fewer than the shortest pipeline of the samples has stages, and enough to repeat."""
PICKY = (
    "1f1b",
    "1f1b+",
    "interleaved",
    "chimera",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe",
    "pipedream",
)
"""Schedulers that do not apply to every plan."""


def first_sample_for(scheduler: str) -> str:
    """Return the first sample that suits the scheduler."""
    return next(sample for name, sample in APPLIES if name == scheduler)


def config_of(scheduler: str, **wanted: object) -> object:
    """Return the scheduler's config with those of the options that it has."""
    config = SCHEDULERS[scheduler].config
    known = {each.name for each in fields(config)}
    return config(**{name: value for name, value in wanted.items() if name in known})


@cache
def solved(scheduler: str, sample: str, micro_batches: int) -> ScheduleReport | None:
    """Return the quick report, which all laws share. None if the scheduler does not apply."""
    plan = SAMPLES[sample]
    if SCHEDULERS[scheduler].why_not(plan, micro_batches):
        return None
    return solve_schedule(scheduler, plan, micro_batches, config_of(scheduler, **QUICK))


def reports(sample: str, schedulers: list[str]) -> Iterator[ScheduleReport]:
    """Yield each report. If a law fails, the last printed line names its report."""
    for scheduler in schedulers:
        for micro_batches in MICRO_BATCHES:
            report = solved(scheduler, sample, micro_batches)
            if report is not None:
                assert report.solver == scheduler
                print(f"{scheduler} on {sample}, {micro_batches} micro-batches")
                yield report


@every_case
def test_a_schedule_obeys_the_rules(sample: str, schedulers: list[str]):
    for report in reports(sample, schedulers):
        if report.solution is not None:
            assert broken_rules(report.solution) == set()
        else:
            assert report.status is Status.INFEASIBLE
            assert report.relaxed_solution is not None
            assert broken_rules(report.relaxed_solution) == {"memory"}


@every_case
def test_claims_are_the_schedule_s_own_and_no_bound_is_above_them(sample: str, schedulers: list[str]):
    for report in reports(sample, schedulers):
        drawn = report.drawable
        assert drawn is not None
        ends = [start + drawn.plan.blocks[b].duration for b, _, start in runs_of(drawn)]
        assert report.makespan == max(ends)
        assert report.makespan_bound <= max(ends)
        assert report.peak_memory == tuple(peaks(drawn.plan, runs_of(drawn)))
        steady = report.repetend or drawn.repetend
        if steady is not None:
            period = Fraction(steady.period, steady.unroll)
            assert report.period_per_micro_batch == period
            assert report.period_bound <= period
        claimed = {"makespan": Fraction(max(ends)), "period": report.period_per_micro_batch}[report.objective_name]
        bound = {"makespan": report.makespan_bound, "period": report.period_bound}[report.objective_name]
        assert report.bound == bound
        assert report.objective == (None if report.status is Status.INFEASIBLE else claimed)


@every_case
def test_the_status_says_what_is_proved(sample: str, schedulers: list[str]):
    for report in reports(sample, schedulers):
        if report.status is Status.INFEASIBLE:
            assert report.solution is report.objective is None
            assert "does not fit" in report.reason
            continue
        assert report.relaxed_solution is report.least_capacity is None
        proved = report.objective == report.bound
        assert report.status is (Status.PROVED_OPTIMAL if proved else Status.FEASIBLE)
        assert isinstance(report.config, SCHEDULERS[report.solver].config)


@every_case
def test_news_only_gets_better(sample: str, schedulers: list[str]):
    for report in reports(sample, schedulers):
        assert all(before.wall_s <= after.wall_s for before, after in pairwise(report.history))
        for phase in {news.phase for news in report.history}:
            told = [news for news in report.history if news.phase == phase]
            objectives = [news.objective for news in told if news.objective is not None]
            bounds = [news.bound for news in told if news.bound is not None]
            assert objectives == sorted(objectives, reverse=True)
            assert bounds == sorted(bounds)
            assert not objectives or not bounds or bounds[-1] <= objectives[-1]
        if report.solver == "tessel":
            assert {news.phase for news in report.history} == {MAKESPAN, PERIOD}
            for phase, best in ((PERIOD, report.period_per_micro_batch), (MAKESPAN, report.shortest.makespan)):
                assert [news.objective for news in report.history if news.phase == phase][-1] == best
            assert all(news.by for news in report.history), "each step says what found it"


@pytest.mark.parametrize("scheduler", PICKY)
def test_a_scheduler_that_does_not_apply_says_why_in_one_sentence(scheduler: str):
    others = [sample for sample in SAMPLES if (scheduler, sample) not in APPLIES]
    assert others
    for sample in others:
        why = objection(scheduler, SAMPLES[sample])
        with pytest.raises(InputError) as raised:
            solve_schedule(scheduler, SAMPLES[sample], 4)
        assert str(raised.value) == f"scheduler {scheduler}: does not apply to plan {sample}: {why}"
        assert "\n" not in why
        assert not why.endswith(".")


def test_every_baseline_applies_to_some_sample_and_the_picky_ones_not_to_all():
    applies = {name: [sample for each, sample in APPLIES if each == name] for name in SCHEDULERS}
    assert all(applies.values())
    assert [name for name, found in applies.items() if len(found) < len(SAMPLES)] == list(PICKY)
    chains = ("v-shape", "split-v", "gpt-1m-vocab-v", "mt5-v", "gpt-6.7b", "gpt-13b", "gpt-175b")
    assert applies["1f1b"] == [name for name in SAMPLES if name.startswith(chains)]
    assert not set(applies["1f1b"]) & set(applies["1f1b+"])


def tessel_reports(sample: str) -> list[tuple[int, ScheduleReport, Repetend]]:
    """Return the search's report for every number of micro-batches, with its repetend."""
    found = []
    for micro_batches in MICRO_BATCHES:
        report = solved("tessel", sample, micro_batches)
        assert report is not None
        assert report.repetend is not None
        found.append((micro_batches, report, report.repetend))
    return found


@every_sample
def test_one_search_finds_the_shortest_schedule_and_the_one_that_keeps_the_repetend(sample: str):
    for micro_batches, report, repetend in tessel_reports(sample):
        shortest, steady = report.shortest, report.steady
        assert shortest is not None
        assert shortest is report.solution, "asked for the makespan"
        assert (shortest.repetend is None) == (shortest is not steady)
        if steady is None:
            one_by_one = solve_schedule("sequential", shortest.plan, micro_batches).makespan or 0
            assert micro_batches <= repetend.unroll or repetend.expand(micro_batches).makespan >= one_by_one
            continue
        assert steady.repetend is not None
        kept = Fraction(steady.repetend.period, steady.repetend.unroll)
        if micro_batches > repetend.unroll:
            assert kept == repetend.period_per_micro_batch
            assert steady.makespan <= repetend.expand(micro_batches).makespan
        else:
            assert repetend.period_per_micro_batch < kept <= Fraction(shortest.makespan, micro_batches)
        assert shortest is steady or shortest.makespan < steady.makespan


@every_case
def test_a_report_may_speak_of_either_objective_and_come_back(sample: str, schedulers: list[str]):
    for report in reports(sample, schedulers):
        period = report.about(PERIOD)
        assert period.about(report.objective_name) == report
        if report.shortest is None:
            assert period is report, "one schedule is all there is"
            continue
        assert period.solution is (report.steady or report.shortest)
        assert (period.objective, period.bound) == (report.kept_period, report.period_bound)
        proved = period.objective == period.bound
        assert period.status is (Status.PROVED_OPTIMAL if proved else Status.FEASIBLE)
        assert broken_rules(period.solution) == set()
        for name in ("period", "unroll", "repetend_makespan", "steady_bubble_rate", "makespan_bound"):
            assert getattr(period, name) == getattr(report, name)


@pytest.mark.parametrize("sample", one_in(2, ["v-shape-4", "k-shape-4", "split-v-4", "gpt-1m-vocab-m-4"]))
def test_the_objective_asked_changes_no_search(sample: str):
    config = config_of("tessel", workers=1, time_limit=60.0, polish=2.0, max_unroll=2)
    plan = load_sample(sample)
    makespan, period = (
        solve_schedule("tessel", plan, 5, replace(config, objective=each)) for each in (MAKESPAN, PERIOD)
    )
    assert (makespan.objective_name, period.objective_name) == (MAKESPAN, PERIOD)
    other = makespan.about(PERIOD)
    assert (other.status, other.objective, other.bound) == (period.status, period.objective, period.bound)
    assert runs_of(other.solution) == runs_of(period.solution)


def in_flight(repetend: Repetend) -> int:
    """Return the number of micro-batches between the first and last block of one instance of the repetend."""
    return (int(repetend.first_start.max()) // repetend.period + 1) * repetend.unroll


def least_published(report: ScheduleReport) -> int:
    """Return the least makespan of the published orders that apply and fit; infinite if there is none."""
    plan, micro_batches = report.solution.plan, report.solution.micro_batches
    names = [n for n in SCHEDULERS if n not in SEARCHES and not SCHEDULERS[n].why_not(plan, micro_batches)]
    reports = [solve_schedule(name, plan, micro_batches) for name in names]
    return min([each.makespan for each in reports if each.solution is not None], default=2**60)


def shows_an_instance(schedule: Schedule) -> bool:
    """Return whether some window of one period in the steady state contains every block of a period's micro-batches."""
    steady = schedule.repetend
    if steady is None:
        return False
    turns = (steady.last_micro_batch - steady.first_micro_batch + 1) // steady.unroll
    stretch = range(steady.first_micro_batch, steady.first_micro_batch + turns * steady.unroll)
    starts = [start for _, m, start in runs_of(schedule) if m in stretch]
    whole = len(schedule.plan.blocks) * steady.unroll
    return any(sum(opens <= start < opens + steady.period for start in starts) == whole for opens in starts)


@every_sample
def test_what_tessel_keeps_is_an_instance_or_a_quarter_of_the_micro_batches(sample: str):
    for micro_batches, report, repetend in tessel_reports(sample):
        if report.steady is None:
            continue
        kept, unroll = report.steady.repetend, repetend.unroll
        assert kept is not None
        stretch = kept.last_micro_batch - kept.first_micro_batch + 1
        assert stretch >= min(in_flight(repetend), max(unroll + 1, micro_batches // 4), micro_batches)


@pytest.mark.parametrize(("capacity", "micro_batches", "period"), [(5, 6, "32/5"), (5, 32, "32/5"), (7, 8, "32/7")])
def test_few_micro_batches_keep_the_least_period_where_they_can(capacity: int, micro_batches: int, period: str):
    """Lists of many micro-batches find it first. It is kept by as many micro-batches as its denominator."""
    plan = load_sample("v-shape-8").with_capacity(capacity)
    config = config_of("tessel", objective=PERIOD, time_limit=10.0, polish=0.0)
    report = solve_schedule("tessel", plan, micro_batches, config)
    assert report.status is Status.PROVED_OPTIMAL
    assert report.solution.repetend is not None
    assert report.objective == report.bound == Fraction(period)


@pytest.mark.parametrize("sample", ["v-shape-4", "k-shape-4", "finetune-4", "m-shape-4-inference", "gpt-1m-vocab-v-4"])
def test_many_micro_batches_show_a_whole_instance_of_the_repetend(sample: str):
    report = solve_schedule("tessel", load_sample(sample), 32, config_of("tessel", time_limit=2.0, polish=0.0))
    assert report.steady is not None
    assert report.repetend is not None
    counts = [list(report.steady.phase).count(phase) for phase in Phase]
    whole = len(report.repetend.plan.blocks) * report.repetend.unroll
    assert counts[1] >= 4 * whole
    assert counts[1] % whole == 0
    assert min(counts[0], counts[2]) > 0 or report.repetend.latency <= report.repetend.period


@pytest.mark.parametrize("devices", [4, 8])
def test_one_f_one_b_holds_as_many_micro_batches_as_there_are_stages_and_gpipe_all(devices: int):
    plan = load_sample(f"v-shape-{devices}").with_capacity(None)
    for micro_batches in (1, 3, 20):
        staged, flushed = (solve_schedule(name, plan, micro_batches) for name in ("1f1b", "gpipe"))
        assert staged.peak_memory == tuple(min(micro_batches, devices - stage) for stage in range(devices))
        assert flushed.peak_memory == (micro_batches,) * devices


@pytest.mark.parametrize("scheduler", [name for name in SCHEDULERS if name not in SEARCHES])
def test_a_published_order_that_does_not_fit_is_shown_with_its_excess(scheduler: str):
    plan = load_sample(first_sample_for(scheduler))
    needed = solve_schedule(scheduler, plan.with_capacity(None), 12).peak_memory
    assert needed is not None
    least = max(needed)
    fitting = solve_schedule(scheduler, plan.with_capacity(least), 12)
    report = solve_schedule(scheduler, plan.with_capacity(least - 1), 12)
    assert fitting.solution is not None
    assert report.status is Status.INFEASIBLE
    assert report.relaxed_solution is not None
    assert report.least_capacity == least
    told = report.reason.split("the memory of ")[1].split(", ")
    names, found = [device.name for device in plan.devices], list[str]()
    for part in told:
        ends, each = part.split(" by 1 slot")
        first, last = (ends.split("–") * 2)[:2]
        assert (each == " each") == (first != last)
        found += names[names.index(first) : names.index(last) + 1]
    assert found == [name for name, peak in zip(names, needed, strict=True) if peak == least]


@pytest.mark.parametrize("scheduler", SEARCHES)
@pytest.mark.parametrize("plan", [load_sample("v-shape-4"), load_sample("split-v-4"), random_plan(3), random_plan(35)])
def test_one_worker_and_a_seed_give_the_same_answer(scheduler: str, plan: MicroBatchPlan):
    config = config_of(scheduler, workers=1, seed=3, time_limit=60.0, polish=5.0, max_unroll=2)
    one, other = (solve_schedule(scheduler, plan, 5, config) for _ in range(2))
    assert one.reason == other.reason
    assert "not reproducible" not in one.reason
    assert one.solution is not None
    assert other.solution is not None
    assert runs_of(one.solution) == runs_of(other.solution)
    assert [(n.phase, n.objective, n.bound, n.by) for n in one.history] == [
        (n.phase, n.objective, n.bound, n.by) for n in other.history
    ]


def test_a_search_with_one_worker_says_where_the_clock_ended_its_polish() -> None:
    config = config_of("tessel", workers=1, time_limit=60.0, polish=0.01, max_unroll=2)
    report = solve_schedule("tessel", load_sample("nn-shape-4"), 5, config)
    assert report.reason == "a phase used up its share of the time limit: not reproducible"


@dataclass
class Background:
    """A search in a thread of its own, as in the app."""

    scheduler: str
    plan: MicroBatchPlan
    micro_batches: int
    time_limit: float
    control: Control = field(default_factory=Control)
    report: ScheduleReport | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        config = config_of(self.scheduler, time_limit=self.time_limit, polish=30.0)
        self.report = solve_schedule(self.scheduler, self.plan, self.micro_batches, config, self.control)

    def cancel(self) -> float:
        """Cancel, wait for the end, and return the seconds that it took."""
        began = time.monotonic()
        self.control.cancel()
        self.thread.join(timeout=10)
        return time.monotonic() - began


@pytest.mark.parametrize(
    ("scheduler", "sample", "capacity", "time_limit"),
    [
        ("tessel", "nn-shape-4", 4, 60.0),
        ("time-optimal", "mt5-nn-8", None, 60.0),
        ("time-optimal", "mt5-nn-8", None, 3.0),
    ],
    ids=["two phases", "all runs, before its own search", "all runs, in its own search"],
)
def test_cancel_answers_within_a_second_and_keeps_the_incumbent(
    scheduler: str, sample: str, capacity: int | None, time_limit: float
):
    """None of these searches would end by itself in this time."""
    run = Background(scheduler, load_sample(sample).with_capacity(capacity), 64, time_limit)
    time.sleep(0.3)
    tells_late = scheduler == "time-optimal" and time_limit > 6
    while not (tells_late or run.report or any(news.objective is not None for news in run.control.history)):
        time.sleep(0.05)
    assert run.report is None
    told = [news for news in run.control.history if news.objective is not None]
    assert run.cancel() < 1.0
    assert run.report is not None
    assert run.report.status is Status.FEASIBLE
    assert run.report.reason == "cancelled: the best so far"
    assert run.report.solution is not None
    assert broken_rules(run.report.solution) == set()
    assert run.report.objective is not None
    assert told or tells_late
    assert all(run.report.about(news.phase).objective <= news.objective for news in told)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_cancelled_before_it_began_it_answers_at_once(scheduler: str):
    control = Control()
    control.cancel()
    plan = load_sample(first_sample_for(scheduler))
    report = solve_schedule(scheduler, plan, 4, config_of(scheduler), control)
    assert report.wall_s < 1.0
    assert report.drawable is not None


@pytest.mark.parametrize("scheduler", SEARCHES)
def test_cancelled_before_an_order_that_fits_was_found_it_says_so(scheduler: str):
    """Two chains share room for one. The plan's order, both forwards first, does not fit."""
    forward = [Block(name, BlockKind.FORWARD, (0,), 1, 1) for name in ("F", "G")]
    backward = [Block(name, BlockKind.BACKWARD, (0,), 2, -1) for name in ("B", "C")]
    chains = Dependency("F", "B"), Dependency("G", "C")
    plan = MicroBatchPlan("two chains", (PlanDevice("gpu0", 1),), (*forward, *backward), chains)
    control = Control()
    control.cancel()
    report = solve_schedule(scheduler, plan, 4, None, control)
    assert report.status is Status.CANCELLED
    assert report.solution is report.objective is None
    assert report.reason == "no order was found in time"


@pytest.mark.parametrize(
    ("scheduler", "micro_batches", "config", "why"),
    [
        ("tesla", 4, None, "scheduler: 'tesla' is not known, choose from tessel, time-optimal, "),
        ("tessel", 0, None, "micro-batches: must be an integer of at least 1, got 0"),
        ("tessel", True, None, "micro-batches: must be an integer of at least 1, got True"),
        ("tessel", 2.0, None, "micro-batches: must be an integer of at least 1, got 2.0"),
        ("gpipe", 2**60, None, "micro-batches: 1,152,921,504,606,846,976 micro-batches of 8 blocks are 9,2"),
        ("gpipe", 125_001, None, "micro-batches: 125,001 micro-batches of 8 blocks are 1,000,008 runs, more than the "),
        ("gpipe", 4, config_of("tessel"), "scheduler gpipe: takes a NoOptions, got TesselConfig"),
        ("tessel", 4, config_of("tessel", max_unroll=0), "Largest repeat: must be between 1 and 16, got 0"),
        ("tessel", 4, config_of("tessel", seed=1.5), "Seed: must be of type int, got 1.5"),
        (
            "tessel",
            4,
            config_of("tessel", time_limit=float("nan")),
            "Time limit: must be between 0.1 and 3600, got nan",
        ),
        ("time-optimal", 4, config_of("time-optimal", workers=True), "Workers: must be of type int, got True"),
    ],
)
def test_wrong_questions_are_said_in_one_sentence(scheduler: str, micro_batches: int, config: object, why: str):
    with pytest.raises(InputError) as raised:
        solve_schedule(scheduler, load_sample("v-shape-4"), micro_batches, config)
    assert str(raised.value).startswith(why)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_device_too_small_for_one_micro_batch_is_infeasible_to_all(scheduler: str):
    plan = load_sample(first_sample_for(scheduler))
    full = replace(plan, devices=tuple(replace(d, static_memory=5, memory_capacity=5) for d in plan.devices))
    report = solve_schedule(scheduler, full, 4, config_of(scheduler, **QUICK))
    assert report.status is Status.INFEASIBLE
    assert report.solution is None
    assert report.least_capacity is not None
    assert report.least_capacity > 5


@pytest.mark.parametrize("sample", one_in(2, ["m-shape-8", "alphafold-8", "gpt-1m-vocab-m-8", "flava-16-inference"]))
def test_a_searched_schedule_is_never_longer_than_a_published_one(sample: str) -> None:
    """Even with fewer micro-batches than are in flight, so that no repetend fits."""
    found = solve_schedule("tessel", load_sample(sample), 8, config_of("tessel", time_limit=0.6, polish=0.1, workers=1))
    assert found.makespan <= least_published(found)


@pytest.mark.parametrize(
    "sample", one_in(3, ["k-shape-8", "gpt-13b-v-8", "flava-4", "zb-v-4", "alphafold-4", "evoformer-4"])
)
def test_a_searched_schedule_is_never_longer_than_two_hundred_lists(sample: str) -> None:
    plan = load_sample(sample)
    for micro_batches in (8, 32):
        listed = solve_schedule("list-scheduling", plan, micro_batches)
        assert listed.solution is not None
        assert broken_rules(listed.solution) == set()
        found = solve_schedule("tessel", plan, micro_batches, config_of("tessel", time_limit=1.0, polish=0.1))
        assert found.makespan <= listed.makespan


@pytest.mark.parametrize("sample", one_in(2, ["gpt-13b-v-8", "gpt-13b-split-v-8"]))
def test_the_steady_schedule_repeats_and_no_period_is_above_the_shortest_schedule_s_share(sample: str) -> None:
    """The least period may need more micro-batches than there are. They then keep the steadiest possible period."""
    report = solve_schedule("tessel", load_sample(sample), 16, TesselConfig(time_limit=3.0, polish=0.1, workers=1))
    spoken = report.about(PERIOD)
    assert spoken.solution is not None
    assert spoken.solution.repetend is not None
    assert report.period_per_micro_batch is not None
    assert report.makespan is not None
    kept = Fraction(spoken.solution.repetend.period, spoken.solution.repetend.unroll)
    assert report.period_bound <= report.period_per_micro_batch <= kept == spoken.objective
    assert report.period_per_micro_batch <= Fraction(report.makespan, 16)
    assert (report.repetend_makespan is not None) == (kept == report.period_per_micro_batch)


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4])
def test_no_schedule_is_called_steady_that_takes_as_long_as_one_micro_batch_after_the_other(micro_batches: int) -> None:
    plan = load_sample("m-shape-4")
    report = solve_schedule("tessel", plan, micro_batches, TesselConfig(objective=PERIOD))
    one_by_one = solve_schedule("sequential", plan, micro_batches).makespan
    assert report.makespan is not None
    assert one_by_one is not None
    assert report.makespan < one_by_one or report.makespan == report.makespan_bound


def test_where_the_kernels_are_not_ready_in_time_a_search_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT then finds the period, and its completion the makespan. Both keep the rules."""
    monkeypatch.setattr("tessel_core.scheduling.kernels.warm.warm_in_time", lambda control: False)
    plan = load_sample("gpt-13b-v-8")
    report = solve_schedule("tessel", plan, 16, TesselConfig(time_limit=0.8, polish=0.1, workers=1))
    assert report.solution is not None
    assert not broken_rules(report.solution)
    assert report.period_per_micro_batch is not None
    assert report.period_per_micro_batch >= report.period_bound
    assert not {"circles", "order"} & {news.by for news in report.history}


def test_more_micro_batches_than_a_model_holds_are_scheduled_soon_and_cancelled_at_once() -> None:
    """65,536 runs on 64 devices. CP-SAT never gets the whole schedule."""
    plan = build_shape("v-shape", ShapeParameters(devices=64, capacity=32))
    run = Background("tessel", plan, 512, 60.0)
    until = time.monotonic() + 4.0
    while not any(news.phase == MAKESPAN and news.objective is not None for news in run.control.history):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert run.cancel() < 1.0
    assert run.report is not None
    assert run.report.solution is not None
    assert broken_rules(run.report.solution) == set()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda runs: runs[:-1], "is missing in the order"),
        (lambda runs: [*runs, runs[0]], "occurs twice in the order"),
        (lambda runs: runs[::-1], "must come before"),
    ],
)
def test_an_order_without_each_run_once_in_the_order_of_dependencies_is_refused(change, why: str) -> None:
    plan = load_sample("v-shape-4")
    runs = [(b, m) for m in range(2) for b in plan.topological_order]
    assert run_in_order(plan, 2, runs).min() >= 0
    with pytest.raises(ValueError, match=why):
        run_in_order(plan, 2, change(runs))
