"""Strategies by blocks are close to the simulation of every operation. Refusals give the reason."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.blocks import near_every_operation
from helpers.seeds import one_in

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import DeviceMesh, Link
from tessel_core.simulation.streams import simulate_streams
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.configuration import Configuration
from tessel_core.strategies.evaluation import confirmed, evaluate
from tessel_core.strategies.families import Family, Spec, find_family
from tessel_core.strategies.grid import OBJECTIVES, Grid, evaluate_grid, ranges
from tessel_core.strategies.layer_kernels import AT_START, SPACE, layer_columns
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.ranks import every_rank_order
from tessel_core.strategies.strategy import (
    BUCKET_BYTES,
    Semantics,
    Strategy,
    equal_devices,
    simulate_strategy,
)

MLP, GPT = find_family("mlp"), find_family("gpt")
ORDERS = ("pipedream", "1f1b", "gpipe", "sequential")


def drawn(choose: random.Random, *, zero: bool) -> Configuration:
    """Draw odd numbers of everything, stages of unequal depth, K = 1 with P > 1, small and large operations."""
    data, tensor, pipeline = (choose.choice((1, 2, 3, 4)) for _ in range(3))
    several = choose.choice((1, 1, 2)) if pipeline > 1 else 1
    micro_batches = choose.choice((1, 2)) * pipeline if several > 1 else choose.choice((1, 2, 3, 4, 5, 7))
    layers = choose.randint(pipeline * several, pipeline * several + 4)
    width = 12 * choose.choice((1, 5, 9, 40, 100, 300))
    batch = data * micro_batches * choose.choice((1, 4, 100, 1000))
    spec = MLP.spec(layers, width, batch, choose.choice(("fp16", "fp32")))
    order = choose.choice(ORDERS) if several == 1 else "interleaved"
    how = Recompute.FULL if choose.random() < 0.3 else Recompute.NONE, zero and choose.random() < 0.5, several
    ranks = choose.choice((None, *every_rank_order())) if zero else None
    bucket = choose.choice((0, 100_000, BUCKET_BYTES))
    return Configuration(spec, Strategy(data, tensor, pipeline, micro_batches, order, *how, ranks, bucket))


def drawn_mesh(choose: random.Random) -> DeviceMesh:
    """Draw 64 equal devices, half of the time on several nodes."""
    mesh = equal_devices(64, choose.choice((1e12, 1.4e13, 4e14)), 9e11, choose.choice((5, 25, 300)))
    inside = Link(choose.choice((5, 25, 300)) * 1.25e8, choose.choice((0, 1e-6, 5e-6)))
    if choose.random() < 0.5:
        return replace(mesh, same_node_link=inside)
    per_node = choose.choice((2, 4, 8))
    devices = tuple(replace(device, node=i // per_node) for i, device in enumerate(mesh.devices))
    return replace(mesh, devices=devices, same_node_link=inside, default_link=Link(1.25e9, 5e-6))


@pytest.mark.parametrize("seed", one_in(5, range(12)))
def test_blocks_are_near_the_simulation_of_every_operation(seed: int) -> None:
    """On any equal devices, also small and slow ones, where communication and launches count most."""
    choose = random.Random(seed)
    mesh = drawn_mesh(choose)
    near_every_operation(MLP, [drawn(choose, zero=True) for _ in range(12)], mesh, latency=0.16, memory=0.2)


def test_distirs_rules_are_followed_one_by_one() -> None:
    choose = random.Random(3)
    mesh, some = drawn_mesh(choose), [drawn(choose, zero=False) for _ in range(4)]
    for each, outcome in zip(some, evaluate(MLP, some, mesh, Semantics.DISTIR), strict=True):
        trace = simulate_strategy(MLP, each.spec, each.strategy, mesh, Semantics.DISTIR).trace
        held = np.reshape(trace.peak_memory, (-1, each.strategy.pipeline))
        assert (outcome.latency, outcome.peaks) == (trace.latency, tuple(held.max(axis=0)))


def test_groups_that_lie_differently_take_as_long_as_the_slowest() -> None:
    """Three devices in a row on nodes of two: one group has its own node, the next does not."""
    mesh = replace(find_mesh("h200-16"), name="pairs")
    mesh = replace(mesh, devices=tuple(replace(device, node=i // 2) for i, device in enumerate(mesh.devices)))
    each = Configuration(MLP.spec(3, 12, 24, "fp16"), Strategy(data=2, tensor=3))
    (found,) = evaluate(MLP, [each], mesh)
    trace = simulate_strategy(MLP, each.spec, each.strategy, mesh).trace
    assert found.latency == pytest.approx(trace.latency, rel=0.01)
    exact = confirmed(MLP, each, mesh)
    assert exact is not None
    assert (exact.latency, exact.by_blocks) == (pytest.approx(trace.latency, rel=1e-9), False)


def test_replicas_share_the_optimizers_state() -> None:
    """SGD without momentum has no state, so only parts of gradients are smaller."""
    spec, mesh = MLP.spec(2, 12, 16, "fp32"), equal_devices(4, 1e13, 1e12, 25)
    some = [Configuration(spec, Strategy(data=4, zero=zero)) for zero in (False, True)]
    whole, shared = evaluate(MLP, some, mesh)
    for each, outcome in zip(some, (whole, shared), strict=True):
        trace = simulate_strategy(MLP, each.spec, each.strategy, mesh).trace
        assert outcome.latency == pytest.approx(trace.latency, rel=0.01)
        assert outcome.peaks[0] == pytest.approx(trace.peak_memory[0], rel=0.2)
    assert shared.latency != whole.latency
    assert shared.peaks < whole.peaks


@pytest.mark.parametrize(
    ("family", "spec", "strategy", "told"),
    [
        (
            MLP,
            MLP.spec(2, 10, 16, "fp32"),
            Strategy(4, zero=True),
            "weights with an axis of 10 do not divide among 4 replicas",
        ),
        (
            GPT,
            GPT.spec("gpt2", batch=10),
            Strategy(5, zero=True),
            "weights with an axis of 768 do not divide among 5 replicas",
        ),
        (GPT, GPT.spec("gpt2", batch=9), Strategy(3, 256, zero=True), "it needs 768 devices"),
        (MLP, MLP.spec(10_001, 8, 8), Strategy(), "10,001 layers are more than the 10,000 allowed"),
    ],
)
def test_what_cannot_be_shared_or_counted_says_so(family: Family, spec: Spec, strategy: Strategy, told: str) -> None:
    (found,) = evaluate(family, [Configuration(spec, strategy)], find_mesh("h200-8"))
    assert found.reason.startswith(told)
    with pytest.raises(InputError, match=re.escape(told)):
        simulate_strategy(family, spec, strategy, find_mesh("h200-8"))


def test_programs_of_millions_of_operations_are_refused() -> None:
    spec, strategy = MLP.spec(10_000, 8, 64), Strategy(micro_batches=64)
    with pytest.raises(
        InputError, match="has 640,000 layers, counted per device and micro-batch, more than the 500,000"
    ):
        simulate_strategy(MLP, spec, strategy, find_mesh("h200-1"))


def test_distir_does_not_know_zero() -> None:
    each, mesh = (
        Configuration(MLP.spec(2, 12, 16, "fp32"), Strategy(data=2, zero=True)),
        equal_devices(2, 1e13, 1e12, 25),
    )
    (found,) = evaluate(MLP, [each], mesh, Semantics.DISTIR)
    assert found.reason.startswith("DistIR's rules have no cost for ZeRO")
    with pytest.raises(InputError, match="rules have no cost for ZeRO"):
        simulate_strategy(MLP, each.spec, each.strategy, mesh, Semantics.DISTIR)


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (Strategy(data=3), "a batch of 256 does not divide into 3 x 1 parts (replicas x micro-batches)"),
        (Strategy(tensor=3), "a width of 512 does not divide among 3 devices"),
        (Strategy(pipeline=9), "9 stages need at least 9 layers, but the network has 8"),
        (Strategy(data=32), "it needs 32 devices, but the mesh has 16"),
        (Strategy(schedule="zb-v"), "ZB-V needs two stages per device in a V"),
    ],
)
def test_what_cannot_be_says_why(strategy: Strategy, reason: str) -> None:
    spec, mesh = MLP.spec(8, 512, 256, "fp16"), equal_devices(16, 1e13, 1e12, 25)
    (found,) = evaluate(MLP, [Configuration(spec, strategy)], mesh)
    assert found.reason.startswith(reason)
    assert math.isnan(found.latency)
    with pytest.raises(InputError, match=re.escape(reason)):
        simulate_strategy(MLP, spec, strategy, mesh)


def test_memory_that_is_short_names_device_and_bytes() -> None:
    """The device with the least memory is in the second replica."""
    spec, strategy = MLP.spec(8, 512, 256, "fp16"), Strategy(data=2, pipeline=2, micro_batches=4)
    mesh = equal_devices(4, 1e13, 1e12, 25)
    free = simulate_strategy(MLP, spec, strategy, mesh)
    peak = free.trace.peak_memory[3]
    devices = (*mesh.devices[:3], replace(mesh.devices[3], memory_capacity=peak - 1000))
    tight = replace(mesh, devices=devices)
    (found,) = evaluate(MLP, [Configuration(spec, strategy)], tight)
    assert found.reason == simulate_strategy(MLP, spec, strategy, tight).shortage
    assert found.reason.startswith("gpu3 needs ")
    assert found.reason.endswith(" of memory, 1 kB more than it has")
    assert found.latency == pytest.approx(free.trace.latency)
    enough = replace(mesh, devices=(*mesh.devices[:3], replace(mesh.devices[3], memory_capacity=peak)))
    assert evaluate(MLP, [Configuration(spec, strategy)], enough)[0].reason == ""


def test_a_stopped_sweep_says_what_it_did_not_reach() -> None:
    control = Control()
    control.cancel()
    some = [Configuration(MLP.spec(8, 512, 256, "fp16"), Strategy())]
    (found,) = evaluate(MLP, some, equal_devices(1, 1e13, 1e12, 25), control=control)
    assert found.reason == "the evaluation was stopped before this configuration"


def test_rates_that_are_not_known_are_said_of_each() -> None:
    mesh = equal_devices(1, 1e13, 1e12, 25)
    mesh = replace(mesh, devices=(replace(mesh.devices[0], flops=()),))
    some = [Configuration(MLP.spec(8, 512, 256, "fp16"), Strategy())]
    for semantics in Semantics:
        (found,) = evaluate(MLP, some, mesh, semantics)
        assert re.fullmatch(r"device gpu0: has no flops(.fp16)?, from which times could be derived", found.reason)


def test_a_rate_that_is_not_known_does_not_spoil_other_formats() -> None:
    mesh = equal_devices(1, 1e13, 1e12, 25)
    rates = tuple(rate for rate in mesh.devices[0].flops if rate.dtype == "fp16")
    mesh = replace(mesh, devices=(replace(mesh.devices[0], flops=rates),))
    some = [Configuration(MLP.spec(8, 512, 256, dtype), Strategy()) for dtype in ("fp16", "fp32")]
    known, unknown = evaluate(MLP, some, mesh)
    assert (known.reason, unknown.reason) == ("", "device gpu0: has no flops.fp32, from which times could be derived")


@pytest.mark.parametrize("seed", one_in(2, range(2)))
def test_deep_networks_are_near_the_simulation_of_every_operation(seed: int) -> None:
    choose = random.Random(seed)
    drawn_ones = [drawn(choose, zero=True) for _ in range(12)]
    some = [replace(one, spec=replace(one.spec, layers=choose.randint(9, 17))) for one in drawn_ones]
    near_every_operation(MLP, some, equal_devices(64, 1.4e13, 9e11, 25), latency=0.16, memory=0.2)


def test_the_best_of_a_grid_are_simulated_operation_by_operation() -> None:
    """The best of each objective is simulated exactly. The rest of the grid is timed by blocks."""
    mesh, degrees = find_mesh("h200-8"), (1, 2, 4)
    grid = Grid(ranges(layers=(8,), width=(1024,), batch=(512,)), degrees, degrees, degrees, (1, 4))
    found = evaluate_grid(MLP, grid, mesh)
    best = {found.ranked(name)[0] for name in OBJECTIVES}
    assert sum(outcome.by_blocks for outcome in found.outcomes) > len(found) / 2
    for i in best:
        each, outcome = found.configurations[i], found.outcomes[i]
        trace = simulate_strategy(MLP, each.spec, each.strategy, mesh).trace
        assert (outcome.latency, max(outcome.peaks)) == (pytest.approx(trace.latency, rel=1e-9), max(trace.peak_memory))


def test_orders_that_run_two_copies_are_simulated_operation_by_operation() -> None:
    spec, mesh = MLP.spec(8, 512, 256, "fp16"), find_mesh("h200-8")
    (found,) = evaluate(MLP, [Configuration(spec, Strategy(1, 1, 4, 8, "dualpipe"))], mesh)
    assert (found.reason, found.by_blocks) == ("", False)


@pytest.mark.parametrize(("name", "strategy"), [
    ("mixtral-8x7b", Strategy(2, 2, expert=2, sequence_parallel=True)),
    ("llama-3-8b", Strategy(1, 2, 2, 4, "zb-h1", context=2, recompute=Recompute.SELECTIVE, grad_dtype="fp32")),
    ("swin-b", Strategy(1, 2, recompute=Recompute.FULL)),
    ("gpt-6.7b", Strategy(2, compiled=True)),
])  # fmt: skip
def test_programs_of_other_batches_follow_from_two(name: str, strategy: Strategy) -> None:
    """A layer's program is cut for two numbers of samples. The third equals a program that is cut directly."""
    found = preset_network(name)
    assert found is not None
    family, said = found
    spec = family.spec(**said | {"batch": 1} | ({"layers": 4, "sequence": 512} if "sequence" in said else {}))
    derived, cut = (BlockTable(family, spec, find_mesh("h100-8")) for _ in range(2))
    for rows in (1, 2):
        derived.program(strategy, rows)
    model, again = derived.program(strategy, 8), cut.program(strategy, 8)
    assert list(derived.built_sizes) == [1, 2]
    assert model.types(8) == again.types(8)
    operations = [[(op.kind, op.attributes) for op in each.model.program.ops] for each in (model, again)]
    assert operations[0] == operations[1]


