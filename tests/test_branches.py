"""Branches on separate devices: brute force, K-shaped plans of CLIP-like pairs, and the same rule everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import networkx
import pytest
from helpers.graphs import is_allowed, is_chain, least_load, loads_of, random_graph, random_pool
from helpers.seeds import reaching, seeds
from helpers.terminal import Tessel, terminal

from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError, RefereeError
from tessel_core.formats import GraphFile, read_placement
from tessel_core.model import (
    FORWARD_BACKWARD,
    LATENCY,
    THROUGHPUT,
    MicroBatchPlan,
    OperatorGraph,
    PlacementReport,
    Status,
)
from tessel_core.model.layers import layer_of
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.placement import PLACERS, PlacementProblem, find_placer, solve_placement
from tessel_core.placement.branches import branches_apart, branches_of
from tessel_core.placement.dp import DpConfig
from tessel_core.planning import plan_of
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.placement import broken_rules
from tessel_core.workbench.placement_files import placement_file_text, with_placement
from tessel_core.workbench.placing import Placing

PAIR = replace(GRAPHS["clip"].presets["clip-l-14"], training=True, granularity="layers", micro_batch=8)


def pair_on(devices: int, *, apart: bool = True) -> PlacementProblem:
    """Return the training graph of a CLIP-like pair on H200s."""
    mesh = find_mesh(f"h200-{devices}")
    problem = PlacementProblem.on_mesh(costed(build_graph("clip", PAIR), mesh, CostOptions()), mesh)
    return replace(problem, branches_apart=apart)


def plan_on(devices: int, *, apart: bool = True) -> MicroBatchPlan:
    """Return the plan of the placement with the highest throughput."""
    report = solve_placement("dp", pair_on(devices, apart=apart))
    assert report.solution is not None
    return plan_of(report.solution)


def side_by_side(graph: OperatorGraph) -> set[frozenset[int]]:
    """Return pairs of operators that no path connects, from the transitive closure."""
    flow = networkx.DiGraph(graph.flow)
    flow.add_nodes_from(range(len(graph.colocated)))
    whole = networkx.condensation(flow)
    closure = networkx.transitive_closure_dag(whole)
    degree = {node: closure.in_degree(node) + closure.out_degree(node) for node in closure}
    inner = whole.subgraph([node for node in whole if degree[node] < len(whole) - 1]).to_undirected()
    part = {node: i for i, members in enumerate(networkx.connected_components(inner)) for node in members}
    node_of = {i: whole.graph["mapping"][group] for group, members in enumerate(graph.colocated) for i in members}
    found = set()
    for one, other in combinations(range(len(graph.operators)), 2):
        u, v = node_of[one], node_of[other]
        paths = u == v or closure.has_edge(u, v) or closure.has_edge(v, u)
        if u in part and v in part and part[u] != part[v] and not paths:
            found.add(frozenset((one, other)))
    return found


def loads_apart(seed: int) -> list[float]:
    """Return the largest load of each chain of a random graph that keeps its branches apart."""
    graph, pool = random_graph(seed), random_pool(seed)
    return [
        max(loads_of(graph, pool, on))
        for on in product(range(len(pool.devices(graph))), repeat=len(graph.operators))
        if is_allowed(graph, pool, on)
        and is_chain(graph, on)
        and not any(on[one] == on[other] for one, other in map(tuple, side_by_side(graph)))
    ]


def kept_apart(seed: int) -> PlacementReport:
    problem = PlacementProblem.on_pool(random_graph(seed), random_pool(seed))
    return solve_placement("dp", replace(problem, branches_apart=True))


@pytest.mark.parametrize("seed", seeds(150))
def test_branches_are_operators_between_which_no_path_leads(seed: int) -> None:
    graph = random_graph(seed)
    known = {frozenset(p) for s in branches_of(graph) for a, b in combinations(s, 2) for p in product(a, b)}
    assert known == side_by_side(graph)


@pytest.mark.parametrize("seed", seeds(150))
def test_nothing_with_branches_apart_is_better_than_the_dynamic_program(seed: int) -> None:
    seed = reaching(seed, lambda each: bool(side_by_side(random_graph(each)) and loads_apart(each)))
    report = kept_apart(seed)
    assert report.status is Status.PROVED_OPTIMAL
    assert float(report.objective or 0) == pytest.approx(min(loads_apart(seed)))


@pytest.mark.parametrize("seed", seeds(60))
def test_where_no_placement_keeps_branches_apart_the_placer_says_so(seed: int) -> None:
    def together(each: int) -> bool:
        """Return a graph that has placements, but none with separate branches."""
        graph, pool = random_graph(each), random_pool(each)
        return least_load(graph, pool) is not None and not loads_apart(each)

    assert kept_apart(reaching(seed, together)).status is Status.INFEASIBLE


def test_branches_are_the_encoders_of_a_pair_and_a_chain_has_none() -> None:
    graph = build_graph("clip", replace(PAIR, granularity="operators", layers=2, text_layers=2))
    (stretch,) = branches_of(graph)
    layers = [{layer_of(graph.operators[i]) for i in branch} for branch in stretch]
    assert layers == [
        {"image_embedding", "image0", "image1", "image_end"},
        {"text_embedding", "text0", "text1", "text_end"},
    ]
    assert branches_of(build_graph("gpt", replace(next(iter(GRAPHS["gpt"].presets.values())), training=True))) == ()


@pytest.mark.parametrize("devices", [4, 8])
def test_a_pair_with_branches_apart_is_a_k_shaped_plan(devices: int) -> None:
    """Two chains of stages on separate devices are joined by the last stage. The backward is the mirror image."""
    plan = plan_on(devices)
    before = {
        block.name: [a.predecessor for a in plan.dependencies if a.successor == block.name] for block in plan.blocks
    }
    forward = {block.name: block for block in plan.blocks if block.name.startswith("F")}
    assert len(forward) == devices == len({block.devices for block in forward.values()})
    starts = [name for name in forward if not before[name]]
    (join,) = (name for name in forward if len(before[name]) == 2)
    chains = []
    for last in before[join]:
        chain = [last]
        while before[chain[-1]]:
            (previous,) = before[chain[-1]]
            chain.append(previous)
        chains.append(chain)
    assert sorted(chain[-1] for chain in chains) == sorted(starts)
    assert len(starts) == 2
    assert not set(chains[0]) & set(chains[1])
    assert len(chains[0]) + len(chains[1]) + 1 == devices
    assert {"text" in name for name in chains[0]} != {"text" in name for name in chains[1]}


def test_a_k_shape_takes_less_time_for_few_micro_batches_and_more_for_many() -> None:
    """On four H200s, texts fill one device, so the period is 21 % longer. The warmup of three stages is shorter."""
    mixed, apart = plan_on(4, apart=False), plan_on(4)
    assert apart.busiest_work == pytest.approx(1.205 * mixed.busiest_work, rel=5e-3)
    config = TesselConfig(time_limit=20.0)

    def ratio(micro_batches: int) -> float:
        spans = [solve_schedule("tessel", plan, micro_batches, config).makespan or 0 for plan in (apart, mixed)]
        return spans[0] / spans[1]

    assert ratio(1) == pytest.approx(22.08 / 31.68, rel=0.01)
    assert ratio(4) == pytest.approx(42.43 / 55.42, rel=0.01)
    assert ratio(16) > 1


def test_the_least_latency_has_encoders_apart_where_a_device_runs_two_subgraphs() -> None:
    """With one subgraph per device, texts would run forward and backward at once, before the images are there."""
    mesh = find_mesh("h200-2")
    graph = costed(build_graph("clip", replace(PAIR, layers=6, text_layers=6)), mesh, CostOptions())
    problem = replace(PlacementProblem.on_mesh(graph, mesh), objective=LATENCY)
    placer = find_placer("latency-cp-sat")
    one, two = (solve_placement(placer.name, problem, placer.config(subgraphs=count)) for count in (1, 2))
    assert one.status is two.status is Status.PROVED_OPTIMAL
    assert one.solution is not None
    assert two.solution is not None
    assert len([on for on in one.solution.operators_on if on]) == 1
    assert list(branches_apart(two.solution)) == []
    assert float(two.objective or 0) < 0.85 * float(one.objective or 0)


def test_cp_sat_proves_the_same_and_takes_over_beyond_the_most_cuts() -> None:
    problem = pair_on(4)
    least = solve_placement("dp", problem).objective
    by_model = solve_placement("cp-sat", problem)
    assert (by_model.status, float(by_model.objective or 0)) == (
        Status.PROVED_OPTIMAL,
        pytest.approx(float(least or 0)),
    )
    fine = build_graph("clip", replace(PAIR, layers=4, text_layers=4, granularity="operators"))
    mesh = find_mesh("h200-3")
    many = replace(PlacementProblem.on_mesh(costed(fine, mesh, CostOptions()), mesh), branches_apart=True)
    report = solve_placement("dp", many, DpConfig(most_ideals=1000, time_limit=10.0))
    assert report.solution is not None
    assert list(branches_apart(report.solution)) == []
    assert report.objective is not None
    assert report.objective >= (solve_placement("dp", many).objective or 0) * (1 - 1e-9)


def test_a_device_less_than_branches_is_infeasible_and_says_how_many_do() -> None:
    report = solve_placement("dp", pair_on(1))
    assert report.status is Status.INFEASIBLE
    assert (
        report.reason == "1 accelerators and 0 CPUs can be given no stages that follow the flow and keep branches apart"
    )
    assert report.least_accelerators == 2


def test_who_cannot_keep_branches_apart_says_so() -> None:
    problem = pair_on(4)
    serving = [name for name, each in PLACERS.items() if not each.why_not(problem)]
    assert serving == ["dp", "cp-sat", "expert"]
    assert find_placer("greedy").why_not(problem) == "cannot keep branches apart"
    for changes in ({"contiguous": False}, {"objective": FORWARD_BACKWARD}):
        with pytest.raises(InputError, match="can be kept apart only in contiguous placements for the throughput"):
            replace(problem, **changes)  # type: ignore[arg-type]


def test_a_placer_of_ours_that_mixes_branches_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = solve_placement("dp", pair_on(4, apart=False))
    liar = replace(find_placer("dp"), solve=lambda problem, config, control: mixed)
    monkeypatch.setattr("tessel_core.placement.placers.find_placer", lambda name: liar)
    with pytest.raises(
        RefereeError, match=r"dp returned an invalid placement: device gpu0: has .* on parallel branches"
    ):
        solve_placement("dp", pair_on(4))


def test_a_move_that_would_mix_branches_is_refused_and_a_file_keeps_the_rule() -> None:
    placing = Placing().opened(GraphFile.of(build_graph("clip", PAIR)), "a test")
    placing = placing.wanting(THROUGHPUT, contiguous=True, branches_apart=True)
    placing = placing.answered(placing.question.solve(Control()))
    names = [operator.name for operator in placing.problem.graph.operators]
    placement = placing.placement
    assert placement is not None
    text = placement.assignment[names.index("text3")][0]
    with pytest.raises(InputError, match="on parallel branches"):
        placing.dropped([names.index("image_embedding")], text)
    moved = placing.moved(["image_embedding"], placing.devices[text].name)
    assert moved.placement is not None
    assert any("parallel branches" in each for each in broken_rules(moved, moved.placement))
    again = with_placement(placing, read_placement(placement_file_text(placing).encode()))
    assert again.branches_apart
    assert again.wanting(FORWARD_BACKWARD, contiguous=True, branches_apart=True).branches_apart is False


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


def test_graph_place_plan_and_check_from_the_terminal(tessel: Tessel) -> None:
    words = [f"--set={each}" for each in ("training=true", "granularity=layers", "micro-batch=8")]
    tessel("graph", "clip-l-14", *words, "--out", "g.json")
    ended = tessel("place", "g.json", "--mesh", "h200-4", "--branches-apart", "--out", "p.json", "--json")
    assert ended.document["status"] == "PROVED_OPTIMAL"
    plan = tessel("plan", "g.json", "p.json", "--mesh", "h200-4", "--json").document["plan"]
    heads = {each["to"] for each in plan["dependencies"]}
    assert sum(block["name"] not in heads for block in plan["blocks"]) == 2
    assert tessel("check", "g.json", "p.json").code == 0
    kept = json.loads(Path("p.json").read_text())
    assert kept["report"]["branches_apart"] is True
    kept["assignment"] = dict.fromkeys(kept["assignment"], "gpu0")
    Path("p.json").write_text(json.dumps(kept))
    wrong = tessel("check", "g.json", "p.json")
    assert wrong.code == 1
    assert "on parallel branches" in wrong.out + wrong.err
