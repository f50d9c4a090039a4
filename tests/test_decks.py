"""Decks: their levels are solved and short, their claims are true, and their file needs no network."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from pages.parts.learn.slides import deck_page
from tessel_core.charts.timeline import timeline_frames
from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.errors import InputError
from tessel_core.formats import read_workspace, workspace_text
from tessel_core.formats.tables import tables_of
from tessel_core.learning import find_deck, list_decks
from tessel_core.learning.decks import ideals, programs, strategies, zero_bubble
from tessel_core.learning.level import MAX_WORDS_PER_SENTENCE, sentences
from tessel_core.learning.levels import repetend
from tessel_core.learning.questions import DeckQuestion, OwnDeckQuestion
from tessel_core.model import DevicePool, Status
from tessel_core.networks import build_shape
from tessel_core.placement.ideals import count_ideals
from tessel_core.placement.problem import placement_problem
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.comparison import Made
from tessel_core.scheduling.search.modulo import Goal, find_repetend
from tessel_core.workbench.slides import MAX_SLIDES, OwnSlide, with_slide
from tessel_core.workbench.workspace import Workspace, workspace_file, workspace_of

NAMES = [deck.name for deck in list_decks()]
MAX_BYTES = 3_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_deck_is_solved_and_says_it_shortly(name: str) -> None:
    deck, data = find_deck(name), DeckQuestion(name).solve(Control())
    assert [each["title"] for each in data["slides"]] == [slide.title for slide in deck.slides]
    for each, slide in zip(data["slides"], deck.slides, strict=True):
        assert not re.search(r"[{}]", " ".join(each["lines"]))
        assert all(len(sentence.split()) <= MAX_WORDS_PER_SENTENCE for sentence in sentences(each["lines"]))
        frames = timeline_frames(base64.b64decode(each["data"]))
        assert len(frames) == len(slide.shown()) + (slide.traced is not None)
        assert frames or each["picture"].startswith("<svg")
        assert all(header["quiet"] for header, _ in frames)
    page = deck_page(data)
    assert len(page.encode()) <= MAX_BYTES
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=|//|@import|url\(", markup), "nothing is asked of a network"
    (kept,) = re.findall(r'<script type="application/json" id="deck">(.*?)</script>', page, re.DOTALL)
    assert json.loads(kept) == data


def test_the_claims_of_zero_bubble_hold() -> None:
    facts = zero_bubble._facts()
    assert facts["gpipe_steps"] == facts["1f1b_steps"]
    assert facts["zb_h1_held"] == facts["1f1b_held"]
    assert facts["best"] == facts["bound"] == facts["zb_h1_steps"] == facts["zb_h2_steps"]
    steps = [int(facts[f"{name}_steps"]) for name in ("1f1b", "interleaved", "zb_h1", "zb_v")]
    assert steps == sorted(set(steps), reverse=True)
    work = {name: zero_bubble._schedule(name).plan.work for name in ("gpipe", "interleaved", "zb-h1", "zb-v")}
    assert len(set(work.values())) == 1, "every schedule does the same work on every device"
    ends = zero_bubble._schedule("zb-h2")
    for device in range(len(ends.plan.devices)):
        rows = ends.runs_on(device)
        assert (ends.start[rows[1:]] == ends.end[rows[:-1]]).all(), "no hole between the first and the last run"


def test_the_table_over_ideals_is_what_the_placer_proves() -> None:
    lattice, report = ideals.lattice(), ideals.proved()
    whole = lattice.ideals[-1]
    assert report.status is Status.PROVED_OPTIMAL
    assert report.objective == lattice.best[-1][whole]
    problem = placement_problem(ideals.network(), DevicePool(3))
    assert len(lattice.ideals) == count_ideals(problem, 1_000)
    stages = [after - before for before, after in pairwise(lattice.chain)]
    assert frozenset().union(*stages) == whole
    assert max(map(lattice.load, stages)) == report.objective
    loose = ideals.proved(contiguous=False)
    assert loose.status is Status.PROVED_OPTIMAL
    assert lattice.load(whole) / 3 <= float(loose.objective) <= float(report.objective)


def test_the_periods_that_are_said_to_be_refused_were_asked_about() -> None:
    effort = Effort(20.0, 1, 0)
    assert repetend.refused(1) == (6, 7)
    for unroll in (1, 2):
        for period in repetend.refused(unroll):
            verdict, found = find_repetend(repetend.plan(), period, unroll, Goal.LATENCY, effort, Control())
            assert (verdict, found) == (Verdict.IMPOSSIBLE, None)
    assert repetend.refused(3) == (), "the bound itself is met"


def test_the_claims_about_strategies_and_programs_hold() -> None:
    assert (strategies.fastest(4096), strategies.fastest(512)) == ("data", "tensor")
    held = {way: max(strategies.traced(way)[0].peak_memory) for way in ("one", "data", "tensor", "pipeline")}
    assert held["data"] > 0.9 * held["one"] > held["one"] / 2 > held["tensor"]
    facts = strategies._facts()
    assert int(facts["pipeline_talk"].rstrip("%")) < int(facts["tensor_talk"].rstrip("%"))
    picture = programs.picture(2, "allgather")
    assert picture.count('<rect x="0"') == 1, "one line is lit"
    kinds = [each.kind for each in programs.traced(2)[0].program.ops]
    assert (kinds.count("allgather"), kinds.count("allreduce")) == (1, 1)
    for line in kinds:
        assert f"= {line}(" in picture


def test_a_cancelled_deck_keeps_what_is_there_and_an_unknown_one_is_a_sentence() -> None:
    control = Control()
    control.cancel()
    assert DeckQuestion("zero-bubble").solve(control)["slides"] == []
    with pytest.raises(InputError, match="must be one of"):
        find_deck("none")


def test_slides_of_ones_own_have_limits_and_are_judged() -> None:
    plan = build_shape("v-shape")
    schedule = solve_schedule("1f1b", plan, 4).solution
    assert schedule is not None
    made = Made.of(schedule)
    slide = OwnSlide("1F1B", "Braces {stay}\n\nas they are", (("mine", made),))
    (data,) = OwnDeckQuestion("Mine", (slide,)).solve(Control())["slides"]
    assert data["lines"] == ["Braces {stay}", "as they are"]
    ((header, columns),) = timeline_frames(base64.b64decode(data["data"]))
    assert (header["title"], header["makespan"], len(columns["start"])) == ("mine", schedule.makespan, 32)
    page = deck_page(OwnDeckQuestion("</title><script>x", (slide,)).solve(Control()))
    assert "<script>x" not in page
    full: tuple[OwnSlide, ...] = ()
    for _ in range(MAX_SLIDES):
        full = with_slide(full, slide)
    with pytest.raises(InputError, match="slides: are already 40"):
        with_slide(full, slide)
    for wrong, why in (
        ({"title": 201 * "x"}, "a title of 201 characters"),
        ({"text": 2001 * "x"}, "a text of 2,001 characters"),
        ({"shown": 700 * (("mine", made),)}, "has 22,400 runs"),
        (
            {"shown": (("mine", made), ("other", replace(made, plan=replace(plan, time_unit="ns"))))},
            "different time units",
        ),
    ):
        with pytest.raises(InputError, match=why):
            replace(slide, **wrong)
    work = Workspace("token", "name", "", "", plan, tables_of(plan), slides=(slide,))
    document = json.loads(workspace_text(workspace_file(work)))
    assert workspace_of(read_workspace(json.dumps(document).encode()), "token").slides == (slide,)
    document["slides"][0]["shown"][0]["starts"][0][1] = 0
    with pytest.raises(InputError, match=r"F1 of micro-batch 0: starts at 0"):
        workspace_of(read_workspace(json.dumps(document).encode()), "token")