@pytest.mark.parametrize(("name", "strategy"), [
    ("gpt2-small", Strategy(2, micro_batches=2)),
    ("gpt-6.7b", Strategy(1, 4, sequence_parallel=True, recompute=Recompute.SELECTIVE)),
    ("mixtral-8x7b", Strategy(2, expert=2, micro_batches=4)),
    ("llama-3-8b", Strategy(1, 2, 2, 4, "zb-h1", context=2, grad_dtype="fp32")),
])  # fmt: skip
def test_compiled_loops_follow_the_simulation_of_streams(name: str, strategy: Strategy) -> None:
    """The start and end of each operation and the peak memory of a micro-batch are those of `simulate_streams`."""
    found = preset_network(name)
    assert found is not None
    family, said = found
    spec = family.spec(**said | {"batch": 8, "layers": 4, "sequence": 512})
    table = BlockTable(family, spec, find_mesh("h100-8"))
    sized = table.program(strategy, 2)
    structure = sized.structure
    trace = simulate_streams(structure.program, table.wiring(strategy).costs(0))
    _, workspace = sized.seconds(2, lambda *_: 0.0)
    start, end, _, runs = layer_columns(
        *(structure.ops, structure.links, structure.values, structure.layers),
        *(trace.seconds, sized.bytes(2), workspace),
    )
    assert trace.op.tolist() == list(range(len(structure.program.ops)))
    assert start == pytest.approx(trace.start)
    assert end == pytest.approx(trace.start + trace.seconds)
    assert (runs[:, :, AT_START] + runs[:, :, SPACE]).max() == pytest.approx(trace.peak_memory[0])


