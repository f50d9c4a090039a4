"""Public functions of the library: load, place, schedule, simulate and export.

`import tessel_core` exposes them and imports this module on first use.  The functions look solvers up in the same
tables as the command line and the app, so solvers of other packages work here too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tessel_core.costs.costed import CostOptions
from tessel_core.costs.meshes import MESHES, find_mesh, kind_and_count
from tessel_core.errors import InputError
from tessel_core.exports import export_for, find_export
from tessel_core.exports.simulation_files import simulation_export_for
from tessel_core.formats import GraphFile, MeshFile, ScheduleFile, write_file
from tessel_core.formats.files import contents_of, read_any, refused
from tessel_core.model import (
    THROUGHPUT,
    DeviceMesh,
    DevicePool,
    MicroBatchPlan,
    OperatorGraph,
    Placement,
    PlacementReport,
    Schedule,
    ScheduleReport,
)
from tessel_core.networks.graphs.files import with_graph
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.options import config_from
from tessel_core.placement import default_placer, find_placer, solve_placement
from tessel_core.placement.problem import placement_problem
from tessel_core.planning import plan_of
from tessel_core.samples import list_meshes, load_mesh, sample_or_file
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler, solve_schedule
from tessel_core.scheduling.reports import evaluate
from tessel_core.strategies.families import find_family
from tessel_core.strategies.strategy import Simulated, Strategy, simulate_strategy

__all__ = ["Strategy", "export", "load", "place", "schedule", "simulate"]

_SOLVER_NAME = "own"
"""Solver name in the report of a schedule that was passed without one."""


def load(name: str | Path) -> MicroBatchPlan | OperatorGraph | DeviceMesh | Schedule:
    """Open a sample, a mesh, a network or a file.

    Parameters
    ----------
    name : str or Path
        A sample's name, a mesh such as `h100-64`, a family or a preset of networks, or a file that `tessel check`
        reads.

    Returns
    -------
    MicroBatchPlan, OperatorGraph, DeviceMesh or Schedule
        The object that the name or file describes.

    Raises
    ------
    InputError
        If the name is unknown, the file cannot be read, or the file holds another kind of object.

    Examples
    --------
    >>> load("v-shape-4").busiest_work
    4
    >>> len(load("h100-64").devices)
    64
    """
    text = str(name)
    if text in {sample.name for sample in list_meshes()}:
        return load_mesh(text)
    if not Path(text).exists():
        if text in MESHES or kind_and_count(text)[0] is not None:
            return find_mesh(text)
        family = next((each for each in GRAPHS.values() if text == each.name or text in each.presets), None)
        if family is not None:
            return build_graph(family.name, family.presets.get(text), text)
    return _read(sample_or_file(text))


def _read(path: Path) -> MicroBatchPlan | OperatorGraph | DeviceMesh | Schedule:
    parsed = with_graph(read_any(path))
    if isinstance(parsed, GraphFile):
        return parsed.graph
    if isinstance(parsed, MeshFile):
        return parsed.mesh
    contents = contents_of(parsed, str(path))
    if isinstance(contents, MicroBatchPlan):
        return contents
    if isinstance(contents, ScheduleFile):
        return contents.schedule
    raise refused(parsed, str(path), "a plan, a graph, a mesh or a schedule")


def place(
    graph: OperatorGraph,
    devices: DeviceMesh | str | int,
    placer: str = "",
    *,
    objective: str = THROUGHPUT,
    contiguous: bool = True,
    dtype: str = "bf16",
    optimizer: str = "adam-mixed",
    **options: Any,
) -> PlacementReport:
    """Place the operators of a graph on devices.

    Parameters
    ----------
    graph : OperatorGraph
        The network.
    devices : DeviceMesh, str or int
        A mesh, its name, or a number of equal accelerators.  A number uses the times stored in the graph.
    placer : str
        A name from `tessel_core.placement.PLACERS`.  By default `default_placer` chooses one for the problem.
    objective : str
        `throughput`, `forward-backward` or `latency`.
    contiguous : bool
        Whether each device runs a contiguous part of the graph, so that tensors never flow back to it.
    dtype, optimizer : str
        Number format for costs on a mesh, and the optimizer whose state is stored with the weights in training.
    **options
        Options of the placer, such as `time_limit` in seconds and `seed`.

    Returns
    -------
    PlacementReport
        The placement, its objective and its bound in the graph's time unit.

    Raises
    ------
    InputError
        If a name or an option is unknown, or operator times cannot be derived.
    """
    given = find_mesh(devices) if isinstance(devices, str) else devices
    where = DevicePool(given) if isinstance(given, int) else given
    costs = CostOptions(dtype=dtype, optimizer=optimizer)
    problem = placement_problem(graph, where, costs, objective=objective, contiguous=contiguous)
    name = placer or default_placer(problem)
    config: Any = config_from(find_placer(name).config, options)
    return solve_placement(name, problem, config)


def schedule(
    work: MicroBatchPlan | Placement | PlacementReport,
    micro_batches: int = 32,
    scheduler: str = DEFAULT_SCHEDULER,
    **options: Any,
) -> ScheduleReport:
    """Search for a schedule, or build a published one.

    Parameters
    ----------
    work : MicroBatchPlan, Placement or PlacementReport
        The work of each micro-batch.  A placement is converted into a plan first.
    micro_batches : int
        Number of micro-batches to schedule.
    scheduler : str
        A name from `tessel_core.scheduling.SCHEDULERS`.
    **options
        Options of the scheduler, such as `time_limit` in seconds and `seed`.

    Returns
    -------
    ScheduleReport
        The schedule, its makespan and period, and the bounds that prove how good they are.

    Raises
    ------
    InputError
        If a name or an option is unknown, the scheduler does not apply, or the report has no placement.

    Examples
    --------
    >>> report = schedule(load("m-shape-4"), 8)
    >>> report.makespan, report.status.label
    (60, 'proved optimal')
    """
    config: Any = config_from(find_scheduler(scheduler).config, options)
    return solve_schedule(scheduler, _plan(work), micro_batches, config)


def _plan(work: MicroBatchPlan | Placement | PlacementReport) -> MicroBatchPlan:
    if isinstance(work, MicroBatchPlan):
        return work
    placement = work.solution if isinstance(work, PlacementReport) else work
    if placement is None:
        raise InputError("report", "contains no placement to schedule")
    return plan_of(placement)


def simulate(
    network: str, mesh: DeviceMesh | str, strategy: Strategy | None = None, *, overlap: bool = True, **sizes: Any
) -> Simulated:
    """Simulate one step of a network under a strategy.

    Parameters
    ----------
    network : str
        A family from `tessel_core.strategies.families.FAMILIES`, such as `gpt`.
    mesh : DeviceMesh or str
        The devices, or the name of a mesh.
    strategy : Strategy
        How the network is spread over devices.  By default it runs on one device.
    overlap : bool
        Whether devices compute and communicate at the same time.
    **sizes
        Sizes of the family, such as `size="gpt2-xl"` and `batch=64` samples per step.

    Returns
    -------
    Simulated
        The program, its trace (times in seconds, memory in bytes), and the reason if it does not fit into memory.

    Raises
    ------
    InputError
        If a name or a size is unknown, or the strategy does not divide the network or the devices evenly.

    Examples
    --------
    >>> simulate("mlp", "h200-4", Strategy(data=4), batch=64).trace.devices
    (1, 2, 3, 4)
    """
    family = find_family(network)
    unknown = sizes.keys() - {size.name for size in family.sizes} - {*family.options}
    if unknown:
        known = ", ".join([*(size.name for size in family.sizes), *family.options])
        raise InputError(sorted(unknown)[0], f"is no size of {network}, choose from {known}")
    devices = find_mesh(mesh) if isinstance(mesh, str) else mesh
    return simulate_strategy(family, family.spec(**sizes), strategy or Strategy(), devices, overlap=overlap)


def export(result: Schedule | ScheduleReport | Simulated, path: str | Path, to: str = "") -> Path:
    """Write a schedule or a simulation to a file that another program can open.

    Parameters
    ----------
    result : Schedule, ScheduleReport or Simulated
        The schedule or simulation to write.
    path : str or Path
        The file to write.
    to : str
        A name from `tessel_core.exports.EXPORTS`.  By default the file suffix selects the export: `.html`, `.svg`,
        `.trace.json`, `.csv` and others.

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the file cannot be written, the report has no schedule, or the export does not apply to it.
    """
    file = Path(path)
    if isinstance(result, Simulated):
        write_file(file, simulation_export_for(file.name).made(result.trace, None, False))
        return file
    report = evaluate(result, _SOLVER_NAME) if isinstance(result, Schedule) else result
    if report.solution is None:
        raise InputError("report", "contains no schedule to export")
    kind = find_export(to) if to else export_for(file.name)
    write_file(file, kind.made(report.solution, report))
    return file
