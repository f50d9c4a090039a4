"""A recommended strategy on other pages: its program, its placement, and its stages in a comparison."""

from __future__ import annotations

import pytest

from tessel_core.costs.meshes import uniform_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import LayoutShape
from tessel_core.networks.graphs.table import network_of
from tessel_core.placement.problem import shared_graph
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.recommendation import Question
from tessel_core.strategies.strategy import Strategy, simulate_places
from tessel_core.workbench.recommended import placement_note, strategy_placing, strategy_program, why_not_placed

MESH = uniform_mesh("h100", 2, 8)


def question(name: str, batch: int, **sizes: int) -> Question:
    """Ask about a small network in training on 16 GPUs."""
    found = preset_network(name)
    assert found is not None
    family, said = found
    return Question(family, family.spec(**{**said, **sizes, "batch": batch, "dtype": "bf16"}), MESH)


def test_a_short_program_has_all_devices_and_micro_batches() -> None:
    asked, strategy = question("gpt2-small", 16, layers=4), Strategy(4, 2, 2, 4, "1f1b")
    found = strategy_program(asked, strategy)
    assert found.trace.devices == tuple(range(1, 17))
    assert found.ranks is not None
    assert (found.samples, found.notes) == (16, (f"{strategy.summary}.",))


def test_a_long_program_has_one_device_for_each_place() -> None:
    """It is the simulation of the same stages with fewer micro-batches of the same size."""
    asked, strategy = question("gpt2-small", 64, layers=4), Strategy(4, 2, 2, 16, "1f1b")
    found = strategy_program(asked, strategy, max_operations=600)
    assert found.trace.devices == (1, 2)
    assert found.ranks is None
    assert [device.name for device in found.mesh.devices] == [MESH.devices[i].name for i in (0, 8)]
    kept = found.samples // 4
    assert 2 <= kept < 16
    short = Strategy(4, 2, 2, kept, "1f1b")
    spec = asked.family.with_batch(asked.spec, found.samples)
    assert found.trace.latency == simulate_places(asked.family, spec, short, MESH).latency
    assert any(f"{kept} of the 16 micro-batches" in note for note in found.notes)


@pytest.mark.parametrize("name", ["gpt2-small", "llama-3-8b", "mixtral-8x7b"])
def test_a_placement_has_the_network_and_the_groups_of_one_replica(name: str) -> None:
    asked = question(name, 32, layers=4, sequence=512)
    strategy = Strategy(2, 2, 4, 8, "gpipe", recompute=Recompute.FULL)
    placing = strategy_placing(asked, strategy, name)
    assert placing.graph is not None
    family, spec = network_of(placing.graph.graph)
    assert family.name == asked.family.name
    assert (spec.micro_batch, spec.layers, spec.sequence) == (2, 4, 512)
    assert (spec.training, spec.recompute) == (True, "full")
    assert (placing.costs.micro_batches, placing.costs.in_flight, placing.costs.tensor) == (8, "gpipe", 2)
    assert [device.name for device in placing.devices] == ["gpu0..gpu1", "gpu4..gpu5", "gpu8..gpu9", "gpu12..gpu13"]
    assert shared_graph(placing.graph.graph, placing.mesh.mesh, 2)[0].operators


def test_several_stages_per_device_are_a_loop() -> None:
    asked = question("gpt2-small", 8, layers=8)
    placing = strategy_placing(asked, Strategy(1, 1, 4, 8, "interleaved", stages_per_device=2), "small")
    assert placing.layout is not None
    assert (placing.layout.stages_per_device, placing.layout.shape) == (2, LayoutShape.LOOP)


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (Strategy(8, 2, zero=3), "one stage"),
        (Strategy(1, 1, 4, 4, "1f1b", context=4), "context"),
        (Strategy(4, 1, 4, 4, "1f1b", expert=4), "expert"),
    ],
)
def test_what_a_placement_cannot_be_has_a_reason(strategy: Strategy, why: str) -> None:
    assert why in why_not_placed(strategy)
    with pytest.raises(InputError, match=why):
        strategy_placing(question("gpt2-small", 32, layers=4), strategy, "small")


def test_what_a_placement_leaves_out_is_named() -> None:
    strategy = Strategy(2, 2, 4, 8, "1f1b", zero=1, sequence_parallel=True)
    assert placement_note(strategy) == (
        "Placement shows one of the 2 replicas and leaves out ZeRO-1 and sequence parallelism, "
        "so memory may not suffice."
    )
    assert placement_note(Strategy(1, 1, 4, 4)) == ""
