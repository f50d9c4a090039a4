"""Every network that is written as a program, at tiny sizes: gradients, recomputation and tensor parallelism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.gradients import check_gradients
from helpers.programs import same_meaning

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.operator import NUMPY_TYPES, Array
from tessel_core.ir.transforms.checkpoint import Checkpoint
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.verify import verify
from tessel_core.networks.graphs.spec import GraphSpec
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.networks.resnet import ResNetSpec, resnet
from tessel_core.networks.swin import SwinSpec, swin

SIZES = {
    "gpt": {"layers": 2, "hidden": 8, "heads": 2, "sequence": 3, "positions": 4, "vocabulary": 7},
    "mt5": {
        "layers": 2,
        "hidden": 8,
        "heads": 2,
        "head_size": 3,
        "inner": 6,
        "sequence": 4,
        "outputs": 3,
        "vocabulary": 7,
    },
    "flava": {
        "hidden": 4,
        "heads": 2,
        "layers": 1,
        "joint_layers": 2,
        "sequence": 3,
        "image": 4,
        "patch": 2,
        "vocabulary": 5,
    },
    "resnet": {"image": 16, "classes": 4},
    "swin": {"image": 16, "channels": 4, "window": 2, "classes": 4},
    "mlp": {"layers": 3, "width": 6},
}
"""Options below those that forms allow, so that finite differences take seconds."""
every_network = pytest.mark.parametrize("family", SIZES)


def tiny(family: str, **changes: object) -> GraphSpec:
    """Two samples in float64, which no form offers."""
    sizes = {"micro_batch": 2, "dtype": "fp64", "training": True, **SIZES[family], **changes}
    spec: GraphSpec = GRAPHS[family].spec(**sizes)
    return spec


def forward(family: str, **changes: object) -> Distributed:
    spec = tiny(family, **changes)
    # Of two stages, where those of published depths have four, and of smaller heads.
    if isinstance(spec, ResNetSpec):
        return resnet(spec, (2, 1))
    if isinstance(spec, SwinSpec):
        return swin(spec, (2, 1), 2)
    program = GRAPHS[family].program
    assert program is not None
    return program(spec)


def inputs(model: Distributed, seed: int) -> dict[str, Array]:
    """Row numbers below 2, which every table has, a batch of 2, scales about 1, and other numbers about 0."""
    draw, found = np.random.default_rng(seed), dict[str, Array]()
    for value, piece in model.piece_of.items():
        kind, middle = model.program.types[value], 1.0 if piece.name.endswith("scale") else 0.0
        whole = np.asarray(draw.integers(0, 2, kind.shape)) if kind.shape else np.array(2)
        found[piece.name] = whole if kind.dtype.startswith("int") else draw.normal(middle, 0.4, kind.shape)
        found[piece.name] = found[piece.name].astype(NUMPY_TYPES[kind.dtype])
    return found


def test_every_family_is_tried() -> None:
    assert SIZES.keys() == {name for name, family in GRAPHS.items() if family.program}


@every_network
def test_gradients_are_finite_differences(family: str) -> None:
    """Of each weight, in some direction."""
    model = forward(family)
    verify(model.program)
    check_gradients(model, inputs(model, 3))


@every_network
def test_without_training_a_network_has_no_targets(family: str) -> None:
    model = forward(family, training=False)
    verify(model.program)
    assert {piece.name for piece in model.inputs} < {piece.name for piece in forward(family).inputs}
    assert not any(op.kind in ("loss", "cross_entropy") for op in model.program.ops)


@every_network
def test_splitting_recomputing_and_sharing_mean_the_same(family: str) -> None:
    model = forward(family)
    given, whole = inputs(model, 5), Gradients()(model)
    split = Gradients(split_weights=True)(model)
    for changed in (split, Checkpoint()(whole), Checkpoint()(split)):
        same_meaning(whole, changed, given, 1e-9)
        same_meaning(whole, TensorParallel(2)(changed), given, 1e-9)


@every_network
def test_weights_are_called_once(family: str) -> None:
    """Options of the form reach the program: a larger micro-batch has as many weights."""
    one, two = (forward(family, micro_batch=size) for size in (2, 4))
    names = [[piece.name for piece in model.inputs] for model in (one, two)]
    assert names[0] == names[1]
    assert len(set(names[0])) == len(names[0])


@pytest.mark.parametrize("family", [name for name in SIZES if name != "mlp"])
def test_operators_that_a_spec_changes_keep_their_names(family: str) -> None:
    """Training adds losses and backward operators to those of inference."""
    spec = replace(GRAPHS[family].spec(), training=True)
    training, inference = (set(build_graph(family, each).names) for each in (spec, replace(spec, training=False)))
    assert inference < training
