"""Runs of schedules: losses and every gradient equal those of one process, and the recorded times are true."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from helpers.networks import some_network, some_schedule
from helpers.ranks import share_of_nan
from helpers.seeds import one_in, seeds

from tessel_core.errors import InputError
from tessel_core.execution.ranks import RankError, Ranks
from tessel_core.execution.schedule_run import RunConfig, check_runnable, run_schedule
from tessel_core.execution.share import Timed
from tessel_core.execution.stand_ins import COMPUTE, SLEEP
from tessel_core.formats.fields import read_with
from tessel_core.formats.run_file import RunFile, run_from, run_text
from tessel_core.formats.schedule_file import ScheduleFile, ScheduleFileReport
from tessel_core.model import MemoryProfile, MicroBatchPlan, Schedule, Status
from tessel_core.networks import SHAPES, build_shape
from tessel_core.networks.programs.plan_layers import Network
from tessel_core.rules import check_run
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.running import run_and_report

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("torch_is_there")]
MICRO_BATCHES = 8
SEARCHES = ("time-optimal", "list-scheduling")
"""Searches that find nothing beyond `tessel`."""


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request: pytest.FixtureRequest, torch_is_there: None) -> Iterator[Ranks]:
    with Ranks(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def two(torch_is_there: None) -> Iterator[Ranks]:
    with Ranks(2) as started:
        yield started


def plans(devices: int) -> Iterator[MicroBatchPlan]:
    """Return every shape in training and inference, and samples with real costs, without memory limits."""
    for name, shape in SHAPES.items():
        for training in (True, False):
            yield build_shape(name, replace(shape.defaults, devices=devices, training=training)).with_capacity(None)
    real = (load_sample(sample.name) for sample in list_samples())
    yield from (plan.with_capacity(None) for plan in real if plan.time_unit == "ns" and len(plan.devices) == devices)


def answer(plan: MicroBatchPlan, scheduler: str, micro_batches: int = MICRO_BATCHES) -> Schedule:
    config = TesselConfig(time_limit=0.3, polish=0.0) if scheduler == "tessel" else SCHEDULERS[scheduler].config()
    found = solve_schedule(scheduler, plan, micro_batches, config).solution
    assert found is not None
    return found


def test_losses_gradients_and_updated_weights_equal_one_process(ranks: Ranks) -> None:
    cases = list(product(plans(ranks.count), [each for name, each in SCHEDULERS.items() if name not in SEARCHES]))
    for plan, scheduler in one_in(9, ((plan, each) for plan, each in cases if not each.objection(plan))):
        schedule = answer(plan, scheduler.name)
        ran = run_schedule(schedule, RunConfig(), ranks)
        what = f"{plan.name}, {scheduler.name}"
        trained = sum(len(plan.blocks[layer].devices) for layer in Network.of(plan).trained)
        sinks = len(Network.of(plan).sinks)
        assert ran.equality is not None
        assert ran.equality.tensors == 4 * 2 * trained + sinks * MICRO_BATCHES, what
        assert ran.run.equal, f"{what}: {ran.equality}"
        assert ran.equality.difference < 1e-12, what
        assert len(ran.run.losses) == (MICRO_BATCHES if trained else 0)
        assert not check_run(ran.run), what


def test_networks_of_any_form_in_any_order_equal_one_process(ranks: Ranks) -> None:
    """Networks have branches, joins, skips, several layers per rank and shared blocks. Orders are any valid ones."""
    for seed in seeds(120):
        choose = random.Random(seed)
        plan = some_network(choose, ranks.count)
        ran = run_schedule(
            some_schedule(choose, plan, 3),
            RunConfig(seed=seed, width=6, samples=3, dtype="fp32" if seed % 2 else "fp64"),
            ranks,
        )
        assert ran.run.equal, f"seed {seed}: {ran.equality}"
        assert not check_run(ran.run), seed


def tell(told: list[Timed], rank: int, runs: Sequence[Timed]) -> None:
    told += runs


def test_stand_ins_last_and_hold_what_the_plan_says(two: Ranks) -> None:
    """Their times are scaled, lags are waited for, and progress is reported during the run."""
    plan = build_shape("zb-v", replace(SHAPES["zb-v"].defaults, devices=2))
    plan = replace(
        plan, dependencies=tuple(replace(each, lag=3 if i % 2 else 0) for i, each in enumerate(plan.dependencies))
    )
    schedule = answer(plan, "sequential", 3)
    for blocks in (SLEEP, COMPUTE):
        told = list[Timed]()
        ran = run_schedule(schedule, RunConfig(blocks=blocks, scale=3e5), two, on_runs=partial(tell, told))
        run = ran.run
        assert (run.tick_ns, run.equal, run.losses) == (3e5, None, ())
        assert sorted(told) == sorted(
            Timed(b, m, start, end)
            for b, m, starts, ends in zip(
                schedule.block.tolist(), schedule.micro_batch.tolist(), run.start_ns, run.end_ns, strict=True
            )
            for start, end in zip(starts, ends, strict=True)
        )
        assert (run.end - run.start >= schedule.duration * 3e5).all()
        assert run.makespan_ns >= schedule.makespan * 3e5
        number = {
            (b, m): i
            for i, (b, m) in enumerate(zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True))
        }
        for (before, after, lag), m in product(plan.arcs, range(3)):
            assert run.start[number[after, m]] - run.end[number[before, m]] >= lag * 3e5
        assert run.unit_bytes is not None
        assert run.peak_bytes == tuple(int(peak * run.unit_bytes) for peak in MemoryProfile.of(schedule).peaks)
        assert not check_run(run)


def test_a_run_predicts_the_next_and_is_kept(two: Ranks) -> None:
    plan = build_shape("m-shape", replace(SHAPES["m-shape"].defaults, devices=2))
    schedule = answer(plan, "1f1b+", 4)
    report = run_and_report(schedule, RunConfig(blocks=SLEEP), two, measure=True)
    assert report.prediction is not None
    assert report.prediction.source == "an earlier run"
    assert report.ratio is not None
    assert 0.5 < report.ratio < 3  # a benchmark measures the error on an idle machine
    assert {name for name, _, _ in report.worst_blocks} == {block.name for block in plan.blocks}
    kept = RunFile(
        ScheduleFile(schedule, "1f1b+", ScheduleFileReport(Status.FEASIBLE, "makespan", None, None, 0.0)), report.run
    )
    found = read_with(run_from, run_text(kept).encode(), "a file").run
    for name in (
        "engine",
        "start_ns",
        "end_ns",
        "peak_bytes",
        "losses",
        "equal",
        "difference",
        "tick_ns",
        "unit_bytes",
    ):
        assert getattr(found, name) == getattr(report.run, name)
    assert np.array_equal(found.schedule.starts, schedule.starts)


def test_a_loss_that_is_no_number_ends_all_ranks(two: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = answer(build_shape("v-shape", replace(SHAPES["v-shape"].defaults, devices=2)), "1f1b")
    monkeypatch.setattr("tessel_core.execution.schedule_run.run_share", share_of_nan)
    with pytest.raises(RankError) as raised:
        run_schedule(schedule, RunConfig(), two)
    assert str(raised.value) == "rank 1 at F1 #0: loss: is not a number (NaN) in step 1"


def test_what_could_not_run_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = answer(build_shape("v-shape"), "1f1b")
    late = Schedule(schedule.plan, MICRO_BATCHES, schedule.block, schedule.micro_batch, schedule.start[::-1].copy())
    with pytest.raises(InputError, match=r"^schedule: breaks a rule: device gpu0, block B0 of micro-batch 6: "):
        check_runnable(late, RunConfig())
    with pytest.raises(InputError, match=r"^Blocks: must be one of toy, sleep, compute, got 'none'$"):
        check_runnable(schedule, RunConfig(blocks="none"))
    monkeypatch.setattr("tessel_core.execution.schedule_run.free_memory", lambda: 10**8)
    with pytest.raises(
        InputError, match=r"^network of v-shape-4: needs at least 268 MB, and the machine has 100 MB free"
    ):
        check_runnable(schedule, RunConfig(width=1024))
