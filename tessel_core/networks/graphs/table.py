"""Every family of networks by name, and the front door to their graphs."""

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

_OWN = {family.name: family for family in (GPT, LLAMA, MOE, VIT, CLIP, MT5, FLAVA, EVOFORMER, SWIN, RESNET, MLP)}
GRAPHS = Extended("tessel.networks", "network", GraphFamily, _OWN, check_family)
"""Every family by name, those of other packages last; forms, command line, samples and tests follow this table."""


def build_graph(family: str, spec: GraphSpec | None = None, name: str = "") -> OperatorGraph:
    """The graph of the family called `family`, named `name` or after it.

    Without training nothing is kept for a backward, and activation bytes are null.  Layers have the summed times of
    their operators on every known kind of device.

    >>> len(build_graph("mlp").operators)  # 8 products and 8 ReLUs
    16

    Raises InputError for an unknown family, an option out of range, sizes that do not fit together, or too many
    operators.
    """
    known = GRAPHS.find(family)
    spec = known.spec() if spec is None else spec
    check_options(spec)
    recomputes = spec.recompute != Recompute.NONE
    if not spec.training and (recomputes or spec.split_weights):
        raise InputError("Recomputation" if recomputes else "Split backward", "is for training, which is off")
    called = f"{name or family}{'-training' if spec.training else ''}"
    graph = graph_of(network_program(known.program, spec), called, spec.micro_batch)
    graph = replace(graph, network=_words(family, spec))
    return of_layers(graph, spec.dtype) if spec.granularity == LAYERS else graph


def training_graph(
    graph: OperatorGraph, *, recompute: Recompute = Recompute.NONE, split_weights: bool = False
) -> OperatorGraph:
    """The graph of the training of a network: derived from its program where the graph shows one, else by kinds.

    Raises InputError where the graph has backward operators already, a name is taken, or a graph without a program is
    to be recomputed selectively.
    """
    try:
        family, spec = network_of(graph)
    except InputError:  # of no known network, or changed by hand since
        if recompute == Recompute.SELECTIVE:
            why = "selective takes a network that the graph shows; this one shows none, so say full"
            raise InputError("recomputation", why) from None
        return with_backward(graph, recompute=recompute == Recompute.FULL, split_weights=split_weights)
    if spec.training:
        raise InputError(f"graph {graph.name}", "has backward operators already")
    asked = replace(spec, training=True, recompute=str(recompute), split_weights=split_weights)
    return build_graph(family.name, asked, graph.name)


def parameters_of(graph: OperatorGraph) -> int | None:
    """Numbers of all weights of the network that a graph shows, on all its devices; None where it shows none."""
    try:
        family, spec = network_of(graph)
    except InputError:
        return None
    model = family.program(replace(spec, tensor_parallel=1))
    weights = (value for value, piece in model.piece_of.items() if model.role_of(piece).weight)
    return sum(model.program.types[value].elements for value in weights)


def _words(family: str, spec: GraphSpec) -> str:
    """The family and the options that are not its defaults, as `network_of` reads them."""
    values = (
        (name, str(value).lower() if isinstance(value, bool) else value)
        for name, value in changed_options(spec).items()
    )
    return " ".join((family, *(f"{name}={value}" for name, value in values)))


def network_of(graph: OperatorGraph) -> tuple[GraphFamily, Any]:
    """The family and the spec of the network that a graph shows.

    Raises InputError for a graph that shows none, or that was changed since.
    """
    where = f"graph {graph.name}"
    if not graph.network:
        raise InputError(where, "does not say which network it shows, so no program follows from it")
    # Files from before there were several ways to recompute.
    graph = replace(graph, network=graph.network.replace("recompute=true", f"recompute={Recompute.FULL}"))
    name, *words = graph.network.split()
    family = GRAPHS.find(name)
    try:
        spec: Any = config_from(family.spec, dict(word.split("=", 1) for word in words))
    except ValueError:
        raise InputError(where, f"has no network of this form: {graph.network[:80]!r}") from None
    built = replace(build_graph(name, spec), name=graph.name)
    if built != graph and _timed_on(built, graph.kinds) != _timed_on(graph, built.kinds):
        raise InputError(where, f"was changed, so it does not show the network {name} any more")
    return family, spec


def _timed_on(graph: OperatorGraph, kinds: Collection[str]) -> OperatorGraph:
    """The graph without times on other kinds of devices: packages that are installed later may add kinds."""
    times = (tuple(each for each in operator.times if each.kind in kinds) for operator in graph.operators)
    operators = (replace(operator, times=kept) for operator, kept in zip(graph.operators, times, strict=True))
    return replace(graph, operators=tuple(operators))


def network_program(program: Callable[[Any], Distributed], spec: GraphSpec) -> Distributed:
    """The program of one micro-batch as a spec asks for it, without the optimizer's step; device 1 is the graph's."""
    model = with_attention(AttentionKernel(spec.attention), program(spec))
    if spec.training:
        model = recomputing(Recompute(spec.recompute), Gradients(split_weights=spec.split_weights)(model))
    return TensorParallel(spec.tensor_parallel)(model)


def of_layers(graph: OperatorGraph, dtype: str) -> OperatorGraph:
    """Layers as single operators, which take as long as their operators do on every known kind of device."""
    return by_layer(timed(graph, [kind.device(name) for name, kind in DEVICE_KINDS.items()], dtype))
