"""Random workspaces, also with invalid drafts, and an equality that compares schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies

from helpers.graphs import random_graph
from helpers.plans import random_plan
from helpers.simulator import runs_of
from tessel_core.costs.costed import CostOptions
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.formats import GraphFile, MeshFile, WorkspaceFile
from tessel_core.formats.schedule_file import schedule_file
from tessel_core.formats.tables import (
    BLOCK_COLUMNS,
    DEPENDENCY_COLUMNS,
    DEVICE_COLUMNS,
    LIST_COLUMNS,
    NUMBER_COLUMNS,
    PlanTables,
    tables_of,
)
from tessel_core.model import CPU, Allowance, Communication, DevicePool, DeviceTime, MicroBatchPlan, Status
from tessel_core.networks import build_shape
from tessel_core.options import Option, options_of
from tessel_core.placement import PLACERS, find_placer
from tessel_core.scheduling import SCHEDULERS, Comparison, Question, find_scheduler, solve_schedule
from tessel_core.workbench.outcome import PlacerAnswer
from tessel_core.workbench.placing import ALL_OBJECTIVES, Placing
from tessel_core.workbench.workspace import Workspace, workspace_file

texts = strategies.text(strategies.characters(codec="utf-8"), max_size=6)
names = strategies.text(strategies.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)
numbers = strategies.integers(-(2**63), 2**63 - 1)


def rows(columns: tuple[str, ...]) -> strategies.SearchStrategy[dict[str, object]]:
    """Draw rows of a table with any values that the columns accept, or without values."""
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
    """Draw tables that are rarely a valid plan."""
    tables = (strategies.lists(rows(columns), max_size=3).map(tuple) for columns in _TABLES)
    return PlanTables(draw(texts), draw(texts), draw(texts), *(draw(table) for table in tables))


_TABLES = (DEVICE_COLUMNS, BLOCK_COLUMNS, DEPENDENCY_COLUMNS)


@strategies.composite
def comparisons(draw: strategies.DrawFn, plan: MicroBatchPlan) -> Comparison:
    """Draw a comparison of this plan, or of two shapes."""
    plans = draw(strategies.sampled_from([(plan,), (build_shape("v-shape"), build_shape("m-shape"))]))
    schedulers = draw(strategies.lists(strategies.sampled_from(list(SCHEDULERS)), max_size=2, unique=True))
    count = draw(strategies.integers(1, 99))
    pairs = tuple(Question(name, each, count, draw(configs(name))) for name in schedulers for each in plans)
    if not pairs:
        return Comparison()
    names = draw(strategies.dictionaries(strategies.sampled_from(pairs), texts.filter(str.strip)))
    return Comparison(pairs, draw(strategies.none() | strategies.integers(0, len(pairs) - 1)), names)


@strategies.composite
def placings(draw: strategies.DrawFn) -> Placing:
    """Draw a placement question, from an empty one to a placement by hand, with own and published graphs."""
    seed = draw(strategies.integers(0, 10**6))
    graph = draw(strategies.none() | strategies.sampled_from([plain_graph(seed), published_graph(seed)]))
    placing = Placing()
    if graph is not None:
        placing = placing.opened(graph, draw(texts), draw(texts))
    if draw(strategies.booleans()):
        placing = placing.on(_mesh(draw(strategies.integers(1, 4))), draw(texts))
    contiguous = draw(strategies.booleans())
    placing = placing.wanting(draw(strategies.sampled_from(ALL_OBJECTIVES)), contiguous=contiguous)
    if placing.can_replicate:
        every = strategies.integers(1, 9)
        placing = placing.replicating(draw(strategies.none() | strategies.builds(ReplicaOptions, every)))
    placer = draw(strategies.sampled_from(placing.placers))
    config = find_placer(placer).config
    ranges = {name: values(option, default) for name, (option, default) in options_of(config).items()}
    placing = placing.asking(placer, config(**{name: draw(each) for name, each in ranges.items()}))
    placing = placing.costing(
        CostOptions(in_flight=draw(strategies.sampled_from((1, 2, 4, "1f1b", "gpipe")))), draw(_COMMUNICATIONS)
    )
    placing = replace(placing, outcome=draw(strategies.none() | outcomes))
    if graph is None:
        return placing
    count, devices = len(graph.graph.operators), len(placing.devices)
    on = strategies.lists(strategies.integers(0, devices - 1), max_size=2, unique=True).map(tuple)
    assignments = strategies.lists(on, min_size=count, max_size=count).map(tuple)
    subgraphs = strategies.lists(strategies.integers(0, 3), min_size=count, max_size=count).map(tuple)
    pinned = draw(strategies.lists(strategies.sampled_from(list(graph.graph.names)), max_size=2, unique=True))
    device_names = strategies.sampled_from([each.name for each in placing.devices])
    return replace(
        placing,
        pins=tuple(Allowance(name, (draw(device_names),)) for name in pinned),
        assignment=draw(strategies.none() | assignments),
        subgraphs=draw(strategies.none() | subgraphs),
        by_hand=draw(strategies.booleans()),
    )


_COMMUNICATIONS = strategies.sampled_from(Communication)
amounts = strategies.none() | strategies.floats(0, 1e300)
outcomes = strategies.builds(
    PlacerAnswer,
    strategies.sampled_from(list(PLACERS)),
    *(strategies.sampled_from(Status), names, amounts, amounts, strategies.floats(0, 9e9), texts),
)


def _mesh(nodes: int) -> MeshFile:
    return MeshFile.of(uniform_mesh("h200", nodes, 2))


def plain_graph(seed: int) -> GraphFile:
    """Return a graph with all fields of a tessel-graph."""
    graph = random_graph(seed)
    operators = tuple(
        replace(each, size=None, weight_bytes=i * 7, flops=i / 3) for i, each in enumerate(graph.operators)
    )
    edges = tuple(replace(each, cost=None, bytes=len(each.source)) for each in graph.edges)
    return GraphFile.of(replace(graph, operators=operators, edges=edges, time_unit="s"))


def published_graph(seed: int) -> GraphFile:
    """Return a graph like the published inputs: named by numbers, with times in ms and its own devices."""
    graph = random_graph(seed)
    number = {each.name: str(i) for i, each in enumerate(graph.operators)}
    times = (DeviceTime(CPU, 2.0), DeviceTime("accelerator", 0.5))
    operators = tuple(
        replace(each, name=number[each.name], times=times, colour=None, forward_of=None) for each in graph.operators
    )
    edges = tuple(replace(each, source=number[each.source], target=number[each.target]) for each in graph.edges)
    return GraphFile.of(replace(graph, operators=operators, edges=edges), DevicePool(3, 1, 16e9))


@strategies.composite
def works(draw: strategies.DrawFn) -> Workspace:
    """Draw a workspace with any plan, any scheduler, valid options, and a draft that may be invalid."""
    plan = random_plan(draw(strategies.integers(0, 10**6)))
    work = Workspace("token", "a name", "somewhere", "", plan, tables_of(plan))
    for scheduler in draw(strategies.lists(strategies.sampled_from(list(SCHEDULERS)), max_size=3)):
        work = work.asking(scheduler, draw(strategies.integers(1, 50)), draw(configs(scheduler)))
    if draw(strategies.booleans()):
        blocks = tuple({**row, "duration": draw(strategies.integers(-1, 3))} for row in work.draft.blocks)
        work = work.edited(replace(work.draft, blocks=blocks))
    asked = work.question if draw(strategies.booleans()) else None
    if draw(strategies.booleans()):
        work = work.edited(draw(drafts()))
    answers = draw(strategies.sampled_from([{}, {"data": "1..x", "recompute": "none,full"}]))
    return replace(
        work, asked=asked, comparison=draw(comparisons(work.plan)), placing=draw(placings()), strategies=answers
    )


@strategies.composite
def configs(draw: strategies.DrawFn, scheduler: str) -> object:
    config = find_scheduler(scheduler).config
    ranges = {name: values(option, default) for name, (option, default) in options_of(config).items()}
    return config(**{name: draw(strategies.just(options_of(config)[name][1]) | ranges[name]) for name in ranges})


def values(option: Option, default: object) -> strategies.SearchStrategy[Any]:
    if option.choices:
        return strategies.sampled_from(option.choices)
    if isinstance(default, float):
        return strategies.floats(option.low, option.high)
    return strategies.integers(int(option.low), int(option.high))


@strategies.composite
def workspace_files(draw: strategies.DrawFn) -> WorkspaceFile:
    """Draw the file of a workspace with all its parts."""
    work = draw(works())
    file = workspace_file(replace(work, name=draw(names)))
    schedule = solve_schedule("sequential", work.plan.with_capacity(None), 2)
    assert schedule.solution is not None
    opened = draw(strategies.none() | strategies.just(schedule_file(schedule.solution, schedule)))
    return replace(file, opened=opened)


def same(one: WorkspaceFile, other: WorkspaceFile) -> bool:
    """Whether two files are equal. Schedules are compared run by run, because `==` compares their identity."""
    if (one.opened is None) != (other.opened is None):
        return False
    if one.opened is not None and other.opened is not None:
        pair = (one.opened, other.opened)
        facts = [(f.schedule.plan, runs_of(f.schedule), f.schedule.repetend, f.scheduler, f.report) for f in pair]
        if facts[0] != facts[1]:
            return False
    return replace(one, opened=None) == replace(other, opened=None)
