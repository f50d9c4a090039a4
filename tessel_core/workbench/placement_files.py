"""Write the open placement to a file, and apply placements from files to the open graph and mesh."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tessel_core.costs.costed import CostOptions
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, PlacementFile, placement_text
from tessel_core.formats.graph_file import SplitFile, split_placement
from tessel_core.formats.placement_file import PlacementTerms, bound_placement
from tessel_core.model import LATENCY, THROUGHPUT, Placement, PlacementLoads, PlacementReport, StageLayout, Status
from tessel_core.model.layout import MAX_STAGES_PER_DEVICE, layout_of
from tessel_core.options import changed_options, config_from, search_options
from tessel_core.placement.problem import shared_graph
from tessel_core.workbench.messages.placement import SAME, broken_rules, known_bound, reach
from tessel_core.workbench.placing import ALL_OBJECTIVES, FOR_REPLICAS, Placing


def placement_file_text(placing: Placing) -> str:
    """Return the placement as a tessel-placement file with a report.

    Something must be placed. Raises InputError if the placement breaks a rule, because files hold only valid
    placements.
    """
    placement = placing.placement
    assert placing.graph is not None
    assert placement is not None
    broken = broken_rules(placing, placement)
    reached, bound = reach(placing, placement, PlacementLoads.of(placement)), known_bound(placing)
    if broken or reached is None:
        why = broken[0] if broken else "has subgraphs that wait for each other. Press Place to get valid ones"
        raise InputError("the placement", why)
    proved = bound is not None and reached <= bound * (1 + SAME)
    report = PlacementReport(
        status=Status.PROVED_OPTIMAL if proved else Status.FEASIBLE,
        solution=placement,
        objective_name=placing.objective,
        objective=Fraction(reached),
        bound=None if bound is None else Fraction(min(bound, reached)),
        wall_s=0.0 if placing.by_hand or placing.outcome is None else placing.outcome.wall_s,
        solver="expert" if placing.by_hand or placing.outcome is None else placing.outcome.placer,
    )
    return answer_text(placing, report)


def answer_text(placing: Placing, report: PlacementReport) -> str:
    """Return the placement of a report as a tessel-placement file. Report and graph must exist."""
    assert placing.graph is not None
    replicas = None if placing.replicas is None else search_options(placing.replicas)
    terms = PlacementTerms(placing.communication, _cost_options(placing), placing.pins, replicas)
    devices = placing.mesh if placing.on_mesh else placing.pool
    return placement_text(
        report, placing.graph, devices, terms, contiguous=placing.contiguous, branches_apart=placing.branches_apart
    )


def _cost_options(placing: Placing) -> dict[str, bool | int | float | str]:
    """Return the cost options that affect loads and memory. On a pool, only a changed number of micro-batches does."""
    if not placing.on_mesh:
        return {key: value for key, value in changed_options(placing.costs).items() if key == "micro_batches"}
    found = search_options(placing.costs)
    if placing.costs.tensor == 1:
        del found["tensor"]
    if isinstance(placing.costs.in_flight, int):
        del found["micro_batches"]  # A fixed number of micro-batches in flight does not depend on the number per step.
    return found


def with_placement(placing: Placing, kept: PlacementFile) -> Placing:
    """Return the placement of a file, with its devices, costs and pins.

    Values in the file's report are computed again. Raises InputError if the file belongs to another graph or mesh than
    the open ones, or does not fit them.
    """
    file = placing.graph
    if file is None or kept.graph != file.fingerprint:
        raise InputError("graph", "the placement belongs to another operator graph. Open that one first")
    placing = _on_its_devices(placing, kept)
    found = _bound(kept, file, placing)
    if kept.report is not None:
        if kept.report.objective_name not in ALL_OBJECTIVES:
            why = f"must be one of {', '.join(ALL_OBJECTIVES)}, got {kept.report.objective_name!r}"
            raise InputError("report.objective_name", why)
        placing = placing.wanting(
            kept.report.objective_name,
            contiguous=kept.report.contiguous,
            branches_apart=kept.report.branches_apart,
            layout=layout_of(found),
        )
    elif found.stages is not None:
        placing = placing.wanting(THROUGHPUT, contiguous=True, layout=layout_of(found))
    if found.stages is not None:
        _check_layout(placing.layout)
    replicas = None if kept.terms.replicas is None else config_from(ReplicaOptions, kept.terms.replicas)
    if replicas is not None and not placing.can_replicate:
        raise InputError("report.replicas", FOR_REPLICAS)
    placing = placing.replicating(replicas)
    alone = (0,) * len(found.assignment) if placing.objective == LATENCY else None
    placing = replace(placing, assignment=found.assignment, subgraphs=found.subgraphs or alone, stages=found.stages)
    return replace(placing, pins=kept.terms.allowances, by_hand=False, outcome=None)


def _check_layout(layout: StageLayout | None) -> None:
    if layout is None:
        raise InputError("stages", "form neither a loop nor a V over the devices")
    if layout.stages_per_device > MAX_STAGES_PER_DEVICE:
        raise InputError(
            "stages", f"must be at most {MAX_STAGES_PER_DEVICE} per device, got {layout.stages_per_device}"
        )


def _bound(kept: PlacementFile, file: GraphFile, placing: Placing) -> Placement:
    if not placing.on_mesh:
        return bound_placement(kept, file)
    graph, groups = shared_graph(file.graph, placing.mesh.mesh, placing.costs.tensor)
    return bound_placement(kept, replace(file, graph=graph), placing.mesh.mesh, placing.costs.held, groups)


def _on_its_devices(placing: Placing, kept: PlacementFile) -> Placing:
    costs = config_from(CostOptions, kept.terms.costs)
    if kept.mesh is None:
        pool = kept.pool or (placing.graph.pool if placing.graph is not None else None) or placing.pool
        return placing.with_devices(on_mesh=False, pool=pool).with_micro_batches(costs.micro_batches)
    if kept.mesh != placing.mesh.fingerprint:
        raise InputError("mesh", "the placement belongs to another device mesh. Open that one first")
    on_mesh = placing.with_devices(on_mesh=True, pool=placing.pool)
    return on_mesh.costing(costs, kept.terms.communication)


def with_split(placing: Placing, split: SplitFile) -> Placing:
    """Return the placement of a published split (an assignment of operators to devices).

    A known bound is kept if the problem stays the same. Raises InputError if no published graph is open, and if
    `split_placement` raises it.
    """
    file = placing.graph
    if file is None or file.pool is None:
        raise InputError("graph", "a published split belongs to a published graph. Open that one first")
    placing = placing.with_devices(on_mesh=False, pool=file.pool if placing.on_mesh else placing.pool)
    found = split_placement(split, file.graph, placing.pool)
    places = replace(placing, layout=None, assignment=found.assignment, stages=None)
    return replace(places, subgraphs=None, by_hand=True)
