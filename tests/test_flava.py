"""Flava: a K shape with real costs, two encoders that meet in a joint encoder on all devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.plans import wiring

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.samples import load_sample
from tools.plan_samples import FLAVA, flava_plan

PEAK = 989e12
MICRO_BATCHES = {4: 12, 8: 20, 16: 24}
TOKENS = {"text": 1024, "vision": 901, "joint": 1926}
"""Tokens per pair: 30 x 30 patches plus one for the image, and one more for both."""
every_size = pytest.mark.parametrize("devices", MICRO_BATCHES)


def block(plan: MicroBatchPlan, name: str):
    return plan.blocks[plan.block_index(name)]


@every_size
def test_it_has_the_k_shape(devices):
    shape = build_shape("k-shape", ShapeParameters(devices=devices))
    assert wiring(load_sample(f"flava-{devices}")) == wiring(shape)
    halved = build_shape("k-shape", ShapeParameters(devices=devices, training=False))
    assert wiring(load_sample(f"flava-{devices}-inference")) == wiring(halved)


@every_size
def test_static_memory_is_16_bytes_a_parameter(devices):
    """Layers have 12 h² + 13 h parameters.

    Each node holds the joint encoder once, cut except for 6 h of biases and norms. Stacks end in norms. Embeddings have
    rows for 30,522 tokens, 1024 places, 2 types, 901 patches and two class tokens.
    """
    hidden, nodes = 4096, 2 if devices > 8 else 1
    layer = 12 * hidden**2 + 13 * hidden
    rows = 30_522 + 1024 + 2 + 901 + 1
    encoders = 48 * layer + rows * hidden + 768 * hidden + hidden + 2 * (hidden**2 + hidden) + 3 * 2 * hidden
    joint = 12 * (nodes * layer + 6 * hidden * (devices - nodes)) + devices * 3 * hidden
    static = [device.static_memory for device in load_sample(f"flava-{devices}").devices]
    assert sum(static) == 16 * (encoders + joint)
    weights = [device.static_memory for device in load_sample(f"flava-{devices}-inference").devices]
    assert 8 * sum(weights) == sum(static)


@every_size
def test_encoders_and_joint_encoder_run_at_a_credible_speed(devices):
    """A layer has 24 b s h² (1 + s / 6h) FLOPs [Narayanan 2021], three times in training."""
    hidden = 4096

    def flops(part: str, layers: int) -> float:
        return layers * 24 * TOKENS[part] * hidden**2 * (1 + TOKENS[part] / (6 * hidden))

    pair = flops("text", 24) + flops("vision", 24) + flops("joint", 12)
    for name, passes, micro_batch in (
        (f"flava-{devices}", 3, MICRO_BATCHES[devices]),
        (f"flava-{devices}-inference", 1, 4),
    ):
        rate = passes * micro_batch * pair / (load_sample(name).busiest_work * 1e-9 * devices * PEAK)
        assert 0.35 < rate < 0.6


def test_two_nodes_run_the_joint_encoder_of_one_on_half_of_the_micro_batch_each():
    one, two = flava_plan(replace(FLAVA, micro_batch=6), 8), flava_plan(replace(FLAVA, micro_batch=12), 16)
    for name in ("J", "Jb"):
        assert block(two, name).duration == block(one, name).duration
        assert block(two, name).memory == block(one, name).memory
        assert block(two, name).devices == tuple(range(16))


def test_the_joint_encoder_on_more_devices_of_a_node_is_faster_and_holds_less_but_not_in_proportion():
    few, many = flava_plan(FLAVA, 4), flava_plan(FLAVA, 8)
    for name in ("J", "Jb"):
        assert 0.5 < block(many, name).duration / block(few, name).duration < 1
        assert 0.5 < block(many, name).memory / block(few, name).memory < 1
    kept = 12 * 1926 * (4096 * (8 + 24 / 8) + 4 * 32 / 8 + 16)
    assert block(many, "J").memory == pytest.approx(kept, rel=0.05)


def test_outputs_are_broadcast_and_gradients_of_the_other_node_come_back():
    def lags(devices: int) -> list[int]:
        plan, last = flava_plan(replace(FLAVA, micro_batch=2), devices), devices // 2 - 1
        links = {(dep.predecessor, dep.successor): dep.lag for dep in plan.dependencies}
        return [links[f"tF{last}", "J"], links["Jb", f"tB{last}"], links["J", "Jb"]]

    output = 2 * 1024 * 4096 * 2
    across = 5e-6 + output / 2 / 50e9
    assert lags(8) == [round((7 * 2e-6 + output / 450e9) * 1e9), 0, 0]
    assert lags(16) == [round((across + 7 * 2e-6 + output / 2 / 450e9) * 1e9), round(across * 1e9), 0]


@every_size
def test_inference_is_the_forward_half_of_training(devices):
    """Launches are cheaper if nothing is recorded for a backward."""
    training = flava_plan(replace(FLAVA, micro_batch=4), devices)
    durations = {each.name: each.duration for each in training.blocks if each.kind is BlockKind.FORWARD}
    found = {each.name: each.duration for each in load_sample(f"flava-{devices}-inference").blocks}
    assert found.keys() == durations.keys()
    assert all(0.9 * durations[name] < duration <= durations[name] for name, duration in found.items())
