"""Published schedules as text grids, each compared by eye with its publication, and grids read back.

After a change that is meant, `python -m pytest tests/test_goldens.py --write-goldens` writes them anew.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.grid import grid_text, read_grid
from helpers.plans import plans
from helpers.seeds import examples
from helpers.simulator import runs_of
from hypothesis import given, settings

from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import BASELINES, SCHEDULERS, solve_schedule

FOLDER = Path(__file__).parent / "goldens"
FEW = {
    (sample, scheduler): 4
    for sample in ("v-shape-4", "split-v-4", "m-shape-4", "nn-shape-4")
    for scheduler in ("sequential", "gpipe", "1f1b", "1f1b+")
    if not SCHEDULERS[scheduler].objection(load_sample(sample))
}
FIGURES = {
    ("loop-4", "interleaved"): 8,  # Narayanan 2021, figure 4
    ("x-shape-4", "chimera"): 4,  # Li 2021, figure 3, two units of it
    ("split-v-4", "zb-h1"): 8,  # Qi 2024, handcrafted schedules
    ("split-v-4", "zb-h2"): 8,
    ("zb-v-4", "zb-v"): 8,
    ("zb-v-4", "v-half"): 8,
    ("zb-v-4", "v-min"): 8,
    ("v-shape-4", "pipedream"): 8,  # Santhanam 2021's order; test_baselines holds its small example
    ("split-x-8", "dualpipe"): 10,  # DeepSeek-AI 2024, figure 5
}
GOLDENS = {**FEW, **FIGURES}
"""Number of micro-batches of each golden grid. A published figure has the number of the figure."""
every_golden = pytest.mark.parametrize(("sample", "scheduler"), GOLDENS)


def built(sample: str, scheduler: str) -> Schedule:
    drawn = solve_schedule(scheduler, load_sample(sample), GOLDENS[sample, scheduler]).drawable
    assert drawn is not None
    return drawn


@every_golden
def test_a_published_schedule_is_its_golden(sample: str, scheduler: str, request: pytest.FixtureRequest):
    path = FOLDER / f"{sample} {scheduler}.txt"
    text = grid_text(built(sample, scheduler))
    if request.config.getoption("--write-goldens"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_there_is_no_golden_without_a_test():
    assert {path.name for path in FOLDER.iterdir()} == {f"{sample} {scheduler}.txt" for sample, scheduler in GOLDENS}
    assert len(FEW) == 12
    assert {scheduler for _, scheduler in GOLDENS} == set(BASELINES)


@every_golden
def test_a_golden_reads_back_as_the_schedule(sample: str, scheduler: str):
    schedule = built(sample, scheduler)
    text = (FOLDER / f"{sample} {scheduler}.txt").read_text(encoding="utf-8")
    assert runs_of(read_grid(text, schedule.plan)) == runs_of(schedule)


@settings(max_examples=examples(60), deadline=None)
@given(plans())
def test_any_grid_reads_back(plan: MicroBatchPlan):
    schedule = solve_schedule("sequential", plan.with_capacity(None), 3).solution
    assert schedule is not None
    again = read_grid(grid_text(schedule), schedule.plan)
    assert runs_of(again) == runs_of(schedule)
    assert again.micro_batches == 3


PLAN = MicroBatchPlan(
    "two",
    (PlanDevice("gpu0"), PlanDevice("gpu1")),
    (
        Block("A", BlockKind.FORWARD, (0, 1), 2),
        Block("C", BlockKind.FORWARD, (1,), 1),
        Block("D", BlockKind.BACKWARD, (0,), 1),
    ),
)


def test_cells_name_the_kind_where_a_device_has_one_block_of_it_else_the_block():
    text = "gpu0 | F0  F0  B0  B1  ..  F1  F1\ngpu1 | A:0 A:0 C:0 C:1 ..  A:1 A:1\n"
    assert grid_text(read_grid(text, PLAN)) == text
    blank = replace(PLAN, blocks=tuple(replace(each, name=f"{each.name} 1") for each in PLAN.blocks))
    assert grid_text(read_grid(text.replace(":", "_1:"), blank)).replace("_1", "").split() == text.split()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "grid: it holds no run"),
        ("gpu0 | .. ..\n", "grid: it holds no run"),
        ("gpu7 | F0 F0\n", "grid line 1: must begin with a device of the plan and '|', got 'gpu7'"),
        ("gpu0   F0 F0\n", "grid line 1: must begin with a device of the plan and '|'"),
        ("gpu0 | F0 F0\ngpu1 | A:0 F0\n", "grid line 2: cell 1 'F0' names no block of gpu1"),
        ("gpu0 | F0 F0\ngpu1 | A:0 A:\n", "grid line 2: cell 1 'A:' names no block of gpu1"),
        ("gpu0 | F0 F0 .. F0\ngpu1 | A:0 A:0\n", "grid line 1: cell 3 'F0' lies outside its run, which starts at 0"),
        ("gpu0 | F0 F0\ngpu1 | .. A:0 A:0\n", "grid line 2: cell 2 'A:0' lies outside its run, which starts at 0"),
        ("gpu0 | F0 F0\n", "grid: block A of micro-batch 0 fills 0 cells on gpu1, it lasts 2"),
        ("gpu0 | F0\ngpu1 | A:0 A:0\n", "grid: block A of micro-batch 0 fills 1 cells on gpu0, it lasts 2"),
    ],
)
def test_a_wrong_grid_is_said_in_one_sentence(text: str, why: str):
    with pytest.raises(InputError) as raised:
        read_grid(text, PLAN)
    assert str(raised.value).startswith(why)
    assert "\n" not in str(raised.value)


def test_a_grid_too_wide_to_read_is_refused():
    long = MicroBatchPlan("long", (PlanDevice("gpu0"),), (Block("A", BlockKind.FORWARD, (0,), 5_001),))
    with pytest.raises(InputError, match="grid: a makespan of 5001 ticks is more than the 5000 a grid can show"):
        grid_text(Schedule.from_starts(long, np.zeros((1, 1), dtype=np.int64)))
