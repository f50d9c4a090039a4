"""The exact least period of small plans: against brute force, CP-SAT and the referee."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from helpers.brute_force import fits, least_period
from helpers.plans import random_plan
from helpers.seeds import reaching, seeds
from helpers.simulator import broken_rules

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.formats.answer_file import answer_text, read_answer
from tessel_core.model import (
    MAKESPAN,
    PERIOD,
    Block,
    BlockKind,
    Dependency,
    MicroBatchPlan,
    PeriodInfimum,
    PlanDevice,
    Repetend,
    Status,
)
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.search.exact_period import ExactPeriod, exact_period
from tessel_core.scheduling.search.modulo import Goal, find_repetend
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.schedule import key_numbers, verdict

EFFORT = Effort(seconds=20.0, workers=2, seed=0)


def shape(name: str, devices: int, capacity: int) -> MicroBatchPlan:
    return build_shape(name, replace(SHAPES[name].defaults, devices=devices, capacity=capacity))


def exact(plan: MicroBatchPlan) -> ExactPeriod:
    found = exact_period(plan, Control())
    assert found is not None
    return found


def checked(repetend: Repetend | None) -> Repetend:
    """Return a repetend of which three periods and their overlaps keep all rules."""
    assert repetend is not None
    turns = repetend.latency // repetend.period + 3
    assert not broken_rules(repetend.expand(turns * repetend.unroll))
    return repetend


def shared(durations: tuple[int, ...], memory: tuple[int, ...], before: int = 1, after: int = 0) -> MicroBatchPlan:
    """Return a V shape on one device per number in `memory`, with blocks on all devices before and after it."""
    devices = range(len(memory))
    times = iter(durations)
    everywhere = tuple(devices)
    blocks = [Block(f"E{i}", BlockKind.FORWARD, everywhere, next(times)) for i in range(before)]
    blocks += [Block(f"F{d}", BlockKind.FORWARD, (d,), next(times), 1) for d in devices]
    blocks += [Block(f"B{d}", BlockKind.BACKWARD, (d,), next(times), -1) for d in reversed(devices)]
    blocks += [Block(f"G{i}", BlockKind.BACKWARD, everywhere, next(times)) for i in range(after)]
    chain = pairwise(blocks)
    return MicroBatchPlan(
        "shared",
        tuple(PlanDevice(f"d{d}", memory[d]) for d in devices),
        tuple(blocks),
        tuple(Dependency(first.name, second.name, 0) for first, second in chain),
    )


def random_shared(seed: int) -> MicroBatchPlan:
    choose = random.Random(seed)
    before, after = choose.choice(((1, 0), (0, 1), (1, 1), (0, 0)))
    durations = tuple(choose.randint(1, 3) for _ in range(4 + before + after))
    return shared(durations, tuple(choose.randint(1, 3) for _ in range(2)), before, after)


UNATTAINED = shared((1, 1, 2, 2, 3, 3, 2), (3, 3, 2), before=0, after=1)
"""A plan on three devices, small enough for CP-SAT, of which no repetend attains the bound of 6."""


@pytest.mark.parametrize(
    ("name", "capacity", "infimum"),
    [
        ("m-shape", 4, PeriodInfimum(Fraction(6), Fraction(2), 7)),
        ("m-shape", 3, PeriodInfimum(Fraction(22, 3), Fraction(1), 4)),
        ("finetune", 4, PeriodInfimum(Fraction(4), Fraction(1), 6)),
        ("nn-eager", 4, PeriodInfimum(Fraction(8), Fraction(2), 7)),
    ],
)
def test_no_repetend_of_these_shapes_attains_the_bound_and_long_ones_approach_it(
    name: str, capacity: int, infimum: PeriodInfimum
):
    """Repetends of more micro-batches than the proof excludes are as short as it allows."""
    found = exact(shape(name, 4, capacity))
    assert found.infimum == infimum
    for unroll in (12, 30, 100):
        repetend = checked(found.repetend(unroll))
        assert infimum.micro_batches < repetend.unroll <= unroll
        assert repetend.period == infimum.least_period(repetend.unroll)
        assert repetend.period == repetend.unroll * infimum.per_micro_batch + infimum.excess
    assert found.repetend(1) is None


@pytest.mark.parametrize(
    ("name", "capacity", "period"),
    [
        ("m-shape", 2, Fraction(10)),
        ("finetune", 3, Fraction(5)),
        ("nn-shape", 4, Fraction(9)),
        ("v-shape", 3, Fraction(16, 3)),
        ("split-v", 3, Fraction(10, 3)),
    ],
)
def test_a_repetend_attains_the_exact_period_of_other_shapes(name: str, capacity: int, period: Fraction):
    found = exact(shape(name, 4, capacity))
    assert found.infimum is None
    assert found.per_micro_batch == period == checked(found.repetend(100)).period_per_micro_batch


@pytest.mark.parametrize("unroll", [1, 2, 3])
def test_cp_sat_finds_the_same_least_periods_where_the_bound_is_not_attained(unroll: int):
    """CP-SAT excludes the bound itself, and finds a repetend one tick above it."""
    infimum = exact(UNATTAINED).infimum
    assert infimum == PeriodInfimum(Fraction(6), Fraction(1), 4)
    assert infimum.least_period(unroll) == 6 * unroll + 1
    assert [by_cp_sat(UNATTAINED, 6 * unroll + more, unroll) for more in (0, 1)] == [Verdict.IMPOSSIBLE, Verdict.PROVED]


def test_cp_sat_finds_the_same_least_periods_where_the_bound_is_attained():
    """The exact period of 11/2 needs two micro-batches. The next whole period of one is impossible too."""
    plan = shape("finetune", 3, 2)
    assert exact(plan).per_micro_batch == Fraction(11, 2)
    assert checked(exact(plan).repetend(100)).period == 11
    questions = ((6, 1), (7, 1), (10, 2), (11, 2))
    found = [by_cp_sat(plan, period, unroll) for period, unroll in questions]
    assert found == [Verdict.IMPOSSIBLE, Verdict.PROVED] * 2


def by_cp_sat(plan: MicroBatchPlan, period: int, unroll: int) -> Verdict:
    return find_repetend(plan, period, unroll, Goal.ANY, EFFORT, Control(60.0))[0]


@pytest.mark.parametrize("plan", [UNATTAINED, shape("finetune", 3, 2), *map(random_shared, seeds(100))])
def test_brute_force_agrees_on_plans_with_shared_blocks(plan: MicroBatchPlan):
    agrees_with_brute_force(exact(plan), plan)


@pytest.mark.parametrize("seed", seeds(100))
def test_brute_force_agrees_on_random_plans(seed: int):
    """Plans of the kind that has an exact period: one set of tied blocks, and no lags."""
    plan = random_plan(reaching(seed, lambda each: has_exact_period(random_plan(each))))
    agrees_with_brute_force(exact(plan), plan)


def has_exact_period(plan: MicroBatchPlan) -> bool:
    return fits(plan) and exact_period(plan, Control()) is not None


def agrees_with_brute_force(found: ExactPeriod, plan: MicroBatchPlan) -> None:
    """Check the exact period against the least period of one micro-batch, and the repetend against all rules."""
    least = least_period(plan, 1)
    assert least is not None
    assert found.per_micro_batch <= least
    repetend = checked(found.repetend(100))
    if found.infimum is not None:
        assert repetend.period_per_micro_batch > found.per_micro_batch
        assert least >= found.infimum.least_period(1) > found.per_micro_batch
        return
    assert repetend.period_per_micro_batch == found.per_micro_batch
    assert (repetend.unroll == 1) == (found.per_micro_batch == least)


def test_coarser_ticks_stretch_the_exact_period():
    """Periods that are not multiples of the coarse tick are excluded up to the next multiple."""
    stretched = replace(
        UNATTAINED, blocks=tuple(replace(block, duration=10 * block.duration) for block in UNATTAINED.blocks)
    )
    found = exact(stretched)
    assert found.infimum == PeriodInfimum(Fraction(60), Fraction(1), 4)
    assert checked(found.repetend(20)).period == 20 * 60 + 10


def test_plans_of_another_kind_have_no_exact_period():
    """These are two sets of tied blocks, a lag, blocks that share no device, and too many states."""
    lag = replace(UNATTAINED, dependencies=tuple(replace(each, lag=1) for each in UNATTAINED.dependencies))
    for plan in (shape("x-shape", 4, 4), lag, shape("alphafold", 4, 3), shape("v-shape", 8, 8)):
        assert exact_period(plan, Control()) is None


def test_a_stopped_search_has_no_exact_period():
    control = Control()
    control.cancel()
    assert exact_period(UNATTAINED, control) is None


@pytest.mark.parametrize("micro_batches", [1, 6, 32, 120])
def test_a_search_says_that_the_bound_is_not_attained(micro_batches: int):
    plan = UNATTAINED
    config = TesselConfig(time_limit=4.0, polish=0.0)
    report = solve_schedule("tessel", plan, micro_batches, config)
    infimum = report.period_infimum
    assert infimum == PeriodInfimum(Fraction(6), Fraction(1), 4)
    assert report.period_bound == 6
    assert report.repetend is not None
    assert 6 < checked(report.repetend).period_per_micro_batch <= 6 + Fraction(1, 90)
    for objective in (MAKESPAN, PERIOD):
        spoken = report.about(objective)
        assert objective == MAKESPAN or spoken.status is Status.FEASIBLE
        assert "no repetend attains 6" in verdict(spoken, plan)
        assert "of more than 4 micro-batches takes at least 6" in verdict(spoken, plan)
        assert any(number.beside.startswith("infimum 6") for number in key_numbers(spoken))
        assert read_answer(answer_text(spoken).encode(), plan).period_infimum == infimum
    if micro_batches >= 32:
        assert report.steady is not None
        assert report.kept_period is not None
        assert report.kept_period <= 6 + Fraction(4, micro_batches) * 2


def test_the_period_search_ends_when_no_repetend_attains_the_bound():
    """It would search for cyclic orders next."""
    report = solve_schedule("tessel", UNATTAINED, 32, TesselConfig(time_limit=4.0, polish=0.0))
    assert "states" in {news.by for news in report.history if news.phase == PERIOD}
    assert not {"circles", "repeated"} & {news.by for news in report.history}
