"""Random workspaces as they are kept, with drafts that say no plan, and an equality that looks into schedules."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies

from helpers.graphs import random_graph
from helpers.plans import random_plan
from helpers.simulator import runs_of
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.formats import GraphFile, KeptQuestion, MeshFile, WorkspaceFile, kept_graph, schedule_file
from tessel_core.formats.placing_file import KeptOutcome, KeptPlacing
from tessel_core.formats.tables import (
    BLOCK_COLUMNS,
    DEPENDENCY_COLUMNS,
    DEVICE_COLUMNS,
    LIST_COLUMNS,
    NUMBER_COLUMNS,
    PlanTables,
    tables_of,
)
from tessel_core.model import CPU, DevicePool, DeviceTime, MicroBatchPlan, Status
from tessel_core.networks import build_shape
from tessel_core.scheduling import solve_schedule

texts = strategies.text(strategies.characters(codec="utf-8"), max_size=6)
names = strategies.text(strategies.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)
numbers = strategies.integers(-(2**63), 2**63 - 1)
options = strategies.dictionaries(
    names, strategies.booleans() | strategies.integers(-99, 99) | strategies.floats(0, 9e9), max_size=3
)


def rows(columns: tuple[str, ...]) -> strategies.SearchStrategy[dict[str, object]]:
    """Rows as somebody may leave them: anything that the column can hold, or nothing."""
    cells = {
        column: strategies.none()
        | (
            strategies.lists(texts, max_size=3)
            if column in LIST_COLUMNS
            else numbers
            if column in NUMBER_COLUMNS
            else texts
        )
        for column in columns
    }
    return strategies.fixed_dictionaries(cells)


@strategies.composite
def drafts(draw: strategies.DrawFn) -> PlanTables:
    """Tables that are hardly ever a plan."""
    tables = (strategies.lists(rows(columns), max_size=3).map(tuple) for columns in _TABLES)
    return PlanTables(draw(texts), draw(texts), draw(texts), *(draw(table) for table in tables))


_TABLES = (DEVICE_COLUMNS, BLOCK_COLUMNS, DEPENDENCY_COLUMNS)


@strategies.composite
def questions(draw: strategies.DrawFn, plan: MicroBatchPlan) -> KeptQuestion:
    """About this plan or another one."""
    about = draw(strategies.sampled_from([plan, build_shape("v-shape"), build_shape("m-shape")]))
    return KeptQuestion(draw(names), about, draw(strategies.integers(1, 99)), draw(options))


@strategies.composite
def placings(draw: strategies.DrawFn) -> KeptPlacing:
    """From nothing but settings to a placement by hand; graphs of our own and published ones."""
    seed = draw(strategies.integers(0, 10**6))
    graph = draw(strategies.none() | strategies.sampled_from([plain_graph(seed), published_graph(seed)]))
    pool = draw(strategies.builds(DevicePool, strategies.integers(1, 9), strategies.integers(0, 2), strategies.none()))
    count = 0 if graph is None else len(graph.graph.operators)
    on = strategies.lists(strategies.integers(0, 7), max_size=2, unique=True).map(tuple)
    assignments = strategies.lists(on, min_size=count, max_size=count).map(tuple)
    subgraphs = strategies.lists(strategies.integers(0, 3), min_size=count, max_size=count).map(tuple)
    return KeptPlacing(
        graph=graph,
        graph_source=draw(texts),
        graph_sample=draw(texts),
        mesh=draw(strategies.none() | strategies.builds(_mesh, strategies.integers(1, 4))),
        mesh_source=draw(texts),
        pool=pool,
        on_mesh=draw(strategies.booleans()),
        objective=draw(names),
        contiguous=draw(strategies.booleans()),
        placer=draw(names),
        options=draw(strategies.dictionaries(names, options | chosen, max_size=2)),
        costs=draw(chosen),
        communication=draw(names),
        pins=tuple(draw(strategies.dictionaries(names, strategies.lists(names, max_size=2).map(tuple))).items()),
        assignment=None if graph is None else draw(strategies.none() | assignments),
        subgraphs=None if graph is None else draw(strategies.none() | subgraphs),
        by_hand=draw(strategies.booleans()),
        outcome=draw(strategies.none() | outcomes),
    )


chosen = strategies.dictionaries(names, texts | strategies.integers(-99, 99), max_size=2)
amounts = strategies.none() | strategies.floats(0, 1e300)
outcomes = strategies.builds(
    KeptOutcome, names, strategies.sampled_from(Status), names, amounts, amounts, strategies.floats(0, 9e9), texts
)


def _mesh(nodes: int) -> MeshFile:
    return MeshFile.of(uniform_mesh("h200", nodes, 2))


def plain_graph(seed: int) -> GraphFile:
    """With everything that a tessel-graph says."""
    graph = random_graph(seed)
    operators = tuple(
        replace(each, size=None, weight_bytes=i * 7, flops=i / 3) for i, each in enumerate(graph.operators)
    )
    edges = tuple(replace(each, cost=None, bytes=len(each.source)) for each in graph.edges)
    return kept_graph(replace(graph, operators=operators, edges=edges, time_unit="s"))


def published_graph(seed: int) -> GraphFile:
    """As the published program's inputs are: named by numbers, with times in ms and devices of its own."""
    graph = random_graph(seed)
    number = {each.name: str(i) for i, each in enumerate(graph.operators)}
    times = (DeviceTime(CPU, 2.0), DeviceTime("accelerator", 0.5))
    operators = tuple(
        replace(each, name=number[each.name], times=times, colour=None, forward_of=None) for each in graph.operators
    )
    edges = tuple(replace(each, source=number[each.source], target=number[each.target]) for each in graph.edges)
    return kept_graph(replace(graph, operators=operators, edges=edges), DevicePool(3, 1, 16e9))


