"""Plans changed by hand: what moves along, what is refused, and that nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from helpers.seeds import one_in

from tessel_core.editing.forms import folded, looped, remedies
from tessel_core.editing.plan import PlanChange, backward_split, cut, lasting, merged, moved, stage_of, stages
from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MemoryProfile, MicroBatchPlan
from tessel_core.rules import check_schedule
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import find_scheduler, solve_schedule

SAMPLES = one_in(3, [sample.name for sample in list_samples()])


def names_of(plan: MicroBatchPlan, stage: tuple[int, ...]) -> str:
    return " ".join(plan.blocks[b].name for b in stage)


def block(plan: MicroBatchPlan, name: str) -> int:
    return plan.block_index(name)


@pytest.mark.parametrize(
    ("sample", "of", "stage"),
    [
        ("v-shape-4", "F1", "F1 B1"),
        ("v-shape-4", "B3", "F3 B3"),
        ("m-shape-4", "Eb", "E Eb"),
        ("zb-v-4", "F7", "F7 B7 W7"),
        ("split-x-4", "dW2", "dF2 dB2 dW2"),
        ("gpt-6.7b-split-v-4", "B0", "F0 B0 W0"),
        ("v-shape-4-inference", "F2", "F2"),
    ],
)
def test_a_stage_is_what_must_share_a_device(sample: str, of: str, stage: str) -> None:
    plan = load_sample(sample)
    assert names_of(plan, stage_of(plan, block(plan, of))) == stage


@pytest.mark.parametrize("sample", SAMPLES)
def test_any_stage_moves_anywhere_and_back(sample: str) -> None:
    """Stages are closed in memory, so the plan stays valid. A move to the stage's own device is refused."""
    plan = load_sample(sample)
    assert Counter(b for stage in stages(plan) for b in stage) == Counter(range(len(plan.blocks)))
    for stage in stages(plan):
        first = plan.blocks[stage[0]]
        source, target = first.devices[0], (first.devices[0] + 1) % len(plan.devices)
        if target in first.devices:
            with pytest.raises(InputError, match=f"already runs on device {plan.devices[target].name}"):
                moved(plan, stage[0], source, target)
            continue
        there = moved(plan, stage[0], source, target)
        assert all(target in there.blocks[b].devices and source not in there.blocks[b].devices for b in stage)
        assert sum(there.work) == sum(plan.work)
        assert moved(there, stage[0], target, source) == plan


def test_a_block_that_holds_memory_cannot_leave_its_stage_and_one_that_holds_none_can() -> None:
    plan = load_sample("split-v-4")
    with pytest.raises(InputError, match="must sum to 0"):
        moved(plan, block(plan, "F0"), 0, 1, alone=True)
    free = moved(plan, block(plan, "B0"), 0, 1, alone=True)
    assert free.blocks[block(free, "B0")].devices == (1,)
    assert free.blocks[block(free, "F0")].devices == (0,)


@pytest.mark.parametrize("sample", ["v-shape-4", "gpt-6.7b-v-4", "mt5-nn-4"])
def test_a_capacity_is_refused_where_static_memory_has_no_room_and_kept_by_the_referee_else(sample: str) -> None:
    plan, chance = load_sample(sample), random.Random(5)
    for _ in range(60):
        device = chance.randrange(len(plan.devices))
        static, most = plan.devices[device].static_memory, plan.devices[device].memory_capacity or 8
        capacity = chance.randint(0, 2 * most)
        change = PlanChange.of({"does": "hold", "target": device, "capacity": capacity})
        if capacity < static:
            with pytest.raises(
                InputError, match=f"device {plan.devices[device].name}: holds .* all the time, more than"
            ):
                change.made_to(plan)
            continue
        changed = change.made_to(plan)
        alone = solve_schedule("sequential", changed, 1).drawable
        assert alone is not None
        over = [found.where for found in check_schedule(alone)]
        peaks = MemoryProfile.of(alone).peaks
        assert over == [f"device {plan.devices[device].name}"] * (peaks[device] > capacity)
        assert replace(changed.devices[device], memory_capacity=plan.devices[device].memory_capacity) in plan.devices


@pytest.mark.parametrize("sample", ["gpt-6.7b-v-4", "gpt-6.7b-split-v-4", "mt5-nn-4", "flava-4", "evoformer-4"])
def test_a_stage_that_is_cut_and_merged_is_as_before(sample: str) -> None:
    plan = load_sample(sample)
    for stage in stages(plan):
        first = plan.blocks[stage[0]].name
        two = cut(plan, stage[0])
        assert len(two.blocks) == len(plan.blocks) + len(stage)
        assert (two.work, two.devices) == (plan.work, plan.devices)
        assert {len(stage_of(two, block(two, f"{first}.{half}"))) for half in (1, 2)} == {len(stage)}
        one = merged(two, block(two, f"{first}.1"), block(two, f"{first}.2"))
        assert one.work == plan.work
        assert len(one.dependencies) == len(plan.dependencies)
        assert [(each.kind, each.duration, each.memory) for each in one.blocks] == [
            (each.kind, each.duration, each.memory) for each in plan.blocks
        ]


