"""The referee of placements: for each rule a legal and an illegal example."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessel_core.costs.reductions import ReplicaOptions, replication_on
from tessel_core.model import CPU, Allowance, DevicePool, DeviceTime, Edge, Operator, OperatorGraph, Placement, Status
from tessel_core.rules import (
    check_allowances,
    check_placement,
    check_placement_claims,
)
from tessel_core.rules.placement_referee import PLACEMENT_RULES

BOTH = (DeviceTime("gpu", 1.0), DeviceTime(CPU, 5.0))
POOL = DevicePool(2, 1, 4)
REPLICATION = replication_on(POOL, ReplicaOptions())


def graph(*operators: Operator, edges: str = "") -> OperatorGraph:
    """Return a graph with edges from text such as "ab bc": a to b, b to c."""
    links = tuple(Edge(source, target, cost=0.5) for source, target in edges.split())
    return OperatorGraph("example", operators, links)


def on(shown: OperatorGraph, *devices: int) -> Placement:
    """Return a placement. Devices 0 and 1 are accelerators, 2 is the host, -1 is none."""
    return Placement(shown, POOL.devices(shown), tuple(() if d < 0 else (d,) for d in devices))


def shared(shown: OperatorGraph, *assignment: tuple[int, ...]) -> Placement:
    """Return a placement with operators on replicas."""
    return Placement(shown, POOL.devices(shown), assignment, replication=REPLICATION)


A, B, C = (Operator(name, times=BOTH) for name in "abc")
LINE = graph(A, B, C, edges="ab bc")
FAST = graph(replace(A, times=BOTH[:1]), B)
HEAVY = graph(replace(A, size=3.0), replace(B, size=2.0))
COLOURED = graph(replace(A, colour="red"), B, replace(C, colour="red"))
MATES = graph(A, B, replace(C, backward=True, forward_of="a"), edges="ab bc")
ORPHANS = graph(A, B, replace(C, backward=True), Operator("d", times=BOTH, backward=True, forward_of="b"), edges="cd")
CASES = {
    "assigned": (on(LINE, 0, 1, 1), on(LINE, 0, 1, -1)),
    "supported": (on(FAST, 0, 2), on(FAST, 2, 0)),
    "colours": (on(COLOURED, 0, 1, 0), on(COLOURED, 0, 0, 1)),
    "backward follows": (on(MATES, 0, 1, 0), on(MATES, 0, 1, 1)),
    "memory": (on(HEAVY, 0, 1), on(HEAVY, 0, 0)),
    "replicas": (shared(LINE, (0, 1), (0, 1), (2,)), shared(LINE, (0, 1), (0, 1), (1,))),
    "contiguous": (on(LINE, 1, 1, 0), on(LINE, 0, 1, 0)),
    "stages": (replace(on(LINE, 0, 1, 0), stages=(0, 1, 2)), replace(on(LINE, 0, 1, 0), stages=(2, 1, 0))),
}


@pytest.mark.parametrize("rule", PLACEMENT_RULES)
def test_each_rule_alone_tells_right_from_wrong(rule: str) -> None:
    legal, illegal = CASES[rule]
    assert check_placement(legal) == []
    assert {violation.rule for violation in check_placement(illegal)} == {rule}
    assert check_placement(illegal, without=(rule,)) == []


def test_replicas_are_of_one_kind_and_no_hosts() -> None:
    mixed, hosts = (
        shared(graph(A), (0, 2)),
        replace(shared(graph(A), (0, 1)), devices=DevicePool(0, 2).devices(graph(A))),
    )
    assert [found.rule for each in (mixed, hosts) for found in check_placement(each)] == ["replicas", "replicas"]


def test_replicas_divide_activations_and_hold_all_weights() -> None:
    kept = replace(A, weight_bytes=1, activation_bytes=4)
    assert [found.rule for found in check_placement(shared(graph(kept), (0,)))] == ["memory"]
    assert check_placement(shared(graph(kept), (0, 1))) == []


def test_the_host_holds_anything() -> None:
    assert check_placement(on(HEAVY, 2, 2)) == []


def test_a_chain_of_ideals_is_more_than_convex() -> None:
    """a -> b and c -> d, A = {a, d}, B = {b, c}: no path leaves and returns, yet each set needs the other."""
    crossed = graph(*(Operator(name, times=BOTH) for name in "abcd"), edges="ab cd")
    assert [found.rule for found in check_placement(on(crossed, 0, 1, 1, 0))] == ["contiguous"]
    assert check_placement(on(crossed, 0, 1, 0, 1)) == []


def test_the_backward_of_nothing_takes_the_way_back() -> None:
    """c has no forward operator and feeds d, the backward of b.

    So c's device comes first in the backward, last in the forward.
    """
    behind = replace(ORPHANS, edges=(Edge("c", "d"), Edge("a", "b")))
    assert check_placement(on(behind, 0, 1, 1, 1)) == []
    assert [found.rule for found in check_placement(on(behind, 0, 1, 0, 1))] == ["contiguous"]


def test_operators_stay_where_they_may_go() -> None:
    allowances = (Allowance("a", ("acc1", "cpu0")), Allowance("b", ()))
    assert list(check_allowances(on(LINE, 1, -1, 0), allowances)) == []
    assert [str(each) for each in check_allowances(on(LINE, 0, 2, 0), allowances)] == [
        "operator a: is on acc0, but is only allowed on acc1 and cpu0 [allowances]",
        "operator b: is on cpu0, but is only allowed on no device [allowances]",
    ]


@pytest.mark.parametrize(
    ("status", "objective", "bound", "said"),
    [
        (Status.FEASIBLE, 2.5, 1.0, []),
        (Status.PROVED_OPTIMAL, 2.5, 2.5, []),
        (Status.FEASIBLE, 2.0, 1.0, ["claims a throughput of 2, but the placement's is 2.5"]),
        (Status.FEASIBLE, 2.5, 3.0, ["is 3, above the objective of 2.5"]),
        (Status.PROVED_OPTIMAL, 2.5, 2.0, ["says optimal, but the bound does not meet the objective"]),
    ],
)
def test_claims_are_held_against_the_placement(status: Status, objective: float, bound: float, said: list[str]) -> None:
    """a is alone on acc0, b and c are on acc1: 1 + 0.5 and 2 + 0.5."""
    found = check_placement_claims(on(LINE, 0, 1, 1), status, "throughput", objective, bound)
    assert [each.why for each in found] == said