@strategies.composite
def workspace_files(draw: strategies.DrawFn) -> WorkspaceFile:
    """Workspaces with everything that may be in them."""
    plan = random_plan(draw(strategies.integers(0, 10**6)))
    compared = tuple(draw(strategies.lists(questions(plan), max_size=3)))
    schedule = solve_schedule("sequential", plan.with_capacity(None), 2)
    assert schedule.solution is not None
    opened = schedule_file(schedule.solution, schedule)
    return WorkspaceFile(
        name=draw(names),
        source=draw(texts),
        sample=draw(texts),
        plan=plan,
        draft=draw(strategies.just(tables_of(plan)) | drafts()),
        scheduler=draw(names),
        micro_batches=draw(strategies.integers(1, 99)),
        options=draw(strategies.dictionaries(names, options, max_size=2)),
        asked=draw(strategies.none() | questions(plan)),
        opened=draw(strategies.none() | strategies.just(opened)),
        compared=compared,
        reference=draw(strategies.none() | strategies.integers(0, len(compared) - 1)) if compared else None,
        placing=draw(strategies.none() | placings()),
        strategies=draw(options | chosen),
    )


def simple_workspace(plan: MicroBatchPlan, micro_batches: int = 1, name: str = "mine") -> WorkspaceFile:
    """A small workspace; `micro_batches` serves to tell its states apart."""
    return WorkspaceFile(
        name=name,
        source="a test",
        sample="",
        plan=plan,
        draft=tables_of(plan),
        scheduler="tessel",
        micro_batches=micro_batches,
        options={},
    )


def same(one: WorkspaceFile, other: WorkspaceFile) -> bool:
    """Equal in everything; schedules are compared run by run, since they are equal only to themselves."""
    if (one.opened is None) != (other.opened is None):
        return False
    if one.opened is not None and other.opened is not None:
        pair = (one.opened, other.opened)
        facts = [(f.schedule.plan, runs_of(f.schedule), f.schedule.repetend, f.scheduler, f.report) for f in pair]
        if facts[0] != facts[1]:
            return False
    return replace(one, opened=None) == replace(other, opened=None)
