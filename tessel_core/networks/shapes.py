"""Published placement shapes.

A shape is the set of blocks of one micro-batch when a kind of network is spread over devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tessel_core.errors import InputError, find
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.options import Option, check_options, option

Chain = tuple[Block, ...]
"""Blocks that run one after the other. Several chains of a shape may contain the same block."""

_MAX_AMOUNT = 1_000_000


@dataclass(frozen=True, slots=True)
class ShapeParameters:
    """Parameters of all shapes. A shape ignores those that `Shape.unused` names."""

    devices: int = option(4, Option("Devices", "Number of devices over which the network is spread.", 2, 256))
    chunks: int = option(
        2,
        Option(
            "Chunks per device",
            "Number of stages on each device. A micro-batch visits each device this many times.",
            2,
            16,
        ),
    )
    forward: int = option(1, Option("Forward time", "Duration of one stage's forward block.", 1, _MAX_AMOUNT, "steps"))
    backward: int = option(
        3,
        Option(
            "Backward time",
            "Duration of one stage's backward block. If backward passes are split, of its input-gradient block.",
            1,
            _MAX_AMOUNT,
            "steps",
        ),
    )
    weight: int = option(
        1,
        Option(
            "Weight time", "Duration of the weight-gradient block of a split backward pass.", 1, _MAX_AMOUNT, "steps"
        ),
    )
    wide: int = option(1, Option("All-device time", "Duration of each block on all devices.", 1, _MAX_AMOUNT, "steps"))
    memory: int = option(
        1,
        Option(
            "Memory per micro-batch",
            "Memory that one micro-batch holds on each stage between its forward and its backward block.",
            0,
            _MAX_AMOUNT,
            "slots",
        ),
    )
    capacity: int = option(4, Option("Memory capacity", "Memory of each device.", 0, _MAX_AMOUNT, "slots"))
    training: bool = option(True, Option("Training", "Add backward blocks. Without them, blocks hold no memory.", 0, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A placement shape. `build_shape` builds its micro-batch plan."""

    name: str
    title: str
    description: str
    models: str
    """Kind of network that is pipelined in this way."""
    source: str = "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269"
    chains: Callable[[ShapeParameters], tuple[Chain, ...]]
    """Returns the chains of blocks in training, from which all dependencies follow. The parameters must be in range."""
    defaults: ShapeParameters = ShapeParameters()
    unused: tuple[str, ...] = ("chunks", "weight", "wide")
    """Names of the parameters that this shape ignores."""


def build_shape(name: str, parameters: ShapeParameters | None = None) -> MicroBatchPlan:
    """Build the plan of a shape. Without `training`, it has only the forward blocks, which hold no memory.

    >>> [block.name for block in build_shape("m-shape", ShapeParameters(devices=2)).blocks]
    ['E', 'F0', 'F1', 'B1', 'B0', 'Eb']

    Raises InputError for an unknown shape, or a parameter that is out of range or does not suit the shape.
    """
    shape = find(SHAPES, name, "shape")
    parameters = shape.defaults if parameters is None else parameters
    check_options(parameters)
    chains = shape.chains(parameters)
    devices = tuple(PlanDevice(f"gpu{d}", parameters.capacity) for d in range(parameters.devices))
    blocks = dict.fromkeys(block for chain in chains for block in chain)
    links = dict.fromkeys((before.name, after.name) for chain in chains for before, after in pairwise(chain))
    plan = MicroBatchPlan(f"{name}-{len(devices)}", devices, tuple(blocks), tuple(Dependency(*link) for link in links))
    return plan if parameters.training else forward_half(plan, f"{plan.name}-inference")


def forward_half(plan: MicroBatchPlan, name: str) -> MicroBatchPlan:
    """Return the plan for inference. It has only the forward blocks, without memory [Lin 2024, section VI-B]."""
    blocks = tuple(replace(block, memory=0) for block in plan.blocks if block.kind is BlockKind.FORWARD)
    names = {block.name for block in blocks}
    links = tuple(dep for dep in plan.dependencies if dep.predecessor in names and dep.successor in names)
    return replace(plan, name=name, blocks=blocks, dependencies=links)


def _stages(kind: BlockKind, devices: Sequence[int], duration: int, memory: int, direction: str) -> Chain:
    """Return one block per entry of `devices`, named by direction, kind and stage."""
    name = f"{direction}{kind[0].upper()}"
    return tuple(Block(f"{name}{stage}", kind, (device,), duration, memory) for stage, device in enumerate(devices))


def _forward(parameters: ShapeParameters, devices: Sequence[int], direction: str = "") -> Chain:
    return _stages(BlockKind.FORWARD, devices, parameters.forward, parameters.memory, direction)