@pytest.mark.parametrize("mode", ["training", "prefill"])
def test_configurations_of_several_sizes_together_equal_each_alone(mode: str) -> None:
    """Tables of several sizes share structures of layers. The results of a configuration do not depend on others."""
    family, mesh = find_family("gpt"), find_mesh("h200-16")
    sizes = {"size": ("gpt2", "gpt2-xl", "gpt3-6.7b"), "batch": (16, 64), "dtype": ("bf16", "fp32"), "mode": (mode,)}
    more = {"context": (512,)} if mode == "prefill" else {}
    both = {"recompute": (Recompute.NONE, Recompute.FULL), "zero": (0, 1, 3)} if mode == "training" else {}
    grid = Grid(ranges(**sizes, **more), (1, 2), (1, 2, 4), (1, 2, 4), (1, 4, 16), **both)
    some = random.Random(0).sample(grid.configurations(family, 16), 60)
    outcomes = evaluate(family, some, mesh)
    assert sum(found.by_blocks for found in outcomes) > 20
    for each, found in zip(some, outcomes, strict=True):
        (alone,) = evaluate(family, [each], mesh)
        assert (found.peaks, found.reason) == (alone.peaks, alone.reason)
        assert found.ends == pytest.approx(alone.ends, rel=1e-12)
