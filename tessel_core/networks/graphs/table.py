"""Every family of networks by name, and the front door to their graphs."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.costs.costed import timed
from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.errors import InputError, find
from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.backward import with_backward
from tessel_core.networks.graphs.coarsen import by_layer
from tessel_core.networks.graphs.evoformer import EVOFORMER
from tessel_core.networks.graphs.flava import FLAVA
from tessel_core.networks.graphs.gpt import GPT
from tessel_core.networks.graphs.mlp import MLP
from tessel_core.networks.graphs.mt5 import MT5
from tessel_core.networks.graphs.resnet import RESNET
from tessel_core.networks.graphs.spec import LAYERS, GraphFamily, GraphSpec
from tessel_core.networks.graphs.swin import SWIN
from tessel_core.options import check_options

GRAPHS: dict[str, GraphFamily] = {family.name: family for family in (GPT, MT5, FLAVA, EVOFORMER, SWIN, RESNET, MLP)}
"""Forms, command line, samples and tests follow this table."""


def build_graph(family: str, spec: GraphSpec | None = None, name: str = "") -> OperatorGraph:
    """The graph of the family called `family`, named `name` or after it.

    Without training nothing is kept for a backward, and activation bytes are null.  Layers have the summed times of
    their operators on every known kind of device.

    >>> len(build_graph("mlp").operators)  # 8 products, 7 ReLUs
    15

    Raises InputError for an unknown family, an option out of range, sizes that do not fit together, or too many
    operators.
    """
    known = find(GRAPHS, family, "network")
    spec = known.spec() if spec is None else spec
    check_options(spec)
    graph = replace(known.forward(spec), name=name or family)
    if spec.training:
        graph = with_backward(graph, recompute=spec.recompute, split_weights=spec.split_weights)
    elif spec.recompute or spec.split_weights:
        raise InputError("Recomputation" if spec.recompute else "Split backward", "is for training, which is off")
    else:
        graph = replace(graph, operators=tuple(replace(each, activation_bytes=None) for each in graph.operators))
    return of_layers(graph, spec.dtype) if spec.granularity == LAYERS else graph


def of_layers(graph: OperatorGraph, dtype: str) -> OperatorGraph:
    """Layers as single operators, which take as long as their operators do on every known kind of device."""
    return by_layer(timed(graph, [kind.device(name) for name, kind in DEVICE_KINDS.items()], dtype))
