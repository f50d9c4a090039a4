"""The table of all families of networks, and functions that build their graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tessel_core.costs.costed import timed
from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.errors import InputError
from tessel_core.extensions import Extended
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.attention import AttentionKernel, with_attention
from tessel_core.ir.transforms.checkpoint import Recompute, recomputing
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.model import OperatorGraph
from tessel_core.networks.evoformer_network import EVOFORMER
from tessel_core.networks.flava import FLAVA
from tessel_core.networks.gpt import GPT
from tessel_core.networks.graphs.backward import with_backward
from tessel_core.networks.graphs.coarsen import by_layer
from tessel_core.networks.graphs.spec import LAYERS, GraphFamily, GraphSpec, check_family
from tessel_core.networks.llama import LLAMA
from tessel_core.networks.mlp import MLP
from tessel_core.networks.moe import MOE
from tessel_core.networks.mt5 import MT5
from tessel_core.networks.program_graph import graph_of
from tessel_core.networks.resnet import RESNET
from tessel_core.networks.swin import SWIN
from tessel_core.networks.vit import CLIP, VIT
from tessel_core.options import changed_options, check_options, config_from

_FAMILIES = (
    GPT,
    LLAMA,
    MOE,
    VIT,
    CLIP,
    MT5,
    FLAVA,
    EVOFORMER,
    SWIN,
    RESNET,
    MLP,
)
"""Add a family of this package here."""
_OWN = {family.name: family for family in _FAMILIES}
GRAPHS = Extended("tessel.networks", "network", GraphFamily, _OWN, check_family)
"""All families by name. Families of other packages come last. Forms, command line, samples and tests use this table."""


def build_graph(family: str, spec: GraphSpec | None = None, name: str = "") -> OperatorGraph:
    """Build the operator graph of a network.

    Without training, operators have no activation bytes. With one operator per layer, times are summed for every known
    kind of device.

    >>> len(build_graph("mlp").operators)  # 8 products and 8 ReLUs
    16

    Parameters
    ----------
    family : str
        Name of a family in `GRAPHS`.
    spec : GraphSpec
        Sizes and options. By default those of the family.
    name : str
        Name of the graph. By default that of the family.

    Raises
    ------
    InputError
        For an unknown family, an option out of range, sizes that do not fit together, or too many operators.
    """
    known = GRAPHS.find(family)
    spec = known.spec() if spec is None else spec
    check_options(spec)
    recomputes = spec.recompute != Recompute.NONE
    if not spec.training and (recomputes or spec.split_weights):
        raise InputError("Recomputation" if recomputes else "Split backward", "needs training, which is off")
    called = f"{name or family}{'-training' if spec.training else ''}"
    graph = graph_of(network_program(known.program, spec), called, spec.micro_batch)
    graph = replace(graph, network=_network_text(family, spec))
    return of_layers(graph, spec.dtype) if spec.granularity == LAYERS else graph


def training_graph(
    graph: OperatorGraph, *, recompute: Recompute = Recompute.NONE, split_weights: bool = False
) -> OperatorGraph:
    """Return the training graph of a forward graph.

    If the graph shows a known network, its backward pass is derived from the program. Otherwise it is estimated from
    the kinds of operators.

    Raises InputError if the graph already has backward operators or a name is already used. Raises InputError for
    selective recomputation of a graph that shows no known network.
    """
    try:
        family, spec = network_of(graph)
    except InputError:  # The graph shows no known network, or was changed.
        if recompute == Recompute.SELECTIVE:
            why = "selective needs a graph of a known network; use full for this graph"
            raise InputError("recomputation", why) from None
        return with_backward(graph, recompute=recompute == Recompute.FULL, split_weights=split_weights)
    if spec.training:
        raise InputError(f"graph {graph.name}", "already has backward operators")
    asked = replace(spec, training=True, recompute=str(recompute), split_weights=split_weights)
    return build_graph(family.name, asked, graph.name)


def parameters_of(graph: OperatorGraph) -> int | None:
    """Return the number of parameters of the whole network that a graph shows. None if it shows no known network."""
    try:
        family, spec = network_of(graph)
    except InputError:
        return None
    model = family.program(replace(spec, tensor_parallel=1))
    weights = (value for value, piece in model.piece_of.items() if model.role_of(piece).weight)
    return sum(model.program.types[value].elements for value in weights)


def _network_text(family: str, spec: GraphSpec) -> str:
    """Return the family and its changed options as a text that `network_of` can parse."""
    values = (
        (name, str(value).lower() if isinstance(value, bool) else value)
        for name, value in changed_options(spec).items()
    )
    return " ".join((family, *(f"{name}={value}" for name, value in values)))


def network_of(graph: OperatorGraph) -> tuple[GraphFamily, Any]:
    """Return the family and the spec of the network that a graph shows.

    Raises InputError if the graph shows no known network, or was changed after it was built.
    """
    where = f"graph {graph.name}"
    if not graph.network:
        raise InputError(where, "does not name the network that it shows, so it has no program")
    # In older files, the option for recomputation is a boolean.
    graph = replace(graph, network=graph.network.replace("recompute=true", f"recompute={Recompute.FULL}"))
    name, *words = graph.network.split()
    family = GRAPHS.find(name)
    try:
        spec: Any = config_from(family.spec, dict(word.split("=", 1) for word in words))
    except ValueError:
        raise InputError(
            where, f"describes its network by a text that cannot be read: {graph.network[:80]!r}"
        ) from None
    built = replace(build_graph(name, spec), name=graph.name)
    if built != graph and _timed_on(built, graph.kinds) != _timed_on(graph, built.kinds):
        raise InputError(where, f"was changed, so it no longer shows the network {name}")
    return family, spec


def _timed_on(graph: OperatorGraph, kinds: Collection[str]) -> OperatorGraph:
    """Return the graph with times only for the given kinds of devices. Other packages may add further kinds."""
    times = (tuple(each for each in operator.times if each.kind in kinds) for operator in graph.operators)
    operators = (replace(operator, times=kept) for operator, kept in zip(graph.operators, times, strict=True))
    return replace(graph, operators=tuple(operators))


def network_program(program: Callable[[Any], Distributed], spec: GraphSpec) -> Distributed:
    """Build the program of one micro-batch, without an optimizer step. A graph shows device 1 of this program."""
    model = with_attention(AttentionKernel(spec.attention), program(spec))
    if spec.training:
        model = recomputing(Recompute(spec.recompute), Gradients(split_weights=spec.split_weights)(model))
    return TensorParallel(spec.tensor_parallel)(model)


def of_layers(graph: OperatorGraph, dtype: str) -> OperatorGraph:
    """Merge each layer into one operator, with times on every known kind of device."""
    return by_layer(timed(graph, [kind.device(name) for name, kind in DEVICE_KINDS.items()], dtype))
