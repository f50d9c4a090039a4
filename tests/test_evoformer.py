"""AlphaFold's Evoformer as a plan: published size of a block, time above the hardware's limits, and three passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.plans import wiring

from tessel_core.model import BlockKind
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.networks.evoformer_network import EVOFORMER, EvoformerSpec
from tessel_core.networks.layer_costs import Part, layer_parts
from tessel_core.samples import load_sample
from tools.plan_samples import evoformer_plan

PEAK, MEMORY_SPEED = 989e12, 4.8e12
"""Dense bf16 FLOP/s and bytes per second [NVIDIA H200 data sheet]."""
SPEC: EvoformerSpec = replace(EVOFORMER.presets["evoformer-finetuning"], training=True)


def one_block(spec: EvoformerSpec = SPEC) -> Part:
    """Return the second block. The first one passes no gradient on."""
    return layer_parts("evoformer", replace(spec, blocks=4))[1]


def forward_flops(sequences: int, residues: int) -> float:
    """Return the FLOPs of products and scores of a block.

    They follow from the tensor shapes of [Jumper 2021, algorithms 6 to 15].
    """
    msa, pair = sequences * residues, residues**2
    products = 2 * msa * 256 * (2 * (4 * 256 + 256) + 2 * 4 * 256 + 2 * 32)
    products += 2 * pair * 128 * (8 + 2 * (6 * 128) + 2 * (4 + 5 * 128) + 2 * 4 * 128)
    products += 2 * sequences * (32 * residues) ** 2 + 2 * pair * 32**2 * 128
    triangles = 2 * 2 * 128 * residues**3
    scores = 8 * sequences * residues**2 + 8 * residues * sequences**2 + 2 * 4 * residues**3
    return products + triangles + 4 * 32 * scores


def test_a_block_is_slower_than_its_products_and_than_moving_what_it_keeps():
    """A block is limited by memory and reaches a fifth of the peak.

    Large transformers reach two thirds. The reported 4 % of 512 A100s in training is far less [Cheng 2022, arXiv
    2203.00854].
    """
    block = one_block()
    flops = forward_flops(512, 384)
    assert 0.15 < 1e9 * flops / (block.forward * PEAK) < 0.25
    assert 0.15 < 1e9 * 2 * flops / (block.backward * PEAK) < 0.25
    assert 1e9 * block.kept_bytes / block.forward < MEMORY_SPEED
    assert 2 < block.backward / block.forward < 3


def test_parameters_are_the_published_ones():
    """48 blocks of 1.8 million are nearly all of AlphaFold 2's 93 million.

    Of queries, keys, values and gates, only gates have a bias.
    """
    block = one_block()
    attention = 2 * (256 * 4 * 256 + 256 + 256 * 256 + 256 + 2 * 256) + 2 * 128 + 128 * 8
    transitions = sum(2 * c + c * 4 * c + 4 * c + 4 * c * c + c for c in (256, 128))
    mean = 2 * 256 + 256 * 64 + 64 + 1024 * 128 + 128
    triangles = 2 * (2 * 128 + 128 * 5 * 128 + 5 * 128 + 2 * 128 + 128 * 128 + 128)
    triangles += 2 * (2 * 128 + 128 * 4 + 128 * 4 * 128 + 128 + 128 * 128 + 128)
    parameters = attention + transitions + mean + triangles
    assert block.static_bytes == 16 * parameters
    assert 0.9 < 48 * parameters / 93e6 < 1


def test_two_samples_keep_twice_as_much_and_take_no_longer_than_one_after_the_other():
    one, two = (one_block(replace(SPEC, micro_batch=count)) for count in (1, 2))
    assert two.kept_bytes == 2 * one.kept_bytes
    assert two.sent_bytes == 2 * one.sent_bytes
    assert two.static_bytes == one.static_bytes
    assert one.forward < two.forward < 2.05 * one.forward


@pytest.mark.parametrize("devices", [4, 8, 16])
def test_it_has_the_shape_with_three_passes_of_which_the_last_holds(devices):
    plan = load_sample(f"evoformer-{devices}")
    assert wiring(plan) == wiring(build_shape("alphafold", ShapeParameters(devices=devices)))
    block = one_block()
    for d in range(devices):
        passes = [each for each in plan.blocks if each.kind is BlockKind.FORWARD and each.devices == (d,)]
        assert len({each.duration for each in passes}) == 1
        assert [each.memory for each in passes] == [0, 0, pytest.approx(48 // devices * block.kept_bytes, rel=0.01)]
        assert plan.devices[d].static_memory == 48 // devices * block.static_bytes


@pytest.mark.parametrize("devices", [8, 16])
def test_the_pairs_and_a_row_of_the_alignment_go_back_to_the_first_device(devices):
    """The 38 MB go over NVLink. Of 16 devices, the last one is on the other node."""
    links = {(dep.predecessor, dep.successor): dep.lag for dep in evoformer_plan(SPEC, devices).dependencies}
    recycled = 2 * (384 * 256 + 384**2 * 128)
    again = 2e-6 + recycled / 450e9 if devices == 8 else 5e-6 + recycled / 50e9
    last = devices - 1
    assert links[f"F{last}a", "F0b"] == links[f"F{last}b", "F0c"] == round(again * 1e9)
    onward = 2e-6 + 2 * (512 * 384 * 256 + 384**2 * 128) / 450e9
    assert {links[f"F0{letter}", f"F1{letter}"] for letter in "abc"} == {links["B1", "B0"]} == {round(onward * 1e9)}
