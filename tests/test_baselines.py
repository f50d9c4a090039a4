"""Published schedules agree with their papers, for several numbers of devices and micro-batches."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from helpers.simulator import broken_rules, runs_of

from tessel_core.errors import InputError
from tessel_core.model import Dependency, MicroBatchPlan, Schedule
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import BASELINES, SCHEDULERS, solve_schedule
from tessel_core.scheduling.order import merge_device_orders, numbered_runs, run_in_order

HOME = {
    "1f1b": "split-v",
    "1f1b+": "m-shape",
    "interleaved": "loop",
    "chimera": "x-shape",
    "zb-h1": "split-v",
    "zb-h2": "split-v",
    "zb-v": "zb-v",
    "v-half": "zb-v",
    "v-min": "zb-v",
    "dualpipe": "split-x",
    "gpipe": "v-shape",
    "pipedream": "v-shape",
    "sequential": "v-shape",
}
"""The shape for which each schedule was published, or one of several."""
DEVICES = (2, 3, 4, 5, 8, 9, 12)
EVEN = tuple(p for p in DEVICES if not p % 2)
every_number_of_devices = pytest.mark.parametrize("p", DEVICES)
every_even_number = pytest.mark.parametrize("p", EVEN)


def plan_of(scheduler: str, devices: int, **times: int) -> MicroBatchPlan:
    """Return the home plan of a scheduler with the published times, or given ones, and ample memory."""
    shape = SHAPES[HOME[scheduler]]
    return build_shape(shape.name, replace(shape.defaults, devices=devices, capacity=100_000, **times))


def built(scheduler: str, plan: MicroBatchPlan, micro_batches: int) -> Schedule:
    solution = solve_schedule(scheduler, plan, micro_batches).solution
    assert solution is not None
    return solution


def peaks(scheduler: str, devices: int, micro_batches: int) -> list[int]:
    """Return the peak of each device, in slots of the shape."""
    held = solve_schedule(scheduler, plan_of(scheduler, devices), micro_batches).peak_memory
    assert held is not None
    return list(held)


def counts(scheduler: str, plan: MicroBatchPlan, *wanted: int) -> list[int]:
    """Return the numbers of micro-batches that the scheduler accepts."""
    return [n for n in wanted if not SCHEDULERS[scheduler].count_objection(plan, n)]


def device_orders(schedule: Schedule) -> list[list[tuple[int, int]]]:
    """Return the (block, micro-batch) pairs of each device in order of time."""
    in_time = sorted((start, b, m) for b, m, start in runs_of(schedule))
    return [
        [(b, m) for _, b, m in in_time if d in schedule.plan.blocks[b].devices]
        for d in range(len(schedule.plan.devices))
    ]


def idle_between(schedule: Schedule) -> list[int]:
    """Return the idle ticks of each device between its first start and its last end."""
    found = []
    for d in range(len(schedule.plan.devices)):
        rows = schedule.runs_on(d)
        span = int(schedule.end[rows].max() - schedule.start[rows].min())
        found.append(span - int(schedule.duration[rows].sum()))
    return found


def with_other_costs(plan: MicroBatchPlan, seed: int) -> MicroBatchPlan:
    """Return the plan with uneven durations and lags."""
    chance = random.Random(seed)
    blocks = tuple(replace(block, duration=chance.randint(1, 40)) for block in plan.blocks)
    lags = tuple(replace(dependency, lag=chance.randint(0, 15)) for dependency in plan.dependencies)
    return replace(plan, blocks=blocks, dependencies=lags)


_PAIRED = ("chimera", "dualpipe")
"""Schedules that need an even number of devices."""


@pytest.mark.parametrize("scheduler", _PAIRED)
@pytest.mark.parametrize("p", [3, 7])
def test_schedules_of_pairs_refuse_an_odd_number_of_devices(scheduler: str, p: int):
    assert SCHEDULERS[scheduler].objection(plan_of(scheduler, p))


@pytest.mark.parametrize(
    ("scheduler", "p"),
    [
        pytest.param(name, p, marks=pytest.mark.more if p == 16 else ())
        for name in HOME
        for p in (2, 4, 6 if name in _PAIRED else 7, 16)
    ],
)
def test_costs_change_when_runs_start_and_never_in_which_order(scheduler: str, p: int):
    plan = plan_of(scheduler, p)
    for micro_batches in counts(scheduler, plan, 1, 2, p - 1, p, 2 * p + 1, 3 * p):
        schedule = built(scheduler, plan, micro_batches)
        uneven = built(scheduler, with_other_costs(plan, p * micro_batches), micro_batches)
        assert device_orders(uneven) == device_orders(schedule)
        assert broken_rules(schedule) == broken_rules(uneven) == set()


def test_every_published_schedule_has_a_home_and_refuses_most_others():
    assert list(HOME) == list(BASELINES)
    taken = {name: {shape for shape in SHAPES if not SCHEDULERS[name].objection(build_shape(shape))} for name in HOME}
    assert taken["1f1b"] == {"v-shape", "split-v"}
    assert taken["interleaved"] == {"loop"}
    assert taken["chimera"] == taken["dualpipe"] == {"x-shape", "split-x"}
    assert taken["zb-h1"] == taken["zb-h2"] == {"split-v"}
    assert taken["zb-v"] == taken["v-half"] == taken["v-min"] == {"zb-v"}


def test_pipedreams_order_is_that_of_distir():
    """Two stages, four micro-batches, unit times. Stage k holds min(K, 2 (P - k) - 1) [Santhanam 2021's code]."""
    plan = plan_of("pipedream", 2, forward=1, backward=1)
    steps: dict[int, list[str]] = {}
    for start, b, m in sorted((start, b, m) for b, m, start in runs_of(built("pipedream", plan, 4))):
        block = plan.blocks[b]
        steps.setdefault(start, []).append(f"{block.name[0].lower()}{m}@{block.devices[0]}")
    text = " | ".join(" ".join(sorted(each, key=lambda run: run[-1])) for _, each in sorted(steps.items()))
    assert text == ("f0@0 | f1@0 f0@1 | f2@0 b0@1 | b0@0 f1@1 | f3@0 b1@1 | b1@0 f2@1 | b2@1 | b2@0 f3@1 | b3@1 | b3@0")
    for p in (2, 3, 5):
        assert peaks("pipedream", p, 3 * p) == [min(3 * p, 2 * (p - k) - 1) for k in range(p)]


@every_number_of_devices
def test_interleaved_idles_as_long_as_1f1b_over_its_chunks_and_holds_what_is_published(p: int):
    """The bubble is (p - 1)(F + B) / v of N (F + B). A device holds pv + p - 1 chunks [Narayanan 2021, section 2.2]."""
    for chunks, micro_batches in ((2, p), (2, 3 * p), (3, 2 * p)):
        plan = plan_of("interleaved", p, chunks=chunks, forward=3, backward=5)
        schedule = built("interleaved", plan, micro_batches)
        assert schedule.makespan == (micro_batches * chunks + p - 1) * (3 + 5)
        times = {"forward": 3 * chunks, "backward": 5 * chunks}
        straight = build_shape("v-shape", replace(SHAPES["v-shape"].defaults, devices=p, capacity=100_000, **times))
        work = micro_batches * plan.busiest_work
        assert built("1f1b", straight, micro_batches).makespan - work == chunks * (schedule.makespan - work)
    published = [min(2 * p + p - 1 - 2 * d, 6 * p) for d in range(p)]
    assert peaks("interleaved", p, 3 * p) == published


def test_interleaved_wants_a_multiple_of_the_number_of_devices_and_says_so():
    plan = plan_of("interleaved", 4)
    with pytest.raises(InputError) as raised:
        solve_schedule("interleaved", plan, 6)
    assert str(raised.value) == (
        "scheduler interleaved: does not apply to plan loop-4: interleaved 1F1B runs micro-batches in groups of 4, as "
        "many as there are devices, and 6 is not a multiple of 4"
    )


def test_interleaved_reads_the_number_of_chunks_off_the_plan():
    for chunks in (2, 3, 5):
        schedule = built("interleaved", plan_of("interleaved", 3, chunks=chunks), 6)
        assert schedule.makespan == (6 * chunks + 3 - 1) * (1 + 2)
    straight = build_shape("v-shape")
    assert "at least twice" in SCHEDULERS["interleaved"].objection(straight)


@pytest.mark.parametrize("p", [3, 4])
def test_interleaved_inference_is_a_pipeline_that_never_waits(p: int):
    """p micro-batches pass one chunk, then the next. Each device is busy from its first run to its last."""
    plan = build_shape("loop", replace(SHAPES["loop"].defaults, devices=p, training=False))
    schedule = built("interleaved", plan, 2 * p)
    assert idle_between(schedule) == [0] * p
    assert schedule.makespan == 2 * p * 2 + p - 1


@every_even_number
def test_one_unit_of_chimera_has_the_published_bubble(p: int):
    """For N = p and B = 2F, the bubble is (p - 2) / (3N/2 + p - 2) [Li 2021, table 2].

    Half of the micro-batches go each way.
    """
    schedule = built("chimera", plan_of("chimera", p, forward=2, backward=4), p // 2)
    assert schedule.bubble_rate == pytest.approx((p - 2) / (1.5 * p + p - 2))


@every_even_number
def test_units_of_chimera_fill_each_other_s_ends_and_idle_less_than_half_of_1f1b(p: int):
    """With F = B, the p - 2 idle slots of a unit occur once, instead of 2(p - 1)."""
    for units in (1, 2, 5):
        schedule = built("chimera", plan_of("chimera", p, forward=1, backward=1), units * p // 2)
        assert schedule.makespan == 2 * p * units + p - 2
        chain = build_shape("v-shape", replace(SHAPES["v-shape"].defaults, devices=p, backward=1, capacity=10_000))
        assert 2 * (p - 2) < built("1f1b", chain, units * p).makespan - 2 * p * units


@every_even_number
def test_chimera_holds_between_half_of_1f1b_s_activations_and_all_of_them(p: int):
    """The outer devices hold p/2 + 1 activations, the inner ones p [Li 2021, table 2]."""
    for micro_batches in (p // 2, p, 2 * p + 1):
        assert peaks("chimera", p, micro_batches) == [p // 2 + 1 + min(d, p - 1 - d) for d in range(p)]


@every_number_of_devices
def test_zb_h1_holds_what_1f1b_holds_and_idles_a_third(p: int):
    """The bubble is (p - 1)(F + B - W) instead of (p - 1)(F + B + W) [Qi 2024, table 1]."""
    for micro_batches in (p, 2 * p + 1, 3 * p):
        plan = plan_of("zb-h1", p)
        schedule = built("zb-h1", plan, micro_batches)
        assert schedule.makespan == 3 * micro_batches + p - 1
        assert idle_between(schedule) == [p - 1 - stage for stage in range(p)]
        assert peaks("zb-h1", p, micro_batches) == [p] * p
        assert max(peaks("1f1b", p, micro_batches)) == p


@every_number_of_devices
def test_zb_h2_never_idles_and_holds_2p_minus_1(p: int):
    for micro_batches in (2 * p - 1, 2 * p, 4 * p + 1):
        schedule = built("zb-h2", plan_of("zb-h2", p), micro_batches)
        assert idle_between(schedule) == [0] * p
        assert schedule.makespan == 3 * micro_batches + p - 1
        assert peaks("zb-h2", p, micro_batches) == [2 * p - 1] * p


@every_number_of_devices
def test_zb_h2_goes_from_zb_h1_as_far_as_there_are_micro_batches(p: int):
    plan = plan_of("zb-h2", p)
    for micro_batches in range(1, 2 * p):
        late, early = (built(name, plan, micro_batches) for name in ("zb-h2", "zb-h1"))
        assert late.makespan == early.makespan
        assert max(peaks("zb-h2", p, micro_batches)) <= micro_batches
        if micro_batches <= p:
            assert runs_of(late) == runs_of(early)


@every_number_of_devices
def test_zb_v_never_idles_in_1f1b_s_memory(p: int):
    """A micro-batch holds 4 slots on every device of the shape."""
    for micro_batches in (2 * p - 1, 2 * p, 4 * p + 1):
        schedule = built("zb-v", plan_of("zb-v", p), micro_batches)
        assert idle_between(schedule) == [0] * p
        assert max(peaks("zb-v", p, micro_batches)) == 4 * p
    for micro_batches in range(p, 2 * p):
        assert built("zb-v", plan_of("zb-v", p), micro_batches).makespan == 6 * micro_batches + p - 1


@every_number_of_devices
def test_v_half_holds_half_of_1f1b_s_activations_and_idles_half(p: int):
    """A device holds (p + 2) // 2 micro-batches' activations, 4 slots each.

    The bubble is 6(p - 1), half of 1F1B's, for passes of one slot [Qi 2024, arXiv 2405.15362].
    """
    for micro_batches in (2 * p, 4 * p + 1):
        assert built("v-half", plan_of("v-half", p), micro_batches).makespan <= 6 * micro_batches + 6 * (p - 1) / 2
        assert max(peaks("v-half", p, micro_batches)) <= 4 * ((p + 2) // 2)


@every_number_of_devices
def test_v_min_holds_a_third_of_1f1b_s_activations_and_idles_two_thirds(p: int):
    """A device holds (p + 4) // 3 micro-batches' activations.

    The bubble is two thirds of 1F1B's [Qi 2024, arXiv 2405.15362].
    """
    for micro_batches in (2 * p, 4 * p + 1):
        assert built("v-min", plan_of("v-min", p), micro_batches).makespan <= 6 * micro_batches + 6 * (p - 1) * 2 / 3
        assert max(peaks("v-min", p, micro_batches)) <= 4 * ((p + 4) // 3)


@every_even_number
@pytest.mark.parametrize(("forward", "backward", "weight"), [(1, 1, 1), (3, 3, 2), (4, 5, 3)])
def test_dualpipe_idles_no_more_than_published(p: int, forward: int, backward: int, weight: int):
    """The bubble is (p/2 - 1)(F&B + B - 3W), where B is whole [DeepSeek-AI 2024, table 2].

    F&B is F + B on a device that runs one block at a time.
    """
    plan = plan_of("dualpipe", p, forward=forward, backward=backward, weight=weight)
    whole = backward + weight
    for micro_batches in (p, 2 * p, 3 * p + 1):
        bubble = (p // 2 - 1) * (forward + whole + whole - 3 * weight)
        assert built("dualpipe", plan, micro_batches).makespan <= 2 * micro_batches * (forward + whole) + bubble


@every_even_number
def test_dualpipe_holds_p_plus_1_with_a_split_backward_and_without(p: int):
    for micro_batches in (p, 2 * p + 1):
        assert peaks("dualpipe", p, micro_batches) == [p + 1] * p
        whole = build_shape("x-shape", replace(SHAPES["x-shape"].defaults, devices=p, capacity=p + 1))
        assert solve_schedule("dualpipe", whole, micro_batches).peak_memory == (p + 1,) * p


@pytest.mark.parametrize("scheduler", ["chimera", "dualpipe"])
def test_two_directions_want_an_even_number_of_devices(scheduler: str):
    assert "must be even, not 5" in SCHEDULERS[scheduler].objection(plan_of(scheduler, 5))


@pytest.mark.parametrize(
    ("shape", "scheduler", "why"),
    [
        ("v-shape", "zb-h1", "`tessel plan GRAPH PLACEMENT --split-weights` makes a plan with split backward passes"),
        ("v-shape", "chimera", "its blocks fall into 1 independent part"),
        ("alphafold", "zb-v", "its backward blocks do not pass the forward blocks' devices in reverse"),
        ("loop", "v-half", "its stages do not go down the devices and up again with two stages on each"),
        ("loop", "1f1b", "a device holds more than one forward block"),
        ("k-shape", "dualpipe", "its blocks fall into 1 independent part"),
        ("m-shape", "interleaved", "block E runs on 4 devices at once"),
    ],
)
def test_an_objection_names_what_does_not_suit(shape: str, scheduler: str, why: str):
    assert SCHEDULERS[scheduler].objection(build_shape(shape)).endswith(why)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("W3", "B2", "backward block B2 depends on weight block W3"),
        ("B3", "W1", ""),
        ("B0", "W3", "weight block W3 belongs to no stage of its own"),
        ("W3", "W1", "weight block W1 depends on weight block W3"),
    ],
)
def test_a_chain_may_depend_on_nothing_that_published_orders_run_later(before: str, after: str, why: str):
    plan = plan_of("zb-h1", 4)
    more = replace(plan, dependencies=(*plan.dependencies, Dependency(before, after)))
    objection = SCHEDULERS["zb-h1"].objection(more)
    assert objection.endswith(why)
    assert bool(objection) == bool(why)


def perturbed(seed: int) -> MicroBatchPlan:
    """Return a home plan with other times, reordered blocks, and some dependencies added or removed."""
    chance = random.Random(seed)
    plan = with_other_costs(plan_of(chance.choice(list(HOME)), chance.choice((2, 4))), seed)
    order, linked = plan.topological_order, {(d.predecessor, d.successor) for d in plan.dependencies}
    for _ in range(chance.randint(0, 3)):
        before, after = (plan.blocks[order[i]].name for i in sorted(chance.sample(range(len(order)), 2)))
        linked.add((before, after))
    for _ in range(chance.choice((0, 0, 1))):
        linked.remove(chance.choice(sorted(linked)))
    blocks = tuple(chance.sample(plan.blocks, len(plan.blocks)))
    return replace(plan, blocks=blocks, dependencies=tuple(Dependency(*link) for link in sorted(linked)))


def test_no_plan_that_is_accepted_breaks_a_rule():
    accepted = dict.fromkeys(HOME, 0)
    for seed in range(200):
        try:
            plan = perturbed(seed)
        except InputError:  # its memory is no longer valid
            continue
        for name, scheduler in SCHEDULERS.items():
            if name in HOME and not scheduler.why_not(plan, 4):
                assert broken_rules(built(name, plan, 4)) == set()
                accepted[name] += 1
    assert min(accepted.values()) > 0


@pytest.mark.parametrize("scheduler", [name for name, shape in HOME.items() if shape != "m-shape"])
def test_the_orders_of_devices_say_all_there_is_to_say(scheduler: str):
    """Merged into one order, they give the same earliest starts."""
    plan = with_other_costs(plan_of(scheduler, 4), seed=4)
    schedule = built(scheduler, plan, 8)
    orders = device_orders(schedule)
    merged = merge_device_orders(plan, orders)
    assert [[run for run in merged if d in plan.blocks[run[0]].devices] for d in range(4)] == orders
    if scheduler != "sequential":  # which waits for the previous micro-batch
        assert (run_in_order(plan, 8, merged) == schedule.starts).all()


def test_orders_that_wait_for_each_other_are_a_bug():
    plan = build_shape("v-shape", replace(SHAPES["v-shape"].defaults, devices=2))
    forward, backward = ([plan.block_index(f"{kind}{stage}") for stage in range(2)] for kind in "FB")
    orders = [numbered_runs([backward[0], forward[0]], 1), numbered_runs([forward[1], backward[1]], 1)]
    with pytest.raises(AssertionError, match="deadlock"):
        merge_device_orders(plan, orders)
