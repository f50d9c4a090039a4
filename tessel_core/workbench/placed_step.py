"""Build the program of the open placement, with operations in the order of a schedule."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.update import AdamUpdate
from tessel_core.model import OperatorGraph, Placement, Schedule
from tessel_core.planning.placed_program import placed_program
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.planning import halves_source, plan_source


def shows_placement(placing: Placing, source: str) -> bool:
    """Return whether the plan from `source` was made from the open placement of a network on a mesh."""
    if placing.graph is None or not placing.on_mesh or not placing.graph.graph.network or placing.assignment is None:
        return False
    return source in (plan_source(placing), halves_source(placing))


def samples_of(graph: OperatorGraph, schedule: Schedule) -> int:
    """Return the number of samples per step."""
    return graph.batch_size * schedule.micro_batches


def placed_step(graph: OperatorGraph, placement: Placement, schedule: Schedule) -> Distributed:
    """Return the program of one step of a placed and scheduled network.

    A training step ends with Adam's update. Raises InputError if graph or placement have changed since the schedule's
    plan was made, or if no program can be built from them.
    """
    from tessel_core.networks.graphs.table import network_of, network_program

    family, spec = network_of(graph)
    if placement.transfers.groups is not None:
        spec = replace(spec, tensor_parallel=placement.transfers.groups.size)

    def of_one_micro_batch(split: bool) -> Distributed:
        return network_program(family.program, replace(spec, split_weights=split or spec.split_weights))

    found = placed_program(of_one_micro_batch, placement, schedule)
    return AdamUpdate()(found) if spec.training else found
