"""Networks as operator graphs: builders, the backward that a forward implies, layers as single operators."""

from tessel_core.networks.graphs.backward import with_backward
from tessel_core.networks.graphs.coarsen import by_layer
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec
from tessel_core.networks.graphs.table import GRAPHS, build_graph, of_layers

__all__ = ["GRAPHS", "GraphFamily", "GraphSpec", "build_graph", "by_layer", "of_layers", "with_backward"]
