"""Recommendations for operator graphs: never worse than simple strategies, and as good as brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from tessel_core.control import Control
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.placement.problem import placement_problem
from tessel_core.strategies.graphs.pipelines import Pipeline
from tessel_core.strategies.graphs.question import GraphConfiguration, GraphQuestion, GraphRanges
from tessel_core.strategies.graphs.search import recommend_graph
from tessel_core.strategies.graphs.timing import LIST_ORDER, PlacedCandidate, StepTimer
from tessel_core.strategies.recommendation import divisors

MESH = uniform_mesh("h100", 1, 3)


def random_graph(seed: int, operators: int, *, chain: bool = False) -> OperatorGraph:
    """Return a training graph with random times, bytes and edges. The backward pass mirrors the forward pass."""
    draw = random.Random(seed)
    forward = [f"op{i}" for i in range(operators)]
    arcs = [(i - 1, i) for i in range(1, operators)] if chain else []
    for i in range(1, operators) if not chain else ():
        arcs += [(j, i) for j in range(i) if draw.random() < 0.4] or [(draw.randrange(i), i)]
    made, edges = list[Operator](), list[Edge]()
    for name in forward:
        time, weight = draw.randint(1, 9) * 1e-3, draw.randint(0, 20) * 10**8
        made.append(
            Operator(
                name,
                times=(DeviceTime("h100", time),),
                weight_bytes=weight,
                activation_bytes=draw.randint(1, 20) * 10**7,
                output_bytes=10**6,
            )
        )
    for name in reversed(forward):
        time = 2 * made[forward.index(name)].times[0].time
        made.append(
            Operator(
                f"{name}-backward",
                times=(DeviceTime("h100", time),),
                backward=True,
                forward_of=name,
                output_bytes=10**6,
            )
        )
    ends = [i for i in range(operators) if all(i != source for source, _ in arcs)]
    starts = [i for i in range(operators) if all(i != target for _, target in arcs)]
    edges += [Edge(forward[a], forward[b]) for a, b in arcs]
    edges += [Edge(f"{forward[b]}-backward", f"{forward[a]}-backward") for a, b in arcs]
    edges += [Edge(forward[i], f"{forward[i]}-backward") for i in ends]
    assert starts
    return OperatorGraph(f"random-{seed}", tuple(made), tuple(edges))


def every_step(question: GraphQuestion) -> Iterator[PlacedCandidate]:
    """Yield the step of every contiguous placement with one stage per device, with and without replicas."""
    timer = StepTimer(question)
    for data in divisors(question.micro_batches):
        room = question.devices // data
        if not room:
            continue
        for stages in range(1, room + 1):
            for sizes in itertools.product(range(1, room + 1), repeat=stages):
                if sum(sizes) <= room and max(sizes) <= question.samples(data):
                    yield from steps_of(question, timer, data, sizes)


def steps_of(question: GraphQuestion, timer: StepTimer, data: int, sizes: tuple[int, ...]) -> Iterator[PlacedCandidate]:
    """Yield the steps of all placements in stages with these numbers of devices."""
    count, total = question.micro_batches // data, sum(sizes)
    asked = GraphConfiguration(data, total, 0, None, "1f1b")
    first = [sum(sizes[:s]) for s in range(len(sizes))]
    sets = [tuple(range(at, at + size)) for at, size in zip(first, sizes, strict=True)]
    mesh = question.mesh.part(range(total))
    replicas = ReplicaOptions(reduce_every=count)
    problem = placement_problem(question.graph, mesh, question.costs, replicas=replicas).for_micro_batches(count)
    graph = question.graph
    for chosen in itertools.product(range(len(sizes)), repeat=len(graph.colocated)):
        if set(chosen) != set(range(len(sizes))):
            continue
        placement = problem.placement([sets[chosen[graph.group_of[i]]] for i in range(len(graph.operators))])
        if problem.violations(placement):
            continue
        pipeline = Pipeline(problem, placement, question.costs, replicas, 0.0, 0.0)
        for order in ("1f1b", LIST_ORDER):
            try:
                timed = timer.placed(asked, pipeline).timed(order, Control())
            except ValueError:
                continue
            if timed is not None:
                yield timed
                break


@pytest.mark.parametrize("seed", range(6))
def test_the_fastest_equals_brute_force(seed: int) -> None:
    graph = random_graph(seed, 4, chain=seed % 2 == 0)
    question = GraphQuestion(graph, MESH, 1 + seed, GraphRanges(stages_per_device=(1,)))
    found = recommend_graph(question)
    least = min(each.outcome.latency for each in every_step(question))
    assert found.best is not None
    assert found.best.outcome.latency <= least * (1 + 1e-9)
