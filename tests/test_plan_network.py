"""A plan's network: the program of any schedule computes the result of one device, and cannot hang."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.networks import some_network, some_schedule
from helpers.seeds import one_in, seeds

from tessel_core.deadlock import Channels, check_channels, program_actions
from tessel_core.execution.inputs import seeded_inputs
from tessel_core.execution.share import Run, shares_of, with_receives_ahead
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.verify import verify
from tessel_core.model import Schedule
from tessel_core.networks import SHAPES, build_shape
from tessel_core.networks.programs.plan_layers import Network
from tessel_core.networks.programs.plan_network import (
    RATE,
    LayerSize,
    gradient_name,
    network_program,
    of_micro_batch,
    plan_network,
    updated_name,
)
from tessel_core.scheduling import SCHEDULERS, solve_schedule

SIZE = LayerSize(width=4, samples=3, dtype="fp64")
MICRO_BATCHES = 3


def numbers(name: str, shape: tuple[int, ...]) -> Array:
    """Return numbers that depend on the name only. A scalar is the number of samples."""
    if not shape:
        return np.array(SIZE.samples, np.int32)
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape) / 2


def in_one_process(whole: Distributed) -> dict[str, Array]:
    """Compute one micro-batch after another and a training step by hand."""
    shapes = {piece.name: whole.program.types[value].shape for value, piece in whole.piece_of.items()}
    samples = [name for name in shapes if whole.roles[name].batch_axis is not None]
    given = {name: numbers(name, shape) for name, shape in shapes.items()}
    found = dict[str, Array]()
    for m in range(MICRO_BATCHES):
        for piece, made in whole.run(given | {x: numbers(of_micro_batch(x, m), shapes[x]) for x in samples}):
            weight = piece.name.removeprefix("d.")
            if weight != piece.name:
                found[gradient_name(weight)] = found.get(gradient_name(weight), 0.0) + made
                found[updated_name(weight)] = given[weight] - RATE * found[gradient_name(weight)]
            else:
                loss = weight.startswith("loss")
                found[of_micro_batch(weight, m)] = made.sum() if loss else made
    return found


def computes_the_same(network: Network, schedule: Schedule) -> None:
    whole, model = plan_network(network, SIZE), network_program(network, schedule, SIZE).model
    verify(whole.program)
    verify(model.program)
    shapes = {piece.name: whole.program.types[value].shape for value, piece in whole.piece_of.items()}
    wanted = in_one_process(whole)
    given = {piece.name: numbers(piece.name, shapes[piece.name.partition(" #")[0]]) for piece in model.inputs}
    found = model.run(given)
    assert {piece.name for piece, _ in found} == wanted.keys()
    for piece, made in found:
        np.testing.assert_allclose(made, piece.of(np.asarray(wanted[piece.name])), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_in_every_published_order(shape: str) -> None:
    for devices, training in ((2, True), (4, True), (4, False)):
        plan = build_shape(shape, replace(SHAPES[shape].defaults, devices=devices, training=training))
        plan = plan.with_capacity(None)
        for name, scheduler in SCHEDULERS.items():
            if name in ("tessel", "time-optimal", "list-scheduling") or scheduler.why_not(plan, MICRO_BATCHES):
                continue
            schedule = solve_schedule(name, plan, MICRO_BATCHES).drawable
            assert schedule is not None
            computes_the_same(Network.of(plan), schedule)


@pytest.mark.parametrize("seed", seeds(60))
def test_networks_of_any_form_in_any_order(seed: int) -> None:
    choose = random.Random(seed)
    plan = some_network(choose, 4)
    schedule = some_schedule(choose, plan, MICRO_BATCHES)
    computes_the_same(Network.of(plan), schedule)
    for channels in Channels:
        actions = program_actions(network_program(Network.of(plan), schedule, SIZE).model.program)
        assert check_channels(actions, channels).proceeds, channels


@pytest.mark.parametrize("seed", seeds(20))
def test_ranks_ask_for_tensors_ahead_of_time_in_the_same_order(seed: int) -> None:
    """Runs keep their operations, and receives keep their order. No receive becomes later."""
    choose = random.Random(seed)
    plan = some_network(choose, 3)
    model, run_of = network_program(Network.of(plan), some_schedule(choose, plan, MICRO_BATCHES), SIZE)
    runs = [None if run is None else Run(*run, "", plan.blocks[run[0]].devices) for run in run_of]
    needs = dict.fromkeys(model.program.devices, 0)
    for share in shares_of(model, seeded_inputs(replace(model, roles={}), 0), 1, needs, kept={}, runs=runs):
        ops, spans = share.program.ops, share.spans
        assert spans is not None
        moved, after = with_receives_ahead(ops, spans, 2)
        assert sorted(each.place for each in moved) == sorted(each.place for each in ops)
        for span, there in zip(spans, after, strict=True):
            assert moved[there.first : there.end] == list(ops[span.first : span.end])
            assert {run_of[each.place] for each in moved[there.first : there.end]} == {span.run[:2]}
        for received in (True, False):
            kept = [each.place for each in moved if (each.op.kind == "send" and not each.inputs) is received]
            assert all(a < b for a, b in pairwise(kept))
        assert all(moved.index(each) <= i for i, each in enumerate(ops) if each.op.kind == "send" and not each.inputs)


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize("shape", one_in(3, list(SHAPES)))
def test_derived_gradients_equal_autograd(shape: str) -> None:
    import torch

    network = Network.of(build_shape(shape))
    whole = plan_network(network, SIZE)
    given = {p.name: numbers(p.name, whole.program.types[value].shape) for value, p in whole.piece_of.items()}
    tensors = {name: torch.tensor(array, requires_grad=array.ndim > 0) for name, array in given.items()}
    made = dict[int, torch.Tensor]()
    total: torch.Tensor | float = 0.0
    for layer in network.layers:
        name = network.plan.blocks[layer].name
        first, first_bias, second, second_bias = (
            tensors[f"{part} of {name}"] for part in ("first weight", "first bias", "second weight", "second bias")
        )
        x = sum(made[before] for before in network.inputs[layer]) if network.inputs[layer] else tensors["input"]
        made[layer] = torch.tanh(x @ first + first_bias) @ second + second_bias
        if layer in network.sinks:
            total = total + ((made[layer] - tensors[f"target of {name}"]) ** 2).sum() / SIZE.samples
    assert isinstance(total, torch.Tensor)
    total.backward()
    found = {piece.name: array for piece, array in whole.run(given)}
    assert sum(float(array.sum()) for name, array in found.items() if name.startswith("loss")) == pytest.approx(
        total.item(), rel=1e-12
    )
    for layer in network.trained:
        for part in ("first weight", "first bias", "second weight", "second bias"):
            name = f"{part} of {network.plan.blocks[layer].name}"
            gradient = tensors[name].grad
            assert gradient is not None
            np.testing.assert_allclose(found[f"d.{name}"], gradient.numpy(), rtol=1e-10, atol=1e-12)
