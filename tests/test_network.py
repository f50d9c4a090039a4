"""Plans read as networks: each backward block belongs to a forward block, or the plan is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tessel_core.editing.plan import stages
from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.networks import SHAPES, build_shape
from tessel_core.networks.forms import NETWORKS, Terms, forms_of
from tessel_core.networks.programs.plan_layers import Network
from tessel_core.samples import list_samples, load_sample

FORWARD, BACKWARD, WEIGHT, OTHER = BlockKind
NONE = "belongs to no forward block on its devices, so it has no gradient to compute"


def named(plan: MicroBatchPlan, found: dict[int, tuple[int, ...]]) -> dict[str, list[str]]:
    return {plan.blocks[b].name: [plan.blocks[each].name for each in layers] for b, layers in found.items()}


def each(names: str, *devices: int) -> list[tuple[str, BlockKind, int]]:
    """Return blocks for `chain`. The first letter of a name is its kind."""
    kinds = {"F": FORWARD, "B": BACKWARD, "W": WEIGHT, "L": OTHER, "E": FORWARD}
    return [(name, kinds[name[0]], device) for name, device in zip(names.split(), devices, strict=True)]


def chain(*blocks: tuple[str, BlockKind, int], more: str = "") -> MicroBatchPlan:
    """Return a plan of blocks in a row, with further dependencies from text such as "F0 F2, B2 B0"."""
    names = [name for name, _, _ in blocks]
    arcs = [(a, b) for a, b in pairwise(names)] + [tuple(each.split()) for each in more.split(",") if each]
    devices = tuple(PlanDevice(f"gpu{d}") for d in range(1 + max(device for _, _, device in blocks)))
    made = tuple(Block(name, kind, (device,), 1) for name, kind, device in blocks)
    return MicroBatchPlan("chain", devices, made, tuple(Dependency(*arc) for arc in arcs))


@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize("devices", [2, 4, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_a_network(shape: str, devices: int, held: int) -> None:
    """Names of the shapes tell which backward block belongs to which forward block. Memory does not matter."""
    plan = build_shape(shape, replace(SHAPES[shape].defaults, devices=devices, memory=held))
    network = Network.of(plan)
    forward_of = {"Eb": "E", "Db": "D", "Jb": "J"}
    last_pass = "c" if shape == "alphafold" else ""
    for block, layers in (named(plan, network.backward) | named(plan, network.weight)).items():
        way, number = block.rstrip("0123456789"), block.lstrip("duBWtv")
        assert layers == [forward_of.get(block, f"{way[:-1]}F{number}{last_pass}")]
    kinds = [block.kind for block in plan.blocks]
    assert len(network.backward) == kinds.count(BACKWARD)
    assert len(network.weight) == kinds.count(WEIGHT)
    assert len(network.layers) == kinds.count(FORWARD)


def test_every_sample_and_form_is_a_network_of_the_plan_s_stages() -> None:
    """If memory links a forward block to one backward block, that one computes its gradient."""
    plans = [load_sample(sample.name) for sample in list_samples()]
    plans += [plan for name in NETWORKS for plan in forms_of(name, Terms(devices=4))[0].values()]
    for plan in plans:
        network = Network.of(plan)
        for stage in stages(plan):
            kinds = [plan.blocks[b].kind for b in stage]
            if kinds.count(FORWARD) == kinds.count(BACKWARD) == 1:
                layer, block = stage[kinds.index(FORWARD)], stage[kinds.index(BACKWARD)]
                assert network.backward[block] == (layer,), plan.name


def test_branches_joins_and_ways_past_blocks() -> None:
    plan = chain(*each("F0 F1 F2 B2 B1 B0", 0, 0, 1, 1, 0, 0), more="F0 F2,B2 B0")
    network = Network.of(plan)
    assert named(plan, network.backward) == {"B2": ["F2"], "B1": ["F1"], "B0": ["F0"]}
    assert network.inputs == {0: (), 1: (0,), 2: (1, 0)}
    assert [plan.arcs[a][:2] for a, carried in enumerate(network.carried) if carried] == [
        (0, 1), (1, 2), (3, 4), (4, 5), (0, 2), (3, 5),
    ]  # fmt: skip


def test_one_backward_block_runs_the_gradients_of_several_layers_on_its_device() -> None:
    fused = chain(*each("F0 F1 L B1 B0", 0, 1, 1, 1, 0))
    assert named(fused, Network.of(fused).backward) == {"B1": ["L", "F1"], "B0": ["F0"]}
    first = chain(*each("E F0 F1 B1 B0", 0, 0, 1, 1, 0))
    assert named(first, Network.of(first).backward) == {"B1": ["F1"], "B0": ["F0"]}
    assert [
        first.blocks[layer].name for layer in Network.of(first).layers if layer not in Network.of(first).trained
    ] == ["E"]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (chain(*each("B0 F0", 0, 0)), f"block B0: {NONE}"),
        (chain(*each("F0 B0", 0, 1)), f"block B0: {NONE}"),
        (chain(*each("F0 F1 B0", 0, 1, 0), more="F0 B0"), f"block B0: {NONE}"),
        (
            chain(*each("F0 W0", 0, 0)),
            "block W0: completes no backward blocks on its devices, but must complete exactly one",
        ),
        (chain(*each("F0 B0 W0 W1", 0, 0, 0, 0), more="B0 W1"), "block W0: completes B0, which W1 already completes"),
        (
            chain(*each("F0 F1 F2 B2 B1 B0", 0, 1, 2, 2, 1, 0), more="F0 F2"),
            "block F2: uses the output of F0, but no dependency from B2 to B0 returns the gradient",
        ),
    ],
    ids=lambda each: each.split(":")[0] if isinstance(each, str) else "",
)
def test_a_plan_without_a_network_is_one_sentence(plan: MicroBatchPlan, why: str) -> None:
    with pytest.raises(InputError) as raised:
        Network.of(plan)
    assert str(raised.value) == f"{why}, so the plan has no network; use --stand-ins to run any plan"
