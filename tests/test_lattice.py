"""The table of the lattice level is the placement search's own table, and the referee refuses cycles."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from helpers.graphs import least_load, random_graph
from helpers.seeds import reaching, seeds

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile
from tessel_core.learning.decks.ideals import network, proved
from tessel_core.learning.filling import contiguity, filling
from tessel_core.learning.lattice import Lattice
from tessel_core.learning.lattice_picture import number, short_names
from tessel_core.model import FORWARD_BACKWARD, DevicePool, Edge, OperatorGraph, Status
from tessel_core.placement import PlacementProblem
from tessel_core.rules import check_placement
from tessel_core.samples import load_graph
from tessel_core.workbench.placing import Placing


def problem(graph: OperatorGraph, accelerators: int = 3, memory: int | None = None) -> PlacementProblem:
    return PlacementProblem.on_pool(graph, DevicePool(accelerators, 0, memory))


@pytest.mark.parametrize("seed", seeds(60))
def test_the_table_ends_at_the_least_load_of_all_placements(seed: int) -> None:
    """With transfers, colours, backward operators and tight memory."""
    pool = DevicePool(2 + seed % 2, 0, (None, 6)[seed % 3 == 0])
    unlimited = replace(pool, memory=None)
    graph = random_graph(reaching(seed, lambda each: least_load(random_graph(each), unlimited) is not None))
    least = least_load(graph, pool)
    lattice = Lattice.of(PlacementProblem.on_pool(graph, pool))
    assert lattice.best[-1][lattice.ideals[-1]] == (inf if least is None else pytest.approx(least))
    stages = [after - before for before, after in pairwise(lattice.chain)]
    assert (lattice.chain == ()) == (least is None)
    if stages:
        assert max(map(lattice.load, stages)) == pytest.approx(least)


def test_what_the_browser_gets_is_the_table() -> None:
    table, lattice = filling(problem(network())), Lattice.of(problem(network()))
    assert [row[-1] for row in table["best"]] == [None, 30.0, 16.0, 11.0]
    for row, cuts in zip(table["best"][2], table["cuts"], strict=True):
        assert row == min(max(table["best"][1][cut], rest) for cut, rest in cuts)
    assert table["chain"][0] == 0
    assert table["ideals"][0] == "nothing"
    assert table["ideals"][-1] == "j"
    assert table["called"] == []
    assert set(table["stages"]) == {"a, b, c", "d, e, f", "g – j"}
    assert number(lattice, inf, "s") == "–"


def test_names_that_are_too_long_for_pictures_are_numbers_and_escaped() -> None:
    graph = network()
    called = {each.name: f"<b>{each.name}" for each in graph.operators}
    operators = tuple(replace(each, name=called[each.name]) for each in graph.operators)
    renamed = replace(
        graph, operators=operators, edges=tuple(Edge(called[e.source], called[e.target]) for e in graph.edges)
    )
    table = filling(problem(renamed))
    assert table["called"][0] == "1 <b>a"
    assert "<b>" not in table["picture"]
    assert "<b>" not in short_names(Lattice.of(problem(renamed))).values()


def test_any_sets_are_shown_with_their_circles() -> None:
    loose = proved(contiguous=False)
    chain, sets = contiguity(problem(network()), loose)
    assert "11 s, proved" in chain["says"]
    assert "10 s, proved" in sets["says"]
    lattice = Lattice.of(problem(network()))
    assert loose.solution is not None
    marked = lattice.in_circles(lattice.placed(loose.solution))
    assert sets["picture"].count("dasharray") == len(marked) > 0 == chain["picture"].count("dasharray")
    assert check_placement(loose.solution), "the referee refuses it where placements are to be contiguous"
    stages = tuple(after - before for before, after in pairwise(lattice.chain))
    assert lattice.in_circles(stages) == ()
    nothing = replace(loose, solution=None, status=Status.NOTHING_FOUND)
    assert [each["title"] for each in contiguity(problem(network()), nothing)] == ["Contiguous"]


def test_what_has_no_table_says_why() -> None:
    with pytest.raises(InputError, match="needs the objective throughput"):
        Lattice.of(replace(problem(network()), objective=FORWARD_BACKWARD))
    with pytest.raises(InputError, match="needs equal devices"):
        Lattice.of(PlacementProblem.on_pool(random_graph(1), DevicePool(2, 1)))
    with pytest.raises(InputError, match="more than 200 ideals"):
        Lattice.of(Placing(graph=GraphFile.of(load_graph("resnet50-training"))).problem)


def test_a_network_on_a_mesh_has_the_table_of_what_the_placer_proves() -> None:
    placing = Placing(graph=GraphFile.of(load_graph("mt5-base-training")))
    report = placing.question.solve(Control())
    lattice = Lattice.of(placing.problem)
    assert report.status is Status.PROVED_OPTIMAL
    assert lattice.best[-1][lattice.ideals[-1]] == pytest.approx(float(report.objective or 0))
