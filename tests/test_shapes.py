"""The published placement shapes agree with the published table and the proved makespans."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.networks import SHAPES, ShapeParameters, build_shape
from tessel_core.registry import NoOptions
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.bounds import makespan_bound, period_bound

BASELINES = {name: scheduler for name, scheduler in SCHEDULERS.items() if scheduler.config is NoOptions}


@dataclass(frozen=True)
class Anchor:
    """Known values of a shape from other sources. Makespans are of 32 micro-batches."""

    shape: str
    work: int
    blocks_per_device: int
    wide_blocks: int
    chain: str
    """All blocks of 4 devices in one order that the dependencies allow."""
    bound_at_4: int
    capacity_at_8: int
    bound_at_8: int


# Works and proven makespans: anchors of the project ("Placement shapes", "What is reachable").  The 8-device bounds of
# NN-eager, finetune and AlphaFold are N x work + ramp by hand: 8·32 + 7·4, 4·32 + 7·3, 4·32 + 7·2.  X misses its proven
# makespans 262 and 274 by 2 and 6: only the ends bound reaches those.  Loop's are (v·32 + p - 1)(F + B) [Narayanan
# 2021] and split X's 6·32 + p/2 - 1; interleaved 1F1B and DualPipe reach them.
ANCHORS = (
    Anchor("v-shape", 4, 2, 0, "F0 F1 F2 F3 B3 B2 B1 B0", 140, 8, 156),
    Anchor("x-shape", 8, 4, 0, "dF0 dF1 dF2 dF3 dB3 dB2 dB1 dB0 uF0 uF1 uF2 uF3 uB3 uB2 uB1 uB0", 260, 8, 268),
    Anchor("m-shape", 6, 4, 2, "E F0 F1 F2 F3 B3 B2 B1 B0 Eb", 204, 12, 220),
    Anchor("nn-shape", 8, 6, 4, "E F0 F1 D F2 F3 B3 B2 Db B1 B0 Eb", 268, 12, 284),
    Anchor("nn-eager", 8, 6, 4, "E D F0 F1 F2 F3 B3 B2 B1 B0 Db Eb", 268, 12, 284),
    Anchor("k-shape", 6, 4, 2, "tF0 tF1 vF0 vF1 J Jb tB1 tB0 vB1 vB0", 196, 8, 204),
    Anchor("finetune", 4, 3, 1, "E F0 F1 F2 F3 B3 B2 B1 B0", 137, 9, 149),
    Anchor("alphafold", 4, 4, 0, "F0a F1a F2a F3a F0b F1b F2b F3b F0c F1c F2c F3c B3 B2 B1 B0", 134, 12, 142),
    Anchor("loop", 6, 4, 0, "F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0", 201, 23, 213),
    Anchor("split-v", 3, 3, 0, "F0 F1 F2 F3 B3 B2 B1 B0 W0 W1 W2 W3", 99, 8, 103),
    Anchor(
        "split-x",
        6,
        6,
        0,
        "dF0 dF1 dF2 dF3 dB3 dB2 dB1 dB0 dW0 dW1 dW2 dW3 uF0 uF1 uF2 uF3 uB3 uB2 uB1 uB0 uW0 uW1 uW2 uW3",
        193,
        9,
        195,
    ),
    Anchor(
        "zb-v",
        6,
        6,
        0,
        "F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0 W0 W1 W2 W3 W4 W5 W6 W7",
        195,
        32,
        199,
    ),
)
every_anchor = pytest.mark.parametrize("anchor", ANCHORS, ids=lambda anchor: anchor.shape)


def plan_at_8(anchor: Anchor) -> MicroBatchPlan:
    return build_shape(anchor.shape, replace(SHAPES[anchor.shape].defaults, devices=8, capacity=anchor.capacity_at_8))


def test_every_shape_has_an_anchor():
    assert [anchor.shape for anchor in ANCHORS] == list(SHAPES)


@every_anchor
def test_work_and_blocks_are_the_published_ones(anchor: Anchor):
    for plan in (build_shape(anchor.shape), plan_at_8(anchor)):
        assert set(plan.work) == {anchor.work}
        assert {len(on) for on in plan.blocks_on} == {anchor.blocks_per_device}
        assert sum(len(block.devices) > 1 for block in plan.blocks) == anchor.wide_blocks
        assert {len(block.devices) for block in plan.blocks} <= {1, len(plan.devices)}


@every_anchor
def test_blocks_run_in_the_published_order(anchor: Anchor):
    plan = build_shape(anchor.shape)
    names = anchor.chain.split()
    assert sorted(names) == sorted(block.name for block in plan.blocks)
    for dep in plan.dependencies:
        assert names.index(dep.predecessor) < names.index(dep.successor)
        assert dep.lag == 0


@every_anchor
def test_bounds_are_the_proven_optima(anchor: Anchor):
    for plan, bound in ((build_shape(anchor.shape), anchor.bound_at_4), (plan_at_8(anchor), anchor.bound_at_8)):
        assert period_bound(plan) == anchor.work
        assert makespan_bound(plan, 32) == bound


@pytest.mark.parametrize(
    ("shape", "memory"),
    [
        ("v-shape", {"F0": 5, "B0": -5}),
        ("m-shape", {"E": 0, "F3": 5, "B3": -5, "Eb": 0}),
        ("k-shape", {"tF1": 5, "J": 5, "Jb": -5, "vB0": -5}),
        ("alphafold", {"F0a": 0, "F0b": 0, "F0c": 5, "B0": -5}),
        ("loop", {"F0": 5, "F7": 5, "B7": -5}),
        ("split-v", {"F0": 5, "B0": 0, "W0": -5}),
        ("split-x", {"dF3": 5, "dB3": 0, "uW0": -5}),
        ("zb-v", {"F7": 10, "B7": -5, "W7": -5}),
    ],
)
def test_each_parameter_reaches_its_blocks(shape: str, memory: dict[str, int]):
    plan = build_shape(shape, ShapeParameters(forward=2, backward=7, weight=11, wide=13, memory=5, capacity=40))
    narrow = {BlockKind.FORWARD: 2, BlockKind.BACKWARD: 7, BlockKind.WEIGHT: 11}
    for block in plan.blocks:
        assert block.duration == (13 if len(block.devices) > 1 else narrow[block.kind])
    assert {name: plan.blocks[plan.block_index(name)].memory for name in memory} == memory
    assert {device.memory_capacity for device in plan.devices} == {40}


@every_anchor
def test_unused_parameters_are_the_ones_that_change_nothing(anchor: Anchor):
    shape = SHAPES[anchor.shape]
    ignored = [
        field
        for field in ("chunks", "forward", "backward", "weight", "wide", "memory")
        if shape.chains(replace(shape.defaults, **{field: 50})) == shape.chains(shape.defaults)
    ]
    assert sorted(ignored) == sorted(shape.unused)


@every_anchor
def test_inference_is_the_forward_half_and_holds_nothing(anchor: Anchor):
    training = build_shape(anchor.shape)
    plan = build_shape(anchor.shape, replace(SHAPES[anchor.shape].defaults, training=False))
    forward = [block for block in training.blocks if block.kind is BlockKind.FORWARD]
    assert [(b.name, b.devices, b.duration) for b in plan.blocks] == [(b.name, b.devices, b.duration) for b in forward]
    assert not any(block.memory for block in plan.blocks)
    for b, block in enumerate(plan.blocks):
        before = {plan.blocks[a].name for a in range(len(plan.blocks)) if plan.ancestors[b] >> a & 1}
        whole = training.ancestors[training.block_index(block.name)]
        assert before == {training.blocks[a].name for a in range(len(training.blocks)) if whole >> a & 1}


@every_anchor
def test_every_number_of_devices_makes_a_plan_that_baselines_can_run(anchor: Anchor):
    for devices in (2, 3, 5, 6, 9):
        parameters = replace(SHAPES[anchor.shape].defaults, devices=devices, capacity=1000)
        if anchor.shape == "k-shape" and devices % 2:
            with pytest.raises(InputError, match=f"two equal branches, so it needs an even number, got {devices}"):
                build_shape(anchor.shape, parameters)
            continue
        plan = build_shape(anchor.shape, parameters)
        assert set(plan.work) == {anchor.work}
        fitting = [name for name, scheduler in BASELINES.items() if not scheduler.why_not(plan, 2 * devices)]
        assert "sequential" in fitting
        assert ("1f1b" in fitting) == (anchor.shape in ("v-shape", "split-v"))
        assert ("interleaved" in fitting) == (anchor.shape == "loop")
        for name in fitting:
            assert solve_schedule(name, plan, 2 * devices).solution is not None


@pytest.mark.parametrize(
    ("shape", "parameters", "why"),
    [
        ("y-shape", ShapeParameters(), "shape: 'y-shape' is not known, choose from v-shape, x-shape"),
        ("v-shape", ShapeParameters(devices=1), "Devices: must be between 2 and 256, got 1"),
        ("v-shape", ShapeParameters(forward=0), "Forward time: must be between 1 and"),
    ],
)
def test_wrong_parameters_are_said_in_one_sentence(shape: str, parameters: ShapeParameters, why: str):
    with pytest.raises(InputError, match=why) as raised:
        build_shape(shape, parameters)
    assert "\n" not in str(raised.value)
