"""Networks with large vocabularies: stages cut well, parts costed by hand, plans that add up."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessel_core.costs import h200
from tessel_core.errors import InputError
from tessel_core.model import MicroBatchPlan
from tessel_core.networks.parts import causal_layer, decoder_layer, embedding, encoder_layer, vocabulary_loss
from tessel_core.networks.pipelines import best_cut
from tessel_core.networks.transformers import GPT_1M, MT5_XXL, gpt_m_plan, gpt_v_plan, mt5_nn_plan, mt5_v_plan
from tessel_core.scheduling import SCHEDULERS, solve_schedule

SIZE = GPT_1M.size
HOP_NS = round((2e-6 + 2048 * 4096 * 2 / 450e9) * 1e9)
"""16.8 MB between neighbours: 2 µs + 37.3 µs."""


def block(plan: MicroBatchPlan, name: str):
    return plan.blocks[plan.block_index(name)]


def lags(plan: MicroBatchPlan) -> dict[tuple[str, str], int]:
    return {(dep.predecessor, dep.successor): dep.lag for dep in plan.dependencies}


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(1, 9))
def test_no_contiguous_cut_is_better(loads, stages):
    if stages > len(loads):
        with pytest.raises(InputError, match=f"must be between 1 and the {len(loads)} parts there are, got {stages}"):
            best_cut(loads, stages)
        return

    def quality(ends):
        sums = [sum(loads[a:b]) for a, b in zip((0, *ends), (*ends, len(loads)), strict=True)]
        return max(sums), sum(each**2 for each in sums), ends

    cut = best_cut(loads, stages)
    assert [i for stage in cut for i in stage] == list(range(len(loads)))
    assert len(cut) == stages
    assert all(cut)
    best = min(quality(ends) for ends in combinations(range(1, len(loads)), stages - 1))
    assert quality(tuple(stage.start for stage in cut[1:])) == best


def test_embedding_by_hand():
    """The gradient of a million rows moves 8.2 GB to fill and 24.6 GB to accumulate: 7.7 ms, a twentieth to look up."""
    whole, shard = embedding(SIZE), embedding(SIZE, 4)
    assert whole.parameters == 4_096_000_000
    assert shard.parameters == 1_024_000_000
    moved = 8 * 4.096e9
    assert moved / 4.8e12 < whole.backward < moved / (0.75 * 4.8e12)
    assert whole.forward == h200.embedding_seconds(2048, 1_000_000, 4096)
    ring = 2 * 3 * (2e-6 + 2048 * 4096 * 2 / 4 / 450e9)
    assert shard.forward == pytest.approx(h200.embedding_seconds(2048, 250_000, 4096) + ring)
    assert shard.backward == pytest.approx(whole.backward / 4, rel=0.02)


def test_vocabulary_loss_by_hand():
    whole, shard = vocabulary_loss(SIZE), vocabulary_loss(SIZE, 4)
    product = h200.matmul_seconds(2048, 4096, 1_000_000)
    assert whole.forward == pytest.approx(product + h200.cross_entropy_seconds(2048, 1_000_000))
    assert whole.backward == pytest.approx(2 * product + h200.move_seconds(14 * 2048 * 1e6))
    assert whole.kept_bytes == 6 * 2048 * 1_000_000 + 2 * 2048 * 4096
    assert shard.seconds == pytest.approx(whole.seconds / 4, rel=0.05)
    assert shard.seconds > whole.seconds / 4


def test_a_vocabulary_that_does_not_divide_is_rounded_up():
    assert embedding(SIZE, 7).parameters == 142_858 * 4096


def test_decoder_layers_cost_more_than_encoder_layers_and_those_more_than_causal_ones():
    causal, encoder, decoder = (make(MT5_XXL.size) for make in (causal_layer, encoder_layer, decoder_layer))
    assert causal.seconds == pytest.approx((1228.672 + 2947.84) * 1e-6)
    assert encoder.seconds == pytest.approx(causal.seconds + (97.696 + 323.328) * 1e-6)
    assert decoder.seconds > encoder.seconds
    assert decoder.parameters - causal.parameters == 4 * 4096**2 + 6 * 4096
    assert decoder.sent_bytes == 2 * encoder.sent_bytes == 2 * 16_777_216


@pytest.mark.parametrize("devices", [4, 8])
def test_the_projection_alone_makes_the_last_stage_slow(devices):
    plan = gpt_v_plan(GPT_1M, devices)
    assert plan.busiest_work == plan.work[-1]
    assert block(plan, f"F{devices - 1}").duration == round(vocabulary_loss(SIZE).forward * 1e9)
    share = sum(plan.work) / devices
    assert plan.work[-1] > 1.5 * share
    layer = causal_layer(SIZE).seconds * 1e9
    assert max(plan.work[:-1]) - min(plan.work[:-1]) <= layer + 1


@pytest.mark.parametrize("devices", [4, 8])
def test_sharding_the_vocabulary_evens_the_devices(devices):
    v_shape, m_shape = gpt_v_plan(GPT_1M, devices), gpt_m_plan(GPT_1M, devices)
    assert len(set(m_shape.work)) == 1
    assert m_shape.busiest_work < 0.65 * v_shape.busiest_work
    assert sum(m_shape.work) == pytest.approx(sum(v_shape.work), rel=0.05)


@pytest.mark.parametrize("devices", [4, 8])
def test_static_memory_is_16_bytes_a_parameter(devices):
    layers = 32 * 201_379_840
    for plan in (gpt_v_plan(GPT_1M, devices), gpt_m_plan(GPT_1M, devices)):
        assert sum(device.static_memory for device in plan.devices) == 16 * (layers + 2 * 4_096_000_000)
    table = 250_112 * 4096
    stack = 24 * 201_379_840 + 24 * (201_379_840 + 4 * 4096**2 + 6 * 4096)
    for plan, tables in ((mt5_v_plan(MT5_XXL, devices), 3), (mt5_nn_plan(MT5_XXL, devices), 2)):
        assert sum(device.static_memory for device in plan.devices) == 16 * (stack + tables * table)


def test_lags_are_transfers_between_devices():
    found = lags(gpt_v_plan(GPT_1M, 4))
    assert found == {
        **{(f"F{d}", f"F{d + 1}"): HOP_NS for d in range(3)},
        ("F3", "B3"): 0,
        **{(f"B{d + 1}", f"B{d}"): HOP_NS for d in range(3)},
    }
    found = lags(mt5_nn_plan(MT5_XXL, 4))
    two = round((2e-6 + 2 * 2048 * 4096 * 2 / 450e9) * 1e9)
    assert (found["F0", "F1"], found["F1", "F2"], found["F2", "F3"], found["B3", "B2"]) == (HOP_NS, HOP_NS, two, two)
    assert [found[link] for link in (("F1", "D"), ("D", "F2"), ("Db", "B1"), ("H", "Hb"), ("Hb", "B3"))] == [0] * 5
    broadcast = HOP_NS + 2 * 2000  # two more hops of 2 µs
    assert [found[link] for link in (("F3", "H"), ("B2", "Db"), ("B0", "Eb"))] == [broadcast] * 3


PLANS = {
    f"{name}-{devices}": (build(network, devices), scheduler)
    for name, build, network, scheduler in (
        ("gpt-v", gpt_v_plan, GPT_1M, "1f1b"),
        ("gpt-m", gpt_m_plan, GPT_1M, "1f1b+"),
        ("mt5-v", mt5_v_plan, MT5_XXL, "1f1b"),
        ("mt5-nn", mt5_nn_plan, MT5_XXL, "1f1b+"),
    )
    for devices in (4, 8)
}


@pytest.mark.parametrize("name", PLANS)
def test_the_published_schedule_of_the_shape_applies_and_fits(name):
    plan, scheduler = PLANS[name]
    assert plan.name == name
    assert (plan.time_unit, plan.memory_unit) == ("ns", "B")
    assert not SCHEDULERS[scheduler].objection(plan)
    assert solve_schedule(scheduler, plan, 12).solution is not None
    chain = [block for block in plan.blocks if len(block.devices) == 1]
    assert [block.devices[0] for block in chain] == [*range(len(plan.devices)), *reversed(range(len(plan.devices)))]