def _backward(parameters: ShapeParameters, devices: Sequence[int], direction: str = "") -> Chain:
    """Return the backward blocks for the stages of `_forward`, last stage first."""
    return _stages(BlockKind.BACKWARD, devices, parameters.backward, -parameters.memory, direction)[::-1]


def _wide(parameters: ShapeParameters, name: str, memory: int = 0) -> tuple[Chain, Chain]:
    """Return a forward and a backward block on all devices, each as a chain.

    The forward block acquires `memory` and the backward block releases it.
    """
    devices = tuple(range(parameters.devices))
    forward = Block(name, BlockKind.FORWARD, devices, parameters.wide, memory)
    return (forward,), (Block(f"{name}b", BlockKind.BACKWARD, devices, parameters.wide, -memory),)


def _v(parameters: ShapeParameters, devices: Sequence[int], direction: str = "") -> Chain:
    return _forward(parameters, devices, direction) + _backward(parameters, devices, direction)


def _x_shape(parameters: ShapeParameters) -> tuple[Chain, ...]:
    down = range(parameters.devices)
    return _v(parameters, down, "d"), _v(parameters, down[::-1], "u")


def _m_shape(parameters: ShapeParameters) -> tuple[Chain, ...]:
    embed, embed_back = _wide(parameters, "E")
    return (embed + _v(parameters, range(parameters.devices)) + embed_back,)


def _nn_shape(parameters: ShapeParameters) -> tuple[Chain, ...]:
    """Return the chain of the NN shape.

    The decoder's embedding comes after n // 2 forward stages. Its backward block comes after n - n // 2 backward
    stages.
    """
    devices, encoder = range(parameters.devices), parameters.devices // 2
    forward, backward = _forward(parameters, devices), _backward(parameters, devices)
    decoder = parameters.devices - encoder
    (embed, embed_back), (decode, decode_back) = _wide(parameters, "E"), _wide(parameters, "D")
    forward = embed + forward[:encoder] + decode + forward[encoder:]
    return (forward + backward[:decoder] + decode_back + backward[decoder:] + embed_back,)


def _nn_eager(parameters: ShapeParameters) -> tuple[Chain, ...]:
    (embed, embed_back), (decode, decode_back) = _wide(parameters, "E"), _wide(parameters, "D")
    return (embed + decode + _v(parameters, range(parameters.devices)) + decode_back + embed_back,)


def _k_shape(parameters: ShapeParameters) -> tuple[Chain, ...]:
    """Return two branches, each a V on half of the devices. Blocks on all devices join them.

    Raises InputError for an odd number of devices.
    """
    if parameters.devices % 2:
        why = f"the K shape has two equal branches, so it needs an even number, got {parameters.devices}"
        raise InputError("Devices", why)
    half = parameters.devices // 2
    join, join_back = _wide(parameters, "J", parameters.memory)
    branches = (("t", range(half)), ("v", range(half, parameters.devices)))
    return tuple(
        _forward(parameters, devices, branch) + join + join_back + _backward(parameters, devices, branch)
        for branch, devices in branches
    )


def _finetune(parameters: ShapeParameters) -> tuple[Chain, ...]:
    frozen, _ = _wide(parameters, "E")
    return (frozen + _v(parameters, range(parameters.devices)),)


def _alphafold(parameters: ShapeParameters) -> tuple[Chain, ...]:
    """Return the forward passes a, b and c over all stages, and a backward pass. Only pass c holds memory."""
    devices = range(parameters.devices)
    passes: Chain = ()
    for letter in "abc":
        stages = _forward(replace(parameters, memory=parameters.memory if letter == "c" else 0), devices)
        passes += tuple(replace(block, name=f"{block.name}{letter}") for block in stages)
    return (passes + _backward(parameters, devices),)


def _split_x(parameters: ShapeParameters) -> tuple[Chain, ...]:
    """Return the chains of an X with split backward passes. Only the weight-gradient blocks release memory."""
    down = range(parameters.devices)
    return (
        *_split(parameters, down, 0, parameters.memory, "d"),
        *_split(parameters, down[::-1], 0, parameters.memory, "u"),
    )


def _zb_v(parameters: ShapeParameters) -> tuple[Chain, ...]:
    """Return two stages per device: down the devices, then up again.

    The block for input gradients and the block for weight gradients each release one unit of memory per micro-batch.
    """
    down = tuple(range(parameters.devices))
    return _split(parameters, down + down[::-1], parameters.memory, parameters.memory)


