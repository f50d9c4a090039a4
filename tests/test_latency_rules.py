"""The referee of latency placements: for each rule a legal and an illegal example, and times by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_placement_rules import BOTH, COLOURED, FAST, HEAVY, LINE, MATES, POOL, A, B, C, graph

from tessel_core.errors import InputError
from tessel_core.model import (
    CPU,
    Communication,
    Device,
    DeviceMesh,
    DeviceTime,
    Edge,
    Latency,
    Link,
    Operator,
    OperatorGraph,
    Placement,
    Status,
    Transfers,
)
from tessel_core.rules import check_placement, check_placement_claims
from tessel_core.rules.placement_referee import LATENCY_RULES

CROSSED = graph(*(Operator(name, times=BOTH) for name in "abcd"), edges="ab cd")


def on(shown: OperatorGraph, *places: str) -> Placement:
    """Return a placement from text.

    "01" are devices and subgraphs: 0 and 1 are accelerators, 2 is the host, - is none.
    """
    where = [(place.split(".")[0], int((place + ".0").split(".")[1])) for place in places]
    assignment = tuple(() if devices == "-" else tuple(map(int, devices)) for devices, _ in where)
    return Placement(shown, POOL.devices(shown), assignment, subgraphs=tuple(index for _, index in where))


CASES = {
    "assigned": (on(LINE, "0", "1", "1"), on(LINE, "0", "1", "-")),
    "supported": (on(FAST, "0", "2"), on(FAST, "2", "0")),
    "colours": (on(COLOURED, "0", "1", "0.1"), on(COLOURED, "0", "0", "1")),
    "backward follows": (on(MATES, "0", "1", "0.1"), on(MATES, "0", "1", "1")),
    "memory": (on(HEAVY, "0", "1"), on(HEAVY, "0.0", "0.1")),
    "alone": (on(LINE, "0", "1", "1"), on(LINE, "01", "1", "1")),
    "contiguous subgraphs": (on(LINE, "0.0", "1", "0.1"), on(LINE, "0", "1", "0")),
    "order": (on(LINE, "0.0", "1", "0.1"), on(LINE, "0.1", "1", "0.0")),
}


@pytest.mark.parametrize("rule", LATENCY_RULES)
def test_each_rule_alone_tells_right_from_wrong(rule: str) -> None:
    legal, illegal = CASES[rule]
    assert check_placement(legal) == []
    assert {violation.rule for violation in check_placement(illegal)} == {rule}
    assert check_placement(illegal, without=(rule,)) == []


def test_two_subgraphs_that_need_each_other_are_in_a_circle() -> None:
    """a -> b and c -> d, with {a, d} and {b, c}. Each set is convex, but neither can start first."""
    (found,) = check_placement(on(CROSSED, "0", "1", "1", "0"))
    assert (found.rule, found.where) == ("contiguous subgraphs", "subgraph 0 of acc0")
    assert check_placement(on(CROSSED, "0.0", "1", "1", "0.1")) == []
    with pytest.raises(InputError, match="wait for each other in a cycle"):
        Latency.of(on(CROSSED, "0", "1", "1", "0"))


def test_two_devices_whose_orders_contradict_each_other_never_start() -> None:
    assert [found.rule for found in check_placement(on(CROSSED, "0.1", "1.0", "1.1", "0.0"))] == ["order"]
    assert check_placement(on(CROSSED, "0.0", "1.0", "1.1", "0.1")) == []


def test_hosts_hold_anything_and_run_anything_at_once() -> None:
    assert check_placement(on(HEAVY, "2", "2")) == []
    assert Latency.of(on(HEAVY, "2", "2")).total == 5
    assert Latency.of(on(LINE, "2", "2", "2")).total == 15


def test_times_by_hand() -> None:
    """a feeds b, c and d, each output costs 0.5: 1 + 0.5 for a; b and c together 2 + 0.5; d on the host 5."""
    fan = graph(A, B, C, Operator("d", times=BOTH), edges="ab ac ad")
    latency = Latency.of(on(fan, "0", "1", "1", "2"))
    shown = {step.operators: (step.device, step.start, step.finish) for step in latency.steps}
    assert shown == {(0,): (0, 0, 1.5), (1, 2): (1, 1.5, 4), (3,): (2, 1.5, 6.5)}
    assert latency.total == 6.5
    assert [latency.busy(device) for device in range(3)] == [1.5, 2.5, 5]


def test_subgraphs_of_a_device_run_in_order_and_pay_the_way_through_the_host() -> None:
    """b waits for a's device although it needs no input. c needs b from the previous subgraph."""
    free = graph(A, B, C, edges="bc")
    latency = Latency.of(on(free, "0.0", "0.1", "0.2"))
    assert [(step.operators, step.start, step.finish) for step in latency.steps] == [
        ((0,), 0, 1),
        ((1,), 1, 2.5),
        ((2,), 2.5, 4),
    ]
    assert Latency.of(on(free, "0", "1", "1")).total == 2


