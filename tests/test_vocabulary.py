"""Networks with large vocabularies: good stages, parts costed by hand, and plans that add up."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessel_core.costs.meshes import NVLINK, all_reduce_seconds
from tessel_core.errors import InputError
from tessel_core.model import MicroBatchPlan
from tessel_core.networks.cuts import best_cut
from tessel_core.networks.forms import FORMS, Layered, layered
from tessel_core.networks.layer_costs import Part
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tools.h200_rows import layer_parameters

GPT, MT5 = layered("gpt-1m-vocab", 1), layered("mt5-xxl", 1)
HOP_NS = round((2e-6 + 2048 * 4096 * 2 / 450e9) * 1e9)
"""16.8 MB between neighbours: 2 µs + 37.3 µs."""


def plan_of(network: Layered, form: str, devices: int) -> MicroBatchPlan:
    return FORMS[form].build(f"{network.name}-{form}", network, devices)


def part(parts: tuple[Part, ...], layer: str) -> Part:
    [found] = (each for each in parts if each.layers == (layer,))
    return found


def block(plan: MicroBatchPlan, name: str):
    return plan.blocks[plan.block_index(name)]


def lags(plan: MicroBatchPlan) -> dict[tuple[str, str], int]:
    return {(dep.predecessor, dep.successor): dep.lag for dep in plan.dependencies}


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(1, 9))
def test_more_stages_than_parts_are_refused(loads, more):
    stages = len(loads) + more
    with pytest.raises(InputError, match=f"must be between 1 and the number of parts, {len(loads)}, got {stages}"):
        best_cut(loads, stages)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.data())
def test_no_contiguous_cut_is_better(loads, data):
    stages = data.draw(st.integers(1, len(loads)))

    def quality(ends):
        sums = [sum(loads[a:b]) for a, b in zip((0, *ends), (*ends, len(loads)), strict=True)]
        return max(sums), sum(each**2 for each in sums), ends

    cut = best_cut(loads, stages)
    assert [i for stage in cut for i in stage] == list(range(len(loads)))
    assert len(cut) == stages
    assert all(cut)
    best = min(quality(ends) for ends in combinations(range(1, len(loads)), stages - 1))
    assert quality(tuple(stage.start for stage in cut[1:])) == best


def shards(network: Layered, devices: int) -> tuple[Part, ...]:
    assert network.sharded is not None
    return network.sharded(devices)


def test_a_shard_of_the_embedding_looks_up_its_rows_and_sums() -> None:
    """The gradient of a million rows moves at least 8.2 GB. Every device has all 2048 positions."""
    whole, shard = (part(parts, "embedding") for parts in (GPT.parts, shards(GPT, 4)))
    row = 16 * 4096
    assert whole.static_bytes == (1_000_000 + 2048) * row
    assert shard.static_bytes == (250_000 + 2048) * row
    assert whole.backward > 8.192e9 / 4.8e12 * 1e9
    ring = all_reduce_seconds(NVLINK, 2048 * 4096 * 2, 4)
    assert shard.forward == pytest.approx(whole.forward + ring * 1e9, abs=2)
    assert shard.backward == pytest.approx(whole.backward / 4, rel=0.1)


def test_a_shard_of_the_loss_has_its_share_of_the_logits() -> None:
    whole, shard = (part(parts, "head") for parts in (GPT.parts, shards(GPT, 4)))
    hidden = 2048 * 4096
    assert whole.kept_bytes == pytest.approx(6 * 2048 * 1_000_000 + 4 * hidden, rel=1e-4)
    assert shard.kept_bytes == pytest.approx(6 * 2048 * 250_000 + 4 * hidden, rel=1e-4)
    assert shard.work == pytest.approx(whole.work / 4, rel=0.05)
    assert shard.work > whole.work / 4
    product = 2 * 2048 * 4096 * 1e6
    assert 3 * product / 989e12 * 1e9 < whole.work < 7 * product / 989e12 * 1e9


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    assert part(shards(GPT, 7), "embedding").static_bytes == 16 * (142_858 + 2048) * 4096


def test_layers_are_those_of_the_whole_network_whatever_the_vocabulary() -> None:
    inner = [each for each in shards(GPT, 8) if each.layers[0].startswith("layer")]
    assert inner == [each for each in GPT.parts if each.layers[0].startswith("layer")]


def test_decoder_layers_cost_more_than_encoder_layers() -> None:
    encoder, decoder = part(MT5.parts, "encoder12"), part(MT5.parts, "decoder12")
    assert decoder.work > 1.1 * encoder.work
    assert decoder.static_bytes - encoder.static_bytes == 16 * (4 * 4096**2 + 4096)


def test_stages_send_what_later_layers_take() -> None:
    """Stages send hidden states and the encoder's output.

    The first layer of each stack also sends the position bias of 64 heads.
    """
    hidden, bias = 2 * 2048 * 4096, 2 * 64 * 2048**2
    sent = {layer: part(MT5.parts, layer).sent_bytes for layer in ("encoder_embedding", "encoder3", "encoder_end")}
    assert sent == {"encoder_embedding": hidden, "encoder3": hidden + bias, "encoder_end": hidden}
    assert part(MT5.parts, "decoder_embedding").sent_bytes == 2 * hidden
    assert part(MT5.parts, "decoder3").sent_bytes == 2 * hidden + bias
    assert part(MT5.parts, "decoder23").sent_bytes == hidden


@pytest.mark.parametrize("devices", [4, 8])
def test_the_projection_alone_makes_the_last_stage_slow(devices):
    plan = plan_of(GPT, "v", devices)
    assert plan.busiest_work == plan.work[-1]
    assert block(plan, f"F{devices - 1}").duration == part(GPT.parts, "head").forward
    share = sum(plan.work) / devices
    assert plan.work[-1] > 1.5 * share
    layer = part(GPT.parts, "layer7").work
    assert max(plan.work[:-1]) - min(plan.work[:-1]) <= layer + 1


@pytest.mark.parametrize("devices", [4, 8])
def test_sharding_the_vocabulary_evens_the_devices(devices):
    v_shape, m_shape = (plan_of(GPT, form, devices) for form in ("v", "sharded"))
    assert len(set(m_shape.work)) == 1
    assert m_shape.busiest_work < 0.66 * v_shape.busiest_work
    assert sum(m_shape.work) == pytest.approx(sum(v_shape.work), rel=0.05)


@pytest.mark.parametrize("devices", [4, 8])
def test_static_memory_is_16_bytes_a_parameter(devices):
    hidden = 4096
    layers, others = 32 * layer_parameters(hidden), 2048 * hidden + 2 * hidden
    for form, copies in (("v", 1), ("sharded", devices)):
        held = sum(device.static_memory for device in plan_of(GPT, form, devices).devices)
        assert held == 16 * (layers + 2 * 1_000_000 * hidden + copies * others)
    table, attention, mlp = 250_112 * hidden, 4 * hidden**2 + hidden, 3 * hidden * 10_240 + hidden
    stacks = 24 * (attention + mlp) + 24 * (2 * attention + mlp) + 2 * 32 * 64 + hidden
    for form, tables, copies in (("v", 3, 1), ("sharded", 2, devices)):
        held = sum(device.static_memory for device in plan_of(MT5, form, devices).devices)
        assert held == 16 * (stacks + tables * table + copies * hidden)


def test_lags_are_transfers_between_devices():
    found = lags(plan_of(GPT, "v", 4))
    assert found == {
        **{(f"F{d}", f"F{d + 1}"): HOP_NS for d in range(3)},
        ("F3", "B3"): 0,
        **{(f"B{d + 1}", f"B{d}"): HOP_NS for d in range(3)},
    }
    found = lags(plan_of(MT5, "sharded", 4))
    hidden, bias = 2048 * 4096 * 2, 2 * 64 * 2048**2
    one, two = (round((2e-6 + (count * hidden + bias) / 450e9) * 1e9) for count in (1, 2))
    assert (found["F0", "F1"], found["F1", "F2"], found["F2", "F3"], found["B3", "B2"]) == (one, HOP_NS, two, two)
    assert [found[link] for link in (("F1", "D"), ("D", "F2"), ("Db", "B1"), ("H", "Hb"), ("Hb", "B3"))] == [0] * 5
    broadcast = HOP_NS + 2 * 2000  # two more hops of 2 µs
    assert [found[link] for link in (("F3", "H"), ("B2", "Db"), ("B0", "Eb"))] == [broadcast] * 3


PLANS = {
    f"{network.name}-{form}-{devices}": (plan_of(network, form, devices), scheduler)
    for network in (GPT, MT5)
    for form, scheduler in (("v", "1f1b"), ("sharded", "1f1b+"))
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
