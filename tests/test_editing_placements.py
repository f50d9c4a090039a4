"""Placements changed by hand: a change is refused exactly if the referee refuses it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from helpers.graphs import random_graph

from tessel_core.charts.graph.groups import GraphView, GroupBy, MarkedGraph, marked
from tessel_core.charts.placement_lanes import pieces_of, placement_data
from tessel_core.charts.timeline import timeline_frames
from tessel_core.editing.placement import Movable
from tessel_core.model import (
    Allowance,
    DevicePool,
    DeviceTime,
    Operator,
    OperatorGraph,
    Placement,
    PlacementDevice,
    PlacementLoads,
)
from tessel_core.rules import check_allowances, check_placement


def broken(movable: Movable, placement: Placement) -> set[str]:
    """Return the broken rules with their places, and the excess of memory."""
    found = check_placement(placement, without=() if movable.contiguous else ("contiguous",))
    return {str(each) for each in (*found, *check_allowances(placement, movable.pins))}


def random_placement(seed: int) -> Placement:
    """Return a random placement of up to nine operators, some of them on two devices or on none."""
    graph, choose = random_graph(seed, 9), Random(seed)
    pool = DevicePool(choose.randint(2, 4), choose.randint(0, 1), memory=choose.choice((None, 3.0, 6.0)))
    devices = pool.devices(graph)
    on = [tuple(choose.sample(range(len(devices)), choose.choice((1, 1, 1, 1, 2)))) for _ in graph.colocated]
    if choose.random() < 0.7:  # a chain
        order = sorted(choose.choices(range(len(devices)), k=len(on)))
        on = [(order[i],) for i in range(len(on))]
    return Placement(graph, devices, tuple(on[group] for group in graph.group_of))


def test_what_is_refused_is_what_the_referee_refuses() -> None:
    seen = dict.fromkeys(("valid", "pinned", "time", "hold", "circle", "free"), 0)
    for seed in range(2500):
        placement, choose = random_placement(seed), Random(-seed)
        names = [device.name for device in placement.devices]
        pinned = choose.choice(placement.graph.operators).name
        kept = tuple(placement.devices[d].name for d in placement.assignment[placement.graph.operator_index(pinned)])
        movable = Movable(placement, (Allowance(pinned, kept),) if choose.random() < 0.5 else (), choose.random() < 0.8)
        if broken(movable, placement):
            continue
        seen["valid"] += 1
        operators = choose.sample(range(len(placement.graph.operators)), choose.choice((1, 1, 2)))
        for device, why in enumerate(movable.why_not(operators)):
            after = movable.moved(operators, device)
            assert bool(why) == bool(broken(movable, after)), (seed, names[device], why, broken(movable, after))
            word = next((each for each in seen if each in why), "free") if why else "free"
            seen[word] += 1
    assert min(seen.values()) > 50, seen


def test_subgraphs_that_would_wait_for_each_other_are_refused_too() -> None:
    refused = 0
    for seed in range(300):
        found = random_placement(seed)
        alone = replace(
            found, assignment=tuple(on[:1] for on in found.assignment), subgraphs=(0,) * len(found.assignment)
        )
        movable = Movable(alone)
        if broken(movable, alone):
            continue
        for operator in range(len(alone.assignment)):
            for device, why in enumerate(movable.why_not([operator])):
                assert bool(why) == bool(broken(movable, movable.moved([operator], device))), (seed, operator, why)
                refused += "subgraph" in why
    assert refused > 20


def test_an_overfull_device_gives_and_takes_no_more() -> None:
    operators = tuple(Operator(name, times=(DeviceTime("gpu", 1.0),), size=2.0) for name in "abc")
    devices = tuple(PlacementDevice(f"gpu{d}", "gpu", 3.0) for d in range(2))
    movable = Movable(Placement(OperatorGraph("full", operators), devices, ((0,), (0,), (1,))))
    assert movable.why_not([0]) == ("", "gpu1 would hold 4 B of 3 B")
    assert movable.why_not([2]) == ("gpu0 would hold 6 B of 3 B", "")


def test_each_drag_makes_the_lanes_as_long_as_the_loads_are() -> None:
    for seed in range(60):
        before, choose = random_placement(seed), Random(seed)
        marks = marked(before.graph, GraphView(GroupBy.COLOUR), before)
        movable, pieces = Movable(before), pieces_of(before, marks)
        header = _header(movable, marks)
        number, device = choose.randrange(len(pieces)), choose.randrange(len(before.devices))
        moves = header["moves"]
        assert moves["reasons"][moves["of"][number][device]] == movable.why_not(pieces[number].operators)[device]
        assert number in moves["along"][number]
        after = movable.moved(pieces[number].operators, device)
        for placement in (before, after):
            loads = PlacementLoads.of(placement).load
            lanes = [0.0] * len(loads)
            for block in _header(Movable(placement), marks)["blocks"]:
                lanes[block["devices"][0]] += block["duration"] / 1e6  # ms
            assert lanes == pytest.approx(loads)


def _header(movable: Movable, marks: MarkedGraph) -> dict[str, Any]:
    ((header, columns),) = timeline_frames(placement_data(movable, marks))
    assert len(columns["block"]) == len(header["blocks"])
    return header
