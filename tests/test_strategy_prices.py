"""What would make a strategy faster: each price equals the answer of the changed question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.terminal import terminal

from tessel_core.control import Control
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.exports.recommendation import recommendation_document
from tessel_core.inspection import IdleSplit
from tessel_core.model import Connection, DeviceMesh, Link
from tessel_core.scheduling import solve_schedule
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.closely import look_at
from tessel_core.strategies.evaluation import Configuration, StrategyResult
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.price_tags import PriceTag, price_tags, scaled_links, scaled_memory
from tessel_core.strategies.recommendation import Candidate, Question, SearchRanges, recommend
from tessel_core.strategies.strategy import Strategy
from tessel_core.workbench.messages.recommendation import idle_sentence, order_sentence, price_sentences

MESH = uniform_mesh("h100", 2, 4).with_capacity(16 * 10**9)


def question(mesh: DeviceMesh = MESH) -> Question:
    """Return a question about a small GPT on two nodes of four GPUs."""
    found = preset_network("gpt2-large")
    assert found is not None
    family, said = found
    spec = family.spec(**{**said, "layers": 9, "batch": 32, "dtype": "bf16"})
    return Question(family, spec, mesh, SearchRanges(micro_batch_size=(1, 2), zero=(1,), tensor=(1, 2)))


def timed(asked: Question, strategy: Strategy) -> StrategyResult:
    """Return the time of the strategy alone, with its own blocks."""
    table = BlockTable(asked.family, asked.spec, asked.mesh)
    return BlockEngine(table).evaluate([Configuration(asked.spec, strategy)])[0]


@pytest.fixture(scope="module")
def base() -> Candidate:
    """Return a pipeline of unequal stages."""
    strategy = Strategy(2, 1, 4, 8, "1f1b", zero=1, layout=(4, 2, 2, 1))
    return Candidate(strategy, timed(question(), strategy))


@pytest.fixture(scope="module")
def tags(base: Candidate) -> dict[str, list[PriceTag]]:
    """Return all price tags by kind."""
    found: dict[str, list[PriceTag]] = {}
    for tag in price_tags(question(), base, Control()):
        found.setdefault(tag.kind, []).append(tag)
    return found


def test_links_between_nodes_are_slower_and_faster(base: Candidate, tags: dict[str, list[PriceTag]]) -> None:
    assert MESH.default_link is not None
    uplink = MESH.node_uplink
    for tag, factor in zip(tags["links"], (0.5, 2.0), strict=True):
        link = replace(MESH.default_link, bandwidth=MESH.default_link.bandwidth * factor)
        mesh = replace(MESH, default_link=link, node_uplink=None if uplink is None else uplink * factor)
        assert tag.candidate.outcome == timed(question(mesh), base.strategy)
    slow, fast = (tag.candidate.outcome.latency for tag in tags["links"])
    assert slow >= base.outcome.latency >= fast
    assert slow > fast


def test_the_moved_layer_is_the_best_move(base: Candidate, tags: dict[str, list[PriceTag]]) -> None:
    moves = [(3, 3, 2, 1), (5, 1, 2, 1), (4, 1, 3, 1), (4, 3, 1, 1), (4, 2, 1, 2)]
    outcomes = [timed(question(), replace(base.strategy, layout=layout)) for layout in moves]
    (tag,) = tags["layer"]
    assert tag.candidate.outcome.latency == min(each.latency for each in outcomes if not each.reason)
    assert tag.candidate.outcome.latency < base.outcome.latency
    assert tag.change == "one layer moved from stage 0 to stage 1"


def test_larger_micro_batches_are_half_as_many(base: Candidate, tags: dict[str, list[PriceTag]]) -> None:
    (tag,) = tags["micro-batch"]
    assert tag.candidate.strategy == replace(base.strategy, micro_batches=4)
    assert tag.candidate.outcome == timed(question(), tag.candidate.strategy)


def test_more_memory_is_another_search(base: Candidate, tags: dict[str, list[PriceTag]]) -> None:
    (tag,) = tags["memory"]
    larger = replace(question(), mesh=scaled_memory(MESH, 1.1))
    assert larger.mesh.devices[0].memory_capacity == 17_600_000_000
    assert tag.candidate == recommend(larger).best


def test_blocks_that_are_known_price_the_same(base: Candidate) -> None:
    """A table from an earlier search remembers nothing that depends on memory."""
    asked = question(MESH.with_capacity(3 * 10**9))
    table = BlockTable(asked.family, asked.spec, asked.mesh)
    best = recommend(asked, None, table).best
    assert best is not None
    assert price_tags(asked, best, Control(), table) == price_tags(asked, best, Control())


def test_links_within_nodes_stay_as_they_are() -> None:
    own = Connection((MESH.devices[0].name, MESH.devices[4].name), Link(1e9))
    near = Connection((MESH.devices[0].name, MESH.devices[1].name), Link(2e9))
    mesh = replace(MESH, connections=(own, near), node_uplink=4e9)
    slower = scaled_links(mesh, 0.5, between_nodes=True)
    assert [each.link.bandwidth for each in slower.connections] == [0.5e9, 2e9]
    assert (slower.same_node_link, slower.node_uplink) == (mesh.same_node_link, 2e9)
    inside = scaled_links(mesh, 2, between_nodes=False)
    assert [each.link.bandwidth for each in inside.connections] == [1e9, 4e9]
    assert (inside.default_link, inside.node_uplink) == (mesh.default_link, 4e9)


def test_a_stop_keeps_the_tags_so_far(base: Candidate) -> None:
    control = Control()
    control.cancel()
    assert price_tags(question(), base, control) == ()


def test_every_sentence_has_a_figure(base: Candidate, tags: dict[str, list[PriceTag]]) -> None:
    every = [tag for each in tags.values() for tag in each]
    lines = price_sentences(base, every)
    assert len(lines) == len(every) == 5
    assert all(line.startswith("With ") and line.endswith(".") and any(c.isdigit() for c in line) for line in lines)
    short = replace(every[0], candidate=Candidate(base.strategy, replace(base.outcome, reason="it does not fit")))
    assert "more than a GPU has" in price_sentences(base, [short])[0]
    assert "as long" in price_sentences(base, [replace(every[0], candidate=base)])[0]


def test_idle_time_is_said_by_cause(base: Candidate) -> None:
    schedule = look_at(question(), base).schedule
    assert schedule is not None
    idle = float(IdleSplit.of(schedule).idle)
    assert idle_sentence(schedule).startswith(f"The pipeline is idle {idle:.1%} of the time: ")
    found = recommend(question())
    causes = recommendation_document(found, None, schedule)["idle_causes"]
    assert isinstance(causes, dict)
    assert sum(causes.values()) == pytest.approx(idle)


def test_a_searched_order_is_held_against_the_named_one(base: Candidate) -> None:
    look = look_at(question(), base)
    assert look.plan is not None
    assert look.schedule is not None
    report = solve_schedule("gpipe", look.plan, base.strategy.micro_batches)
    slower = report.drawable
    assert slower is not None
    optimal = replace(solve_schedule("1f1b", look.plan, base.strategy.micro_batches), makespan_bound=1)
    said = order_sentence("gpipe", slower, optimal)
    assert said.startswith("In the order that the search found, the pipeline takes ")
    assert "shorter than gpipe. No order of these stages within memory takes less than 1 ns." in said
    same = order_sentence("1f1b", look.schedule, optimal)
    assert same.startswith("The search found no shorter order than 1f1b. ")
    proved = replace(optimal, makespan_bound=look.schedule.makespan)
    assert order_sentence("1f1b", look.schedule, proved).endswith("No order of these stages within memory is shorter.")


def test_the_command_says_causes_and_prices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    tessel = terminal(monkeypatch, capsys)
    asked = ("recommend", "gpt2-small", "--mesh", "h100-8", "--global-batch", "16", "--pipeline", "4", "--prices")
    code, said, _ = tessel(*asked)
    assert code == 0
    assert "The pipeline is idle " in said
    assert sum(line.startswith("With ") for line in said.splitlines()) == 5
    document = json.loads(tessel(*asked, "--json")[1])
    assert [each["kind"] for each in document["prices"]] == ["links", "links", "layer", "micro-batch", "memory"]
    assert all(each["strategy"]["pipeline"] == 4 for each in document["prices"])
    assert 0 < sum(document["idle_causes"].values()) < 1
