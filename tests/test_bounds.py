"""Bounds on plans that are too large for brute force: the values they must reach, and that they can be stopped."""

from __future__ import annotations

import threading
from dataclasses import replace
from fractions import Fraction

import pytest

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import MicroBatchPlan
from tessel_core.networks import SHAPES, build_shape
from tessel_core.samples import load_sample
from tessel_core.scheduling.bounds import idle_bound, kept_period_bound, makespan_bound, period_bound
from tessel_core.scheduling.search.devices_bound import bound_of, devices_bound
from tessel_core.scheduling.search.states_bound import states_bound

EFFORT = Effort(seconds=10.0, workers=2, seed=0)


def shape(name: str, devices: int, capacity: int) -> MicroBatchPlan:
    return build_shape(name, replace(SHAPES[name].defaults, devices=devices, capacity=capacity))


@pytest.mark.parametrize(
    ("name", "capacity", "period"),
    [
        ("v-shape", 3, Fraction(16, 3)),
        ("v-shape", 2, Fraction(8)),
        ("m-shape", 4, Fraction(6)),
        ("nn-shape", 5, Fraction(17, 2)),
        ("nn-shape", 4, Fraction(9)),
    ],
)
def test_the_states_bound_is_the_least_period_of_published_shapes(name: str, capacity: int, period: Fraction):
    """Schedules with these periods are known, except for the M shape, which comes as close as one likes."""
    plan = shape(name, 4, capacity)
    for known in (None, period):
        assert max(period_bound(plan), states_bound(plan, Fraction(0), EFFORT, Control(), known=known)) == period


@pytest.mark.parametrize(
    ("name", "devices", "reach"),
    [
        ("gpt-175b-split-v-16", (15,), 7_130_000_000),
        ("gpt-175b-split-v-8", (7,), 9_790_000_000),
        ("gpt-175b-v-8", (0, 4, 7), 11_550_000_000),
    ],
)
def test_few_devices_say_more_than_each_alone(name: str, devices: tuple[int, ...], reach: int):
    plan = load_sample(name)
    assert bound_of(devices, plan, 32, 0, EFFORT, Control())[0] >= reach > makespan_bound(plan, 32)


@pytest.mark.parametrize(
    ("name", "reach"),
    [
        ("gpt-6.7b-v-4", 24_300_000_000),
        ("gpt-175b-v-8", 11_370_000_000),
        ("evoformer-4", 12_470_000_000),
        ("evoformer-16", 3_150_000_000),
    ],
)
def test_a_device_waits_for_its_memory_round_by_round(name: str, reach: int):
    plan = load_sample(name)
    unlimited = plan.with_capacity(None)
    assert makespan_bound(plan, 32) >= reach > max(idle_bound(plan, 32), 32 * period_bound(plan))
    assert makespan_bound(unlimited, 32) == idle_bound(unlimited, 32)


@pytest.mark.parametrize("what", ["devices", "states"])
def test_a_bound_that_is_cancelled_ends_within_a_second(what: str):
    control = Control()
    cancel = threading.Timer(0.5, control.cancel)
    effort = replace(EFFORT, seconds=60.0)
    cancel.start()
    if what == "devices":
        devices_bound(load_sample("gpt-175b-split-v-16"), 32, 0, effort, control)
    else:
        states_bound(shape("zb-v", 4, 12), Fraction(0), effort, control)
    assert control.cancelled
    assert control.elapsed_s < 1.5


@pytest.mark.parametrize("micro_batches", [2, 3, 5, 7, 8, 9, 30])
def test_fewer_micro_batches_than_the_bound_has_in_a_period_keep_a_longer_one(micro_batches: int) -> None:
    """A period has U < N micro-batches and a whole number of ticks.

    Per micro-batch, the least such value at or above 32 / 7 counts.
    """
    least = min(p * Fraction(1, u) for u in range(1, micro_batches) for p in range(1, 33 * u) if 7 * p >= 32 * u)
    assert kept_period_bound(Fraction(32, 7), micro_batches) == least
