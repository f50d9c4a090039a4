"""Random training graphs for recommendations, and the steps of simple strategies."""

from __future__ import annotations

import random
from dataclasses import replace

from tessel_core.costs.costed import CostOptions
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.errors import InputError
from tessel_core.model import DeviceMesh, DeviceTime, Edge, Operator, OperatorGraph, Placement
from tessel_core.placement import default_placer, solve_placement
from tessel_core.placement.problem import placement_problem
from tessel_core.placement.replicas import all_on_all
from tessel_core.planning import plan_of
from tessel_core.scheduling import solve_schedule


def random_graph(seed: int, count: int) -> OperatorGraph:
    """Return a training graph with random times, bytes and edges: a chain for even seeds.

    The backward pass mirrors the forward pass.
    """
    draw = random.Random(seed)
    arcs = {(i - 1, i) for i in range(1, count) if seed % 2 == 0}
    for i in range(1, count) if seed % 2 else ():
        arcs |= {(j, i) for j in range(i) if draw.random() < 0.4} or {(draw.randrange(i), i)}
    times = [draw.randint(1, 9) * 1e-3 for _ in range(count)]
    forward = [
        Operator(
            f"op{i}",
            times=(DeviceTime("h100", time), DeviceTime("a100", 2 * time)),
            weight_bytes=draw.randint(0, 20) * 10**8,
            activation_bytes=draw.randint(1, 20) * 10**7,
            output_bytes=10**6,
        )
        for i, time in enumerate(times)
    ]
    backward = [
        Operator(
            f"grad{i}",
            times=tuple(replace(each, time=2 * each.time) for each in forward[i].times),
            backward=True,
            forward_of=f"op{i}",
            output_bytes=10**6,
        )
        for i in reversed(range(count))
    ]
    ends = set(range(count)) - {source for source, _ in arcs}
    edges = [Edge(f"op{a}", f"op{b}") for a, b in sorted(arcs)]
    edges += [Edge(f"grad{b}", f"grad{a}") for a, b in sorted(arcs)]
    edges += [Edge(f"op{i}", f"grad{i}") for i in sorted(ends)]
    return OperatorGraph(f"random-{seed}", (*forward, *backward), tuple(edges))


def simple_steps(graph: OperatorGraph, mesh: DeviceMesh, micro_batches: int) -> dict[str, float]:
    """Return the seconds of a step of simple strategies with 1F1B, by name. Those that do not fit are left out.

    They are pure data parallelism, and the placements of `tessel place` and `tessel place --replicate`.
    """
    costs = CostOptions(micro_batches=micro_batches)
    alone, replicated = (placement_problem(graph, mesh, costs, replicas=each) for each in (None, ReplicaOptions()))
    placed = {"place": alone, "place --replicate": replicated}
    steps = {
        name: _step(solve_placement(default_placer(each), each).solution, micro_batches)
        for name, each in placed.items()
    }
    everywhere = all_on_all(replicated)
    fits = everywhere is not None and not replicated.violations(everywhere)
    steps["data parallel"] = _step(everywhere, micro_batches) if fits else None
    return {name: seconds for name, seconds in steps.items() if seconds is not None}


def _step(placement: Placement | None, micro_batches: int) -> float | None:
    """Return the seconds of a step with 1F1B. None without a placement, or if it does not suit 1F1B."""
    if placement is None:
        return None
    try:
        solution = solve_schedule("1f1b", plan_of(placement), micro_batches).solution
    except InputError:  # The stages are not a chain.
        return None
    return None if solution is None else solution.makespan / 1e9