def test_links_of_a_mesh_by_hand() -> None:
    """8 bytes take 2 s inside the node and 7 s between nodes.

    The sender pays the slower, or each arrives on its own.
    """
    devices = (Device("g0", "gpu"), Device("g1", "gpu"), Device("g2", "gpu", node=1))
    mesh = DeviceMesh("m", devices, same_node_link=Link(8.0, 1.0), default_link=Link(2.0, 3.0))
    fan = OperatorGraph(
        "fan",
        tuple(Operator(name, times=(DeviceTime("gpu", 1.0),), output_bytes=8) for name in "abc"),
        (Edge("a", "b"), Edge("a", "c")),
    )

    def total(*places: int, communication: Communication, subgraphs: tuple[int, ...] = (0, 0, 0)) -> float:
        assignment = tuple((place,) for place in places)
        transfers = Transfers(mesh, communication)
        return Latency.of(Placement(fan, mesh.placement_devices, assignment, transfers, subgraphs)).total

    assert total(0, 1, 2, communication=Communication.BLOCKING) == (1 + 7) + (7 + 1)
    assert total(0, 1, 1, communication=Communication.BLOCKING) == (1 + 2) + (2 + 2)
    assert total(0, 1, 2, communication=Communication.OVERLAPPED) == 1 + 7 + 1
    assert total(0, 0, 0, communication=Communication.BLOCKING, subgraphs=(0, 1, 2)) == 3


@pytest.mark.parametrize(
    ("status", "objective", "bound", "said"),
    [
        (Status.FEASIBLE, 4.0, 1.0, []),
        (Status.PROVED_OPTIMAL, 4.0, 4.0, []),
        (Status.FEASIBLE, 3.0, 1.0, ["claims a latency of 3, but the placement's is 4"]),
    ],
)
def test_claims_are_held_against_the_placement(status: Status, objective: float, bound: float, said: list[str]) -> None:
    """a is alone on acc0, 1 + 0.5, then b and c are on acc1, 0.5 + 2."""
    found = check_placement_claims(on(LINE, "0", "1", "1"), status, "latency", objective, bound)
    assert [each.why for each in found] == said


def test_what_has_no_subgraphs_or_no_single_device_has_no_latency() -> None:
    with pytest.raises(InputError, match="has no subgraphs"):
        Latency.of(replace(on(LINE, "0", "1", "1"), subgraphs=None))
    with pytest.raises(InputError, match="operator a: must have one device for a latency, but has 2"):
        Latency.of(on(LINE, "01", "1", "1"))
    with pytest.raises(InputError, match=r"subgraphs: has 2 entries, but the graph has 3 operators"):
        replace(on(LINE, "0", "1", "1"), subgraphs=(0, 0))
    assert LINE.operators[0].time_on(CPU) == 5
