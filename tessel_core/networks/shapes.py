"""The published placement shapes: what one micro-batch does when a network of that kind is spread over devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.model import MicroBatchPlan
from tessel_core.networks import shape_builders
from tessel_core.networks.chains import forward_half
from tessel_core.networks.shape_builders import ShapeParameters
from tessel_core.options import check_options

_TESSEL = "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One entry of the table of shapes.

    `build` may assume parameters in range and builds the training plan; `build_shape` is the front door.
    """

    name: str
    title: str
    description: str
    models: str
    """What kind of network has this shape."""
    source: str
    build: Callable[[ShapeParameters], MicroBatchPlan]
    defaults: ShapeParameters
    unused: tuple[str, ...] = ("chunks", "weight", "wide")
    """Fields of the parameters that this shape ignores."""


def build_shape(name: str, parameters: ShapeParameters | None = None) -> MicroBatchPlan:
    """The plan of the shape called `name`; without `training` its forward half, holding nothing.

    >>> [block.name for block in build_shape("m-shape", ShapeParameters(devices=2)).blocks]
    ['E', 'F0', 'F1', 'B1', 'B0', 'Eb']

    Raises
    ------
    InputError
        For an unknown shape, or a parameter that is out of range or does not suit the shape.
    """
    if name not in SHAPES:
        raise InputError("shape", f"{name!r} is not known, known are {', '.join(SHAPES)}")
    shape = SHAPES[name]
    parameters = shape.defaults if parameters is None else parameters
    check_options(parameters)
    plan = replace(shape.build(parameters), name=f"{name}-{parameters.devices}")
    return plan if parameters.training else forward_half(plan, f"{plan.name}-inference")


_SHAPES = (
    Shape(
        name="v-shape",
        title="V",
        description="Forward down the devices, backward up again.",
        models="A deep network cut into stages, such as a GPT whose stages weigh the same",
        source=_TESSEL,
        build=shape_builders.v_shape,
        defaults=ShapeParameters(),
    ),
    Shape(
        name="x-shape",
        title="X",
        description="Two independent V's in one micro-batch, one down and one up the devices.",
        models="Bidirectional pipelines such as Chimera: two copies of the model, laid out in opposite directions",
        source=_TESSEL,
        build=shape_builders.x_shape,
        defaults=ShapeParameters(),
    ),
    Shape(
        name="m-shape",
        title="M",
        description="A V between two blocks on all devices.",
        models="A GPT with a large vocabulary: its embedding is sharded over all devices, its layers are stages",
        source=_TESSEL,
        build=shape_builders.m_shape,
        defaults=ShapeParameters(capacity=6),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="nn-shape",
        title="NN",
        description="As M, with another all-device block in the middle of each chain, forward and backward.",
        models="An encoder and decoder with a large vocabulary, such as mT5: each half begins with a sharded embedding",
        source=_TESSEL,
        build=shape_builders.nn_shape,
        defaults=ShapeParameters(capacity=6),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="nn-eager",
        title="NN, eager",
        description="As NN, with both all-device forward blocks at the front and both backward ones at the end.",
        models="mT5 with both embeddings computed before the encoder begins",
        source=_TESSEL,
        build=shape_builders.nn_eager,
        defaults=ShapeParameters(capacity=5),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="k-shape",
        title="K",
        description="Two branches, each on half of the devices, that join in a block on all devices.",
        models="A network of two modalities, such as Flava: a text branch, a vision branch and a joint encoder",
        source=_TESSEL,
        build=shape_builders.k_shape,
        defaults=ShapeParameters(capacity=3),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="finetune",
        title="Finetune",
        description="A forward block on all devices, then a V.",
        models="Fine-tuning with a frozen sharded embedding: it has a forward and no backward",
        source=_TESSEL,
        build=shape_builders.finetune,
        defaults=ShapeParameters(backward=2, capacity=5),
        unused=("chunks", "weight"),
    ),
    Shape(
        name="alphafold",
        title="AlphaFold",
        description="Three forward passes over the devices, one after the other, then one backward.",
        models="Recycling as in AlphaFold 2: only the last pass keeps activations for the backward",
        source=_TESSEL,
        build=shape_builders.alphafold,
        defaults=ShapeParameters(backward=1, capacity=6),
    ),
    Shape(
        name="loop",
        title="Loop",
        description="Forward round the devices several times, a chunk of the network at each; backward in reverse.",
        models="A deep network cut into more stages than devices, so that its pipeline fills in shorter steps",
        source="Narayanan et al., Megatron-LM, SC 2021, arXiv 2104.04473",
        build=shape_builders.loop,
        defaults=ShapeParameters(backward=2, capacity=11),
        unused=("weight", "wide"),
    ),
    Shape(
        name="split-v",
        title="V, split backward",
        description="A V whose backward is split into an input half, which is urgent, and a weight half, which is not.",
        models="Zero-bubble pipelines",
        source="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, arXiv 2401.10241",
        build=shape_builders.split_v,
        defaults=ShapeParameters(backward=1),
        unused=("chunks", "wide"),
    ),
    Shape(
        name="split-x",
        title="X, split backward",
        description="As X, with every backward split into an urgent input half and a weight half that can wait.",
        models="Bidirectional pipelines such as DualPipe: two copies of the model, laid out in opposite directions",
        source="DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, arXiv 2412.19437",
        build=shape_builders.split_x,
        defaults=ShapeParameters(backward=1, capacity=5),
        unused=("chunks", "wide"),
    ),
    Shape(
        name="zb-v",
        title="ZB-V",
        description="Two chunks a device, down the devices and up again, each with a split backward.",
        models="Zero-bubble pipelines in a V: the first and the last chunk share a device",
        source="Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, arXiv 2405.15362",
        build=shape_builders.zb_v,
        defaults=ShapeParameters(backward=1, capacity=16),
        unused=("chunks", "wide"),
    ),
)

SHAPES: dict[str, Shape] = {shape.name: shape for shape in _SHAPES}
"""Every shape by name; forms, samples and tests follow this table."""
