"""The search over arbitrary sets of operator groups: its tables, its annealing, its neighbourhoods, its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from helpers.graphs import least_load, random_graph, random_pool
from helpers.seeds import reaching, seeds

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.errors import InputError
from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, DevicePool, DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.placement.annealing import Heat, coarsened, state_of, tables_of, walk
from tessel_core.placement.any_sets import AnySetSearch, Way
from tessel_core.placement.bounds import cut_bound, pigeonhole_bound, priced_work, work_and_cut_bound
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.moves import Moves, devices_for, fits_memory, measured
from tessel_core.placement.pipeline import Pipeline, has_unplaceable, within_memory
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.split_search import best_split

OBJECTIVES = (THROUGHPUT, FORWARD_BACKWARD)
Bound = Callable[[Pipeline, float, float, Control], float]


def any_sets(seed: int, most: int, pool: DevicePool) -> Pipeline | None:
    """Return a random pipeline without contiguity, or None if an operator fits on no device."""
    problem = PlacementProblem.on_pool(random_graph(seed, most), pool)
    try:
        pipeline = within_memory(pipeline_of(PlacementProblem(problem.graph, problem.devices, contiguous=False)))
    except InputError:
        return None
    return None if has_unplaceable(pipeline) else pipeline


def random_splits(pipeline: Pipeline, seed: int, count: int) -> Iterator[list[int]]:
    choose = Random(seed)
    for _ in range(count):
        yield [choose.choice(devices) for devices in devices_for(pipeline)]


def search_of(pipeline: Pipeline, objective: str, seed: int) -> AnySetSearch | None:
    """Return a search that starts from the first feasible random split. None if none of many is feasible."""
    parts = pipeline.parts(objective)
    start = next((on for on in random_splits(pipeline, seed, 200) if fits_memory(parts, on)), None)
    if start is None:
        return None
    return AnySetSearch(parts, measured(parts, start), Effort(5.0, 1, seed, repeatable=True))


@pytest.mark.parametrize("seed", seeds(60))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_clusters_load_devices_as_their_groups_do(seed: int, objective: str) -> None:
    pool = DevicePool(3, 1)
    pipeline = any_sets(reaching(seed, lambda each: any_sets(each, 14, pool) is not None), 14, pool)
    assert pipeline is not None
    parts, choose = pipeline.parts(objective), np.random.default_rng(seed)
    cluster_of = np.unique(choose.integers(5, size=len(pipeline.members)), return_inverse=True)[1]
    tables = coarsened(tables_of(parts), cluster_of)
    on = choose.integers(3, size=int(cluster_of.max()) + 1)
    state, moves = state_of(tables, on, 1.0), Moves(parts, on[cluster_of].tolist())
    assert state.load == pytest.approx(np.array(moves.load))
    assert state.used == pytest.approx(np.array(moves.memory))


@pytest.mark.parametrize("seed", seeds(60))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_annealing_keeps_loads_memory_and_the_best(seed: int, objective: str) -> None:
    pool = DevicePool(3, 1, 25)
    pipeline = any_sets(reaching(seed, lambda each: any_sets(each, 14, pool) is not None), 14, pool)
    assert pipeline is not None
    parts = pipeline.parts(objective)
    tables, (start,) = tables_of(parts), random_splits(pipeline, seed, 1)
    on = np.array(start)
    best, state = on.copy(), state_of(tables, on, 1.0)
    least = walk(tables, state, on, best, 1.0, Heat(0.5, 0.01), 2_000, seed)
    again = state_of(tables, on, 1.0)
    for kept, counted in zip(state, again, strict=True):
        assert kept == pytest.approx(counted)
    if least < np.inf:
        assert fits_memory(parts, best.tolist())
        assert least == pytest.approx(measured(parts, best.tolist()).load)
    if fits_memory(parts, start):
        assert least <= measured(parts, start).load + 1e-9


def _small_search(seed: int, objective: str) -> AnySetSearch | None:
    """Return the search of a small graph, or None if no split is feasible."""
    pipeline = any_sets(seed, 7, random_pool(seed))
    return None if pipeline is None else search_of(pipeline, objective, seed)


@pytest.mark.parametrize("seed", seeds(60))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_small_graphs_are_placed_as_well_as_can_be(seed: int, objective: str) -> None:
    seed = reaching(seed, lambda each: _small_search(each, objective) is not None)
    graph, pool, search = random_graph(seed), random_pool(seed), _small_search(seed, objective)
    assert search is not None
    best = least_load(graph, pool, contiguous=False, passes=objective == FORWARD_BACKWARD)
    search.run(2.0, best or 0.0, Control())
    assert search.best.load == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_way_leads_to_splits_that_fit(way: Way, objective: str) -> None:
    found = 0
    for seed in range(3):
        pipeline = any_sets(seed, 16, DevicePool(3, 1, 20))
        search = None if pipeline is None else search_of(pipeline, objective, seed)
        if search is None:
            continue
        before = search.best.load
        split, seconds = search.attempt(way, np.random.default_rng(seed), Control())
        assert seconds > 0
        if split is None:
            continue
        assert split.load == measured(search.parts, split.device_of).load
        if way is not Way.FRESH:
            assert split.load <= before + 1e-9
        found += search.keep(split)
        assert fits_memory(search.parts, search.best.device_of)
    assert found > 0


def test_one_seed_gives_one_search() -> None:
    pipeline = any_sets(4, 40, DevicePool(4, 1))
    assert pipeline is not None
    one, other = (search_of(pipeline, THROUGHPUT, 3) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.run(2.0, 0.0, Control()) == other.run(2.0, 0.0, Control()) > 0
    assert one.kept == other.kept


def test_a_short_search_improves_a_random_split() -> None:
    """The time limit ends within the first attempt."""
    pipeline = any_sets(4, 40, DevicePool(4, 1))
    assert pipeline is not None
    start = measured((pipeline,), next(random_splits(pipeline, 0, 1)))
    found = best_split(pipeline, THROUGHPUT, False, start, Effort(0.3, 1, 0, repeatable=True), Control())
    assert found.split is not None
    assert found.bound <= found.split.load < start.load


def _bounded(seed: int) -> tuple[Pipeline | None, float | None]:
    """Return a small pipeline and its least load, or None if no split is feasible."""
    pipeline = any_sets(seed, 7, random_pool(seed))
    best = least_load(random_graph(seed), random_pool(seed), contiguous=False)
    return pipeline, None if pipeline is None else best


@pytest.mark.parametrize("seed", seeds(200))
@pytest.mark.parametrize("raised", [pigeonhole_bound, work_and_cut_bound])
def test_raised_bounds_hold_for_every_split(raised: Bound, seed: int) -> None:
    seed = reaching(seed, lambda each: _bounded(each)[1] is not None)
    pipeline, best = _bounded(seed)
    assert pipeline is not None
    assert best is not None
    known = cut_bound(pipeline, priced_work(pipeline).bound, Control())
    for upper in (best, 1.5 * best):
        bound = raised(pipeline, known, upper, Control())
        assert known <= bound <= best + 1e-9


def test_three_groups_on_two_devices_are_bounded_by_the_best_pair() -> None:
    """Each group takes 2 s and each tensor 0.5 s.

    Both ends together take 5 s, neighbours 4.5 s, one alone at most 3 s.
    """
    operators = tuple(Operator(name, times=(DeviceTime("accelerator", 2.0),)) for name in "abc")
    graph = OperatorGraph("line", operators, (Edge("a", "b", cost=0.5), Edge("b", "c", cost=0.5)))
    pipeline = pipeline_of(PlacementProblem(graph, DevicePool(2).devices(graph), contiguous=False))
    assert cut_bound(pipeline, 0.0, Control()) == pytest.approx(3.0)
    assert pigeonhole_bound(pipeline, 3.0, 6.0, Control()) == pytest.approx(4.5)


def test_two_devices_do_all_the_work_and_pay_for_one_cut_each() -> None:
    """Six operators of 2 s in a line, with tensors of 1 s: each device takes three and pays for one tensor."""
    operators = tuple(Operator(name, times=(DeviceTime("accelerator", 2.0),)) for name in "abcdef")
    edges = tuple(Edge(one, other, cost=1.0) for one, other in pairwise("abcdef"))
    graph = OperatorGraph("line", operators, edges)
    pipeline = pipeline_of(PlacementProblem(graph, DevicePool(2).devices(graph), contiguous=False))
    assert 6.4 < work_and_cut_bound(pipeline, 6.0, 7.0, Control()) <= 7.0
