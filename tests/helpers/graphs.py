"""Random small operator graphs, and the best placement by brute force."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product

from tessel_core.errors import InputError
from tessel_core.model import CPU, DevicePool, DeviceTime, Edge, Operator, OperatorGraph, PlacementDevice

ROUNDING = 1e-9


def random_graph(seed: int, most: int = 7) -> OperatorGraph:
    """Return a random graph with forward and backward operators, colours, idle and unsupported operators, and
    memory."""
    choose = random.Random(seed)
    while True:
        try:
            return _random_graph(choose, choose.randint(most // 2, most))
        except InputError:  # the colours force a cycle
            continue


def _random_graph(choose: random.Random, count: int) -> OperatorGraph:
    forward = choose.randint(count // 2, count)
    operators = []
    for i in range(count):
        back = i >= forward
        mate = choose.randrange(forward) if back and choose.random() < 0.6 else None
        operators.append(
            Operator(
                f"o{i}",
                times=_times(choose),
                size=choose.choice((0, 0, 1, 2, 3)),
                backward=back,
                colour=choose.choice("xyz") if choose.random() < 0.2 else None,
                forward_of=None if mate is None else f"o{mate}",
            )
        )
    costs = [choose.choice((0, 0.1, 0.2, 0.4, 1)) for _ in operators]
    edges = tuple(
        Edge(f"o{i}", f"o{j}", cost=costs[i]) for j in range(count) for i in range(j) if choose.random() < 0.35
    )
    shuffled = choose.sample(operators, count)
    return OperatorGraph("random", tuple(shuffled), edges, "ms")


def _times(choose: random.Random) -> tuple[DeviceTime, ...]:
    if choose.random() < 0.25:
        return DeviceTime("accelerator", 0.0), DeviceTime(CPU, 0.0)
    fast = DeviceTime("accelerator", choose.choice((0.5, 1, 2, 3)))
    slow = DeviceTime(CPU, choose.choice((0, 2, 5, 9)))
    return choose.choice((((fast, slow),) * 8) + ((slow,), (fast,)))


def random_pool(seed: int) -> DevicePool:
    """Return a random pool of one to three devices, sometimes with little memory."""
    choose = random.Random(seed)
    accelerators, cpus = choose.choice(((1, 0), (2, 0), (3, 0), (3, 0), (0, 1), (1, 1), (2, 1), (2, 1), (1, 2)))
    return DevicePool(accelerators, cpus, choose.choice((None, None, 4, 6, 8)))


def least_load(
    graph: OperatorGraph,
    pool: DevicePool,
    only: Mapping[str, Sequence[str]] | None = None,
    *,
    contiguous: bool = True,
    passes: bool = False,
) -> float | None:
    """Return the least objective over all placements (see `objective_of`); None if no placement is allowed."""
    devices = pool.devices(graph)
    found = [
        objective_of(graph, pool, on, passes=passes)
        for on in product(range(len(devices)), repeat=len(graph.operators))
        if is_allowed(graph, pool, on)
        and (not contiguous or is_chain(graph, on))
        and _keeps_to(graph, devices, on, only or {})
    ]
    return min(found, default=None)


def objective_of(graph: OperatorGraph, pool: DevicePool, on: tuple[int, ...], *, passes: bool) -> float:
    """Return the largest load, or with `passes` the largest forward load plus the largest backward load."""
    if not passes:
        return max(loads_of(graph, pool, on))
    return sum(max(loads_of(graph, pool, on, backward)) for backward in (False, True))


def _keeps_to(
    graph: OperatorGraph, devices: Sequence[PlacementDevice], on: tuple[int, ...], only: Mapping[str, Sequence[str]]
) -> bool:
    return all(
        devices[at].name in only.get(operator.name, (devices[at].name,))
        for operator, at in zip(graph.operators, on, strict=True)
    )


def is_allowed(graph: OperatorGraph, pool: DevicePool, on: tuple[int, ...]) -> bool:
    """Whether operators are supported on their devices, colocated as required, and within memory."""
    devices = pool.devices(graph)
    place = dict(zip((each.name for each in graph.operators), on, strict=True))
    colours: dict[str, int] = {}
    for operator in graph.operators:
        at = place[operator.name]
        if operator.time_on(devices[at].kind) is None:
            return False
        if operator.colour and colours.setdefault(operator.colour, at) != at:
            return False
        if operator.forward_of and place[operator.forward_of] != at:
            return False
    if pool.memory is None:
        return True
    held = [sum(o.size or 0 for o, at in zip(graph.operators, on, strict=True) if at == d) for d in range(len(devices))]
    return all(amount <= pool.memory for d, amount in enumerate(held) if devices[d].kind != CPU)


def is_chain(graph: OperatorGraph, on: tuple[int, ...]) -> bool:
    """Whether the devices in use can be ordered so that no forward tensor flows back."""
    return any(is_onwards(graph, tuple(map(order.index, on))) for order in permutations(sorted(set(on))))


def is_onwards(graph: OperatorGraph, at: tuple[int, ...]) -> bool:
    """Whether no forward tensor flows to a stage with a smaller number."""
    return all(a <= b for a, b in _flows(graph, at))


def _flows(graph: OperatorGraph, on: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield (device, device) of forward edges, and reversed backward edges with an end that is bound to no forward
    operator."""
    index = {operator.name: i for i, operator in enumerate(graph.operators)}
    for edge in graph.edges:
        source, target = graph.operators[index[edge.source]], graph.operators[index[edge.target]]
        ends = on[index[edge.source]], on[index[edge.target]]
        if not target.backward:
            yield ends
        elif source.backward and not (_has_forward(graph, source) and _has_forward(graph, target)):
            yield ends[::-1]


def _has_forward(graph: OperatorGraph, operator: Operator) -> bool:
    """Whether the operator is bound to a forward operator, directly or through others."""
    bound, waiting = {operator.name}, [operator]
    while waiting:
        one = waiting.pop()
        for other in graph.operators:
            together = one.colour is not None and one.colour == other.colour
            together |= other.forward_of == one.name or one.forward_of == other.name
            if together and other.name not in bound:
                bound.add(other.name)
                waiting.append(other)
    return any(not each.backward for each in graph.operators if each.name in bound)


def loads_of(graph: OperatorGraph, pool: DevicePool, on: tuple[int, ...], backward: bool | None = None) -> list[float]:
    """Return the load of each device: operators, and sent and received tensors once per operator; of one pass if
    given."""
    devices = pool.devices(graph)
    place = dict(zip((each.name for each in graph.operators), on, strict=True))
    loads = [0.0] * len(devices)
    for operator in graph.operators:
        if backward is not None and operator.backward != backward:
            continue
        loads[place[operator.name]] += operator.time_on(devices[place[operator.name]].kind) or 0
        out = [edge for edge in graph.edges if edge.source == operator.name]
        away = {place[edge.target] for edge in out} - {place[operator.name]}
        for device in away | ({place[operator.name]} if away else set()):
            if devices[device].kind != CPU:
                loads[device] += out[0].cost or 0
    return loads