def test_halves_run_in_order_and_back_in_reverse() -> None:
    plan = load_sample("gpt-1m-vocab-v-4")
    two = cut(plan, block(plan, "F1"))
    arcs = {(each.predecessor, each.successor) for each in two.dependencies}
    assert {("F0", "F1.1"), ("F1.1", "F1.2"), ("F1.2", "F2"), ("B2", "B1.2"), ("B1.2", "B1.1"), ("B1.1", "B0")} <= arcs
    assert not {("F0", "F1.2"), ("F1.1", "F2"), ("B1.2", "B0")} & arcs


def test_every_whole_backward_splits_at_once_and_no_schedule_gets_longer() -> None:
    plan = load_sample("v-shape-4")
    split = backward_split(plan)
    assert [each.name for each in split.blocks if each.kind is BlockKind.WEIGHT] == ["W3", "W2", "W1", "W0"]
    assert split.work == plan.work
    assert [names_of(split, stage) for stage in stages(split)] == ["F0 B0 W0", "F1 B1 W1", "F2 B2 W2", "F3 B3 W3"]
    lengths = [solve_schedule("tessel", each, 8).makespan for each in (plan, split)]
    assert lengths[1] is not None
    assert lengths[0] is not None
    assert lengths[1] <= lengths[0]
    with pytest.raises(InputError, match="no backward block that is not split"):
        backward_split(split)
    with pytest.raises(InputError, match="block F0: is not a backward block, or is already split"):
        backward_split(plan, [block(plan, "F0")])


def test_what_cannot_be_says_the_block_and_why() -> None:
    plan = load_sample("v-shape-4")
    for made, why in (
        (lambda: cut(plan, 0), "block F0: has duration 1 and cannot be halved"),
        (lambda: merged(plan, 0, block(plan, "B0")), "block F0: is already in one stage with B0"),
        (lambda: merged(plan, 0, 1), "runs on other devices than"),
        (lambda: moved(plan, 0, 1, 2), "block F0: does not run on device gpu1"),
        (lambda: lasting(plan, 0, 0), "block F0: duration must be at least 1, got 0"),
    ):
        with pytest.raises(InputError, match=why):
            made()


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"does": "move", "block": 99},
        {"does": "move", "block": -1, "source": 0, "target": 1},
        {"does": "move", "block": 0, "source": 0, "target": 17},
        {"does": "__class__", "block": 0},
        {"does": "merge", "block": 0, "other": 1e300},
        {"does": ["move"], "block": {"a": 1}},
    ],
)
def test_a_change_from_outside_that_fits_no_plan_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(InputError):
        PlanChange.of(asked).made_to(load_sample("v-shape-4"))


def test_a_change_from_outside_is_made() -> None:
    plan = load_sample("v-shape-4")
    change = PlanChange.of({"does": "move", "block": 0, "source": 0, "target": 3, "alone": False})
    assert change.made_to(plan) == moved(plan, 0, 0, 3)
    assert PlanChange.of({"does": "stretch", "block": 1, "duration": 5}).made_to(plan) == lasting(plan, 1, 5)
    assert PlanChange.of({"does": "split", "block": 7.0}).made_to(plan) == backward_split(plan, [7])


# Forms


@pytest.mark.parametrize("sample", ["gpt-6.7b-v-4", "gpt-6.7b-v-8", "mt5-v-4", "gpt-6.7b-split-v-4", "v-shape-4"])
@pytest.mark.parametrize("scheduler", ["interleaved", "zb-h1", "zb-v", "v-half"])
def test_a_scheduler_that_does_not_apply_names_forms_to_which_it_does(sample: str, scheduler: str) -> None:
    plan, entry = load_sample(sample), find_scheduler(scheduler)
    found = remedies(plan, entry, 16)
    assert bool(found) is bool(entry.why_not(plan, 16))
    for form in found.values():
        parts = (
            2 if form.time_unit == "half step" else 1
        )  # blocks of one step cannot be halved, blocks of two half steps can
        assert form.time_unit in (plan.time_unit, "half step")
        assert sum(form.work) == parts * sum(plan.work)
        static = sum(each.static_memory for each in form.devices)
        assert static == sum(each.static_memory for each in plan.devices)  # 0 in abstract plans
        held = [sum(max(0, block.memory) for block in each.blocks) for each in (plan, form)]
        assert held[1] == parts * held[0], "slots have halves where steps have"
        report = solve_schedule(scheduler, form, 16)
        assert report.drawable is not None


def test_halves_on_two_devices_send_as_slowly_as_stages_do() -> None:
    plan = load_sample("gpt-6.7b-v-4")
    form = looped(plan)
    longest = max(arc.lag for arc in plan.dependencies)
    lags = {(arc.predecessor, arc.successor): arc.lag for arc in form.dependencies}
    assert lags["F0.1", "F0.2"] == lags["B3.2", "B3.1"] == longest
    assert [form.blocks[form.block_index(f"F{i // 2}.{i % 2 + 1}")].devices[0] for i in range(8)] == [0, 1, 2, 3] * 2
    folds = folded(plan)
    assert [folds.blocks[folds.block_index(f"F{i // 2}.{i % 2 + 1}")].devices[0] for i in range(8)] == [
        0,
        1,
        2,
        3,
        3,
        2,
        1,
        0,
    ]


def test_where_no_form_helps_none_is_offered() -> None:
    assert not remedies(load_sample("gpt-1m-vocab-m-4"), find_scheduler("zb-v"), 8), "it is no chain"
