"""How long a distributed program takes and what its devices hold."""

from tessel_core.simulation.distir import DistIrCosts
from tessel_core.simulation.mesh_costs import MeshCosts
from tessel_core.simulation.problem import Costs
from tessel_core.simulation.rendezvous import simulate_in_order
from tessel_core.simulation.streams import simulate_streams
from tessel_core.simulation.trace import Trace

__all__ = ["Costs", "DistIrCosts", "MeshCosts", "Trace", "simulate_in_order", "simulate_streams"]
