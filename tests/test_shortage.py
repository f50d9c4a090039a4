"""If no placement exists, every placer says so.

The suggested least resources suffice by brute force, and less does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from helpers.graphs import is_allowed, is_chain, random_graph
from helpers.latency import every_split, latency_of
from helpers.seeds import seeds

from tessel_core.errors import InputError
from tessel_core.model import (
    CPU,
    LATENCY,
    Allowance,
    DevicePool,
    DeviceTime,
    Operator,
    OperatorGraph,
    PlacementDevice,
    Status,
)
from tessel_core.placement import PLACERS, PlacementProblem, solve_placement
from tessel_core.placement.shortage import least_bytes

Only = Mapping[str, Sequence[str]]


def random_pins(graph: OperatorGraph, pool: DevicePool, seed: int) -> tuple[Allowance, ...]:
    """Draw up to three operators that may use only some devices."""
    choose, names = Random(seed), [device.name for device in pool.devices(graph)]
    operators = choose.sample(list(graph.names), min(choose.randint(0, 3), len(graph.operators)))
    return tuple(Allowance(each, tuple(choose.sample(names, min(len(names), 1 + seed % 2)))) for each in operators)


def least_capacity(graph: OperatorGraph, pool: DevicePool, only: Only, *, contiguous: bool) -> float | None:
    """Return the least memory of the fullest accelerator over all placements that keep the other rules."""
    roomy, devices, found = replace(pool, memory=None), pool.devices(graph), list[float]()
    for on in product(range(len(devices)), repeat=len(graph.operators)):
        keeps = all(
            devices[at].name in only.get(each.name, (devices[at].name,))
            for each, at in zip(graph.operators, on, strict=True)
        )
        if keeps and is_allowed(graph, roomy, on) and (not contiguous or is_chain(graph, on)):
            held = [0.0] * len(devices)
            for operator, at in zip(graph.operators, on, strict=True):
                held[at] += operator.size or 0
            found.append(max([h for h, device in zip(held, devices, strict=True) if device.kind != CPU], default=0.0))
    return min(found, default=None)


def options_of(name: str) -> object:
    """Return options with one worker and few restarts."""
    known = {"workers": 1, "restarts": 2}
    kind = PLACERS[name].config
    return kind(**{key: value for key, value in known.items() if key in kind.__dataclass_fields__})


@pytest.mark.parametrize("seed", seeds(60))
def test_every_placer_says_what_would_do(seed: int) -> None:
    """All placers on questions with pins and little memory: no placement, and the same least value each."""
    graph, pool = random_graph(seed, most=6), DevicePool(1 + seed % 3, seed % 2, 1 + seed % 4)
    pins = random_pins(graph, pool, seed)
    only = {each.operator: each.devices for each in pins}
    for contiguous in (True, False):
        least = least_capacity(graph, pool, only, contiguous=contiguous)
        problem = replace(
            PlacementProblem.on_pool(graph, pool, pins), contiguous=contiguous, by_hand=((0,),) * len(graph.operators)
        )
        for name, placer in PLACERS.items():
            if placer.why_not(problem):
                continue
            try:
                report = solve_placement(name, problem, options_of(name))
            except InputError:
                report = None
            if report is None:
                assert least is None
                continue
            if least is not None and least <= pool.memory:
                assert report.solution is not None or placer.name not in ("dp", "cp-sat")
                assert report.least_memory is None
                continue
            assert report.status is Status.INFEASIBLE
            assert any(each in report.reason for each in ("operator ", "accelerators", "device "))
            assert report.least_memory == least
            if report.least_accelerators is not None:
                more = replace(pool, accelerators=report.least_accelerators)
                _check_enough(graph, more, pins, contiguous=contiguous)


def _check_enough(graph: OperatorGraph, more: DevicePool, pins: Sequence[Allowance], *, contiguous: bool) -> None:
    """Assert that this many accelerators suffice and one less does not, if few enough to try all."""
    if (more.accelerators + more.cpus) ** len(graph.operators) > 5000:
        return
    only = {each.operator: each.devices for each in pins}
    enough = least_capacity(graph, more, only, contiguous=contiguous)
    fewer = least_capacity(graph, replace(more, accelerators=more.accelerators - 1), only, contiguous=contiguous)
    assert enough is not None
    assert enough <= (more.memory or 0)
    assert fewer is None or fewer > (more.memory or 0)


@pytest.mark.parametrize("seed", seeds(200, 230))
def test_every_placer_says_what_would_do_for_a_latency(seed: int) -> None:
    graph, pool = random_graph(seed, most=4), DevicePool(2, seed % 2, 1)
    pins = random_pins(graph, pool, seed)
    names = [device.name for device in pool.devices(graph)]
    only = {each.operator: each.devices for each in pins}

    def exists(memory: float | None) -> bool:
        roomy = replace(pool, memory=memory)
        return any(
            latency_of(graph, roomy, split) is not None
            for split in every_split(graph, roomy, 1)
            if all(names[split[graph.operator_index(each)][0]] in on for each, on in only.items())
        )

    problem = replace(PlacementProblem.on_pool(graph, pool, pins), objective=LATENCY)
    for name in (name for name, placer in PLACERS.items() if not placer.why_not(problem)):
        try:
            report = solve_placement(name, problem)
        except InputError:
            assert not exists(None)
            continue
        if exists(pool.memory):
            assert report.least_memory is None
            continue
        assert report.status is Status.INFEASIBLE
        assert (report.least_memory is None) == (not exists(None))
        if report.least_memory is not None:
            assert exists(report.least_memory)
            assert not exists(report.least_memory - 1)


GIB = 2**30


def held(*sizes: float) -> OperatorGraph:
    """Return independent operators with these sizes."""
    time = (DeviceTime("gpu", 1.0), DeviceTime(CPU, 9.0))
    return OperatorGraph("held", tuple(Operator(f"o{i}", times=time, size=size) for i, size in enumerate(sizes)))


@pytest.mark.parametrize("contiguous", [True, False])
def test_the_least_is_right_to_the_byte_where_memories_are_large(contiguous: bool) -> None:
    """80 and 70 GiB and a byte against 40 and 30 GiB: rounding errors of sums must not hide the byte."""
    graph, pool = held(40.0 * GIB, 30.0 * GIB, 40.0 * GIB + 1, 40.0 * GIB), DevicePool(2, 0, 75.0 * GIB)
    problem = replace(PlacementProblem.on_pool(graph, pool), contiguous=contiguous)
    least = solve_placement("cp-sat", problem).least_memory
    assert least == 80 * GIB
    for memory, status in ((least, Status.PROVED_OPTIMAL), (least - 1, Status.INFEASIBLE)):
        asked = replace(problem, devices=replace(pool, memory=float(memory)).devices(graph))
        for name in ("dp", "cp-sat")[not contiguous :]:
            assert solve_placement(name, asked).status is status


def test_least_bytes_are_whole_and_never_too_few() -> None:
    assert [least_bytes(each, each) for each in (0.0, 7.0, 7.3, 5e12)] == [0, 7, 8, 5 * 10**12]
    assert least_bytes(7.0, 5.5) is None, "six may do: the bound does not exclude it"


def test_what_is_pinned_to_a_device_is_named_where_it_is_too_much() -> None:
    devices = tuple(PlacementDevice(f"d{i}", "gpu", capacity) for i, capacity in enumerate((5.0, 9.0)))
    pins = (Allowance("o0", ("d0",)), Allowance("o2", ("d0",)))
    problem = PlacementProblem(held(3, 1, 4), devices, allowances=pins)
    report = solve_placement("dp", problem)
    assert report.reason == "device d0 has 5 bytes, but the operators pinned to it (o0, o2) hold 7"
    assert (report.status, report.least_memory, report.least_accelerators) == (Status.INFEASIBLE, 7, None)


def test_more_accelerators_take_what_is_not_pinned() -> None:
    """Three operators of 2 bytes, two of them pinned to one device of 4. The third needs another device."""
    problem = PlacementProblem.on_pool(
        held(2, 2, 2, 2, 2), DevicePool(2, 0, 4), [Allowance("o0", ("acc0",)), Allowance("o1", ("acc0",))]
    )
    report = solve_placement("dp", problem)
    assert (report.status, report.least_memory, report.least_accelerators) == (Status.INFEASIBLE, 6, 3)


def test_a_host_keeps_its_own_limit() -> None:
    """A host of 4 bytes takes one operator of 3 and no more, for any number of accelerators."""
    devices = (PlacementDevice("d0", "gpu", 5.0), PlacementDevice("cpu0", CPU, 4.0))
    report = solve_placement("dp", PlacementProblem(held(3, 3, 3), devices))
    assert (report.status, report.least_memory) == (Status.INFEASIBLE, 6)