def _split(
    parameters: ShapeParameters, devices: Sequence[int], by_input: int, by_weight: int, direction: str = ""
) -> tuple[Chain, ...]:
    """Return one stage per entry of `devices` with a split backward pass.

    Block B releases `by_input`, and block W releases `by_weight` units of memory.
    """
    forward = _stages(BlockKind.FORWARD, devices, parameters.forward, by_input + by_weight, direction)
    backward = _stages(BlockKind.BACKWARD, devices, parameters.backward, -by_input, direction)
    weight = _stages(BlockKind.WEIGHT, devices, parameters.weight, -by_weight, direction)
    return (forward + backward[::-1], *zip(backward, weight, strict=True))


_SHAPES = (
    Shape(
        name="v-shape",
        title="V",
        description="Forward down the devices, backward up again.",
        models="A deep network cut into stages, such as a GPT whose stages all take the same time",
        chains=lambda parameters: (_v(parameters, range(parameters.devices)),),
    ),
    Shape(
        name="x-shape",
        title="X",
        description="Two independent V's in one micro-batch, one down and one up the devices.",
        models="Bidirectional pipelines such as Chimera: two copies of the model, laid out in opposite directions",
        chains=_x_shape,
    ),
    Shape(
        name="m-shape",
        title="M",
        description="A V between two blocks on all devices.",
        models="A GPT with a large vocabulary: its embedding is sharded over all devices, its layers are stages",
        chains=_m_shape,
        defaults=ShapeParameters(capacity=6),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="nn-shape",
        title="NN",
        description="Like M, with another all-device block in the middle of the forward and of the backward chain.",
        models="An encoder and decoder with a large vocabulary, such as mT5: each half begins with a sharded embedding",
        chains=_nn_shape,
        defaults=ShapeParameters(capacity=6),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="nn-eager",
        title="NN, eager",
        description="Like NN, with both all-device forward blocks at the start and both backward ones at the end.",
        models="mT5 with both embeddings computed before the encoder begins",
        chains=_nn_eager,
        defaults=ShapeParameters(capacity=5),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="k-shape",
        title="K",
        description="Two branches, each on half of the devices, that join in a block on all devices.",
        models="A network of two modalities, such as Flava: a text branch, a vision branch and a joint encoder",
        chains=_k_shape,
        defaults=ShapeParameters(capacity=3),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="finetune",
        title="Finetune",
        description="A forward block on all devices, then a V.",
        models="Fine-tuning with a frozen sharded embedding: it has a forward block but no backward block",
        chains=_finetune,
        defaults=ShapeParameters(backward=2, capacity=5),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="alphafold",
        title="AlphaFold",
        description="Three forward passes over the devices, one after the other, then one backward pass.",
        models="Recycling as in AlphaFold 2: only the last pass keeps activations for the backward pass",
        chains=_alphafold,
        defaults=ShapeParameters(backward=1, capacity=6),
    ),
    Shape(
        name="loop",
        title="Loop",
        description="Several rounds over the devices, one part of the network per device and round. Then backward.",
        models="A deep network cut into more stages than devices, so that its pipeline fills in shorter steps",
        source="Narayanan et al., Megatron-LM, SC 2021, arXiv 2104.04473",
        # Stage s is on device s mod n, so each device has one stage per round.
        chains=lambda parameters: (_v(parameters, tuple(range(parameters.devices)) * parameters.chunks),),
        defaults=ShapeParameters(backward=2, capacity=11),
        unused=("weight", "wide"),
    ),
    Shape(
        name="split-v",
        title="V, split backward",
        description="A V with split backward passes. Input gradients are urgent, and weight gradients can wait.",
        models="Zero-bubble pipelines",
        source="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, arXiv 2401.10241",
        chains=lambda parameters: _split(parameters, range(parameters.devices), 0, parameters.memory),
        defaults=ShapeParameters(backward=1),
        unused=("chunks", "wide"),
    ),
    Shape(
        name="split-x",
        title="X, split backward",
        description="Like X, with split backward passes. Input gradients are urgent, and weight gradients can wait.",
        models="Bidirectional pipelines such as DualPipe: two copies of the model, laid out in opposite directions",
        source="DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, arXiv 2412.19437",
        chains=_split_x,
        defaults=ShapeParameters(backward=1, capacity=5),
        unused=("chunks", "wide"),
    ),
    Shape(
        name="zb-v",
        title="ZB-V",
        description="Two chunks per device, down the devices and up again, each with a split backward.",
        models="Zero-bubble pipelines in a V: the first and the last chunk share a device",
        source="Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, arXiv 2405.15362",
        chains=_zb_v,
        defaults=ShapeParameters(backward=1, capacity=16),
        unused=("chunks", "wide"),
    ),
)

SHAPES: dict[str, Shape] = {shape.name: shape for shape in _SHAPES}
"""All shapes by name. Forms, samples and tests use this table."""
