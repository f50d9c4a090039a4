"""What if: changes keep the structure of a plan, the winner ends first, and the map contains single answers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from tessel_core.control import Control
from tessel_core.editing.what_if import WhatIf, at_once, settled, sliders, what_if_at
from tessel_core.editing.which_wins import Axis, WhichWins, comparable, standing
from tessel_core.errors import InputError
from tessel_core.model import BlockKind, Status
from tessel_core.networks.forms import Terms
from tessel_core.samples import load_sample
from tessel_core.scheduling import BASELINES, SCHEDULERS, Answer, Comparison, Question
from tessel_core.scheduling.forms import line_up
from tessel_core.workbench.messages.what_if import cell_text, map_caption, standing_notes, winner_line


def of(sample: str, *schedulers: str, micro_batches: int = 8) -> Comparison:
    plan = load_sample(sample)
    return Comparison(tuple(Question(n, plan, micro_batches, SCHEDULERS[n].config()) for n in schedulers))


def published(devices: int = 4) -> Comparison:
    """Return every published schedule of one network."""
    found = line_up("gpt-6.7b", Terms(devices=devices), 16, lambda name: SCHEDULERS[name].config()).comparison
    return found.only([i for i, pair in enumerate(found.pairs) if pair.scheduler in BASELINES])


COMPARISONS = {
    "steps": lambda: of("v-shape-4", "1f1b", "gpipe", "sequential"),
    "split": lambda: of("split-v-4", "zb-h1", "zb-h2"),
    "shared": lambda: of("m-shape-4", "1f1b+", "sequential"),
    "network": published,
}


@pytest.fixture(params=list(COMPARISONS))
def comparison(request: pytest.FixtureRequest) -> Comparison:
    return COMPARISONS[request.param]()


def test_sliders_at_their_own_stops_change_nothing(comparison: Comparison) -> None:
    shown = sliders(comparison.pairs, 1)
    assert what_if_at(shown, {}, 1) == WhatIf(device=1)
    assert what_if_at(shown, {each.field: 10**6 for each in shown}, 1) == WhatIf(device=1)
    assert WhatIf(device=1).comparison(comparison) == comparison
    assert {each.field for each in shown} == {"micro_batches", "backward", "link", "capacity", "pace"}


def test_what_the_sliders_cannot_say_is_left_out_and_a_part_means_the_same_of_the_whole() -> None:
    base = of("v-shape-4", "1f1b")
    said = WhatIf(micro_batches=4, capacity=10**6, pace=Fraction(2), device=9)
    assert settled(base.pairs, said) == WhatIf(micro_batches=4, pace=Fraction(2))
    whole = published()
    part = whole.only([i for i, pair in enumerate(whole.pairs) if pair.scheduler in ("chimera", "dualpipe")])
    meant = WhatIf(micro_batches=10)
    changed = meant.of_whole(part, whole).comparison(whole)
    assert set(meant.comparison(part).pairs) <= set(changed.pairs)
    assert changed.micro_batches == 20


def test_every_stop_keeps_what_a_plan_is(comparison: Comparison) -> None:
    shown = sliders(comparison.pairs, 1)
    for slider in shown:
        assert slider.own in slider.spread(5)
        assert len(slider.texts) == len(set(slider.texts)) == len(slider.stops)
        lengths = []
        for stop in slider.spread(5):
            now = what_if_at(shown, {slider.field: stop}, 1)
            assert slider.at(now) == stop
            changed = now.comparison(comparison)
            for was, pair in zip(comparison.pairs, changed.pairs, strict=True):
                assert (pair.plan.name, pair.plan.samples) == (was.plan.name, was.plan.samples)
                assert [each.memory for each in pair.plan.blocks] == [each.memory for each in was.plan.blocks]
                assert [each.static_memory for each in pair.plan.devices] == [
                    each.static_memory for each in was.plan.devices
                ]
            lengths.append([pair.micro_batches * pair.plan.total_time for pair in changed.pairs])
        assert all(a <= b for a, b in pairwise(lengths)), "stops go from least to most"


def test_each_field_changes_what_it_says_and_nothing_else() -> None:
    (pair,) = of("split-v-4", "zb-h1").pairs
    plan = pair.plan
    slower = WhatIf(backward=Fraction(3)).plan(plan)
    for was, block in zip(plan.blocks, slower.blocks, strict=True):
        assert block.duration == was.duration * (1 if was.kind is BlockKind.FORWARD else 3)
    assert WhatIf(pace=Fraction(2), device=2).plan(plan).work == tuple(
        work * (2 if d == 2 else 1) for d, work in enumerate(plan.work)
    )
    farther = WhatIf(link=2).plan(plan)
    assert [arc.lag for arc in farther.dependencies] == [
        2 * (arc.predecessor[-1] != arc.successor[-1]) for arc in plan.dependencies
    ]
    assert WhatIf(link=-5).plan(farther) == plan
    assert [each.memory_capacity for each in WhatIf(capacity=-99).plan(plan).devices] == [0, 0, 0, 0]
    shared = WhatIf(pace=Fraction(1, 2), device=0).plan(load_sample("m-shape-4"))
    assert shared.blocks[0].duration == load_sample("m-shape-4").blocks[0].duration, "at the pace of the slowest"


def test_forms_of_one_network_keep_equal_work() -> None:
    changed = WhatIf(backward=Fraction(13, 10), link=10**6).comparison(published())
    work = {pair.plan.name: Fraction(sum(pair.plan.work), pair.plan.samples or 1) for pair in changed.pairs}
    first = work["gpt-6.7b-v-4"]
    assert all(abs(each / first - 1) < 1e-6 for name, each in work.items() if "sharded" not in name)


def answered(comparison: Comparison) -> list[Answer]:
    return [Answer.to(pair) for pair in comparison.pairs]


def test_the_winner_is_the_first_that_fits_and_ties_are_ties() -> None:
    base = of("v-shape-4", "1f1b", "gpipe", "sequential", "1f1b+")
    found = standing(answered(base), comparable(base))
    assert (found.winners, found.makespan, found.second, found.misfits, found.without) == ((0,), 44, 2, (1,), (3,))
    assert winner_line(base.labels(), found, "step") == (
        "1F1B, v-shape-4 wins: 44 steps, 65.6 % before Sequential, v-shape-4."
    )
    assert standing_notes(base, found) == (
        "Does not fit in memory: GPipe, v-shape-4.",
        "Without a schedule: 1F1B+, v-shape-4.",
    )
    roomy = standing(answered(WhatIf(capacity=4).comparison(base)), comparable(base))
    assert (roomy.winners, roomy.second) == ((0, 1), 2)
    assert winner_line(base.labels(), roomy, "step").startswith("1F1B, v-shape-4 and GPipe, v-shape-4 tie: 44 steps, ")
    assert winner_line(base.labels(), found, "step", so_far=True).startswith("1F1B, v-shape-4 wins so far: 44 steps, ")
    tight = standing(answered(WhatIf(capacity=-3).comparison(base)), comparable(base))
    assert winner_line(base.labels(), tight, "step") == "Sequential, v-shape-4 wins: 128 steps, the only one that fits."
    none = standing(answered(WhatIf(capacity=-4).comparison(base)), comparable(base))
    assert winner_line(base.labels(), none, "step") == "No schedule fits."


def test_other_work_is_apart_where_nothing_says_the_samples_and_told_where_something_does() -> None:
    mixed = Comparison(of("v-shape-4", "1f1b").pairs + of("m-shape-4", "1f1b+").pairs)
    assert comparable(mixed) == (0,)
    assert comparable(mixed, 1) == (1,)
    found = standing(answered(mixed), comparable(mixed))
    assert standing_notes(mixed, found) == ("Not compared, because a micro-batch has other work: 1F1B+, m-shape-4.",)
    network = published()
    two = network.only([i for i, pair in enumerate(network.pairs) if pair.scheduler in ("1f1b", "1f1b+")])
    found = standing(answered(two), comparable(two))
    assert found.apart == ()
    assert standing_notes(two, found) == (
        "gpt-6.7b-sharded-4 has 0.663 % more work per sample than gpt-6.7b-v-4, and the lead includes this.",
    )


@pytest.mark.parametrize(("bound", "undecided"), [(43, (1,)), (44, ())])
def test_a_search_that_could_still_win_leaves_it_undecided(bound: int, undecided: tuple[int, ...]) -> None:
    base = of("v-shape-4", "1f1b", "sequential")
    first, second = answered(base)
    assert first.report is not None
    assert second.report is not None
    assert first.report.makespan == 44
    known = Answer(replace(first.report, makespan_bound=bound))
    searched = replace(second.report, solver="tessel", status=Status.FEASIBLE, makespan_bound=40)
    found = standing([known, Answer(searched)], (0, 1))
    assert (found.winners, found.undecided) == ((0,), undecided), (
        "what is proved of a plan holds for every search of it"
    )


def test_cells_hold_what_single_answers_hold() -> None:
    base = of("v-shape-4", "1f1b", "gpipe", "sequential")
    shown = {each.field: each for each in sliders(base.pairs)}
    sides = Axis.of(shown["micro_batches"], 4), Axis.of(shown["capacity"], 3)
    of_all = WhichWins(base.pairs, comparable(base), WhatIf(backward=Fraction(4, 3)), *sides, 1.0)
    control = Control()
    cells = of_all.solve(control)
    assert tuple(control.parts) == cells
    assert len(cells) == of_all.cells == 12
    for cell in cells:
        here = of_all.at(cell.column, cell.row)
        assert of_all.find(here) == (cell.column, cell.row)
        assert cell.standing == standing(answered(here.comparison(base)), (0, 1, 2))
        text = cell_text(base, tuple(shown.values()), of_all, cell)
        assert text.about.startswith("Micro-batches ")
        assert bool(text.who) == bool(cell.standing and cell.standing.winners)
    assert of_all.find(WhatIf()) is None
    assert map_caption(tuple(shown.values()), of_all) == (
        "Micro-batches from left to right, capacity from top to bottom; everywhere backward to forward 4 : 1"
    )


def test_a_map_that_is_cancelled_keeps_the_cells_that_it_has() -> None:
    base = of("v-shape-4", "1f1b", "gpipe")
    shown = {each.field: each for each in sliders(base.pairs)}
    of_all = WhichWins(base.pairs, (0, 1), WhatIf(), *(Axis.of(shown[each], 3) for each in ("link", "pace")), 1.0)

    class Impatient(Control):
        def deliver(self, part: object) -> None:
            super().deliver(part)
            if len(self.parts) == 4:
                self.cancel()

    control = Impatient()
    assert of_all.solve(control) == tuple(control.parts)
    assert len(control.parts) == 4


def test_what_cannot_be_is_said_in_one_sentence() -> None:
    plan = load_sample("v-shape-4")
    alike = Comparison(
        tuple(Question("1f1b", WhatIf(link=each).plan(plan), 8, SCHEDULERS["1f1b"].config()) for each in (0, 1))
    )
    with pytest.raises(InputError, match="twice"):
        WhatIf(link=-1).comparison(alike)
    shown = sliders(alike.pairs)
    apart = WhichWins(alike.pairs, (0, 1), WhatIf(), Axis("link", (-1,)), Axis("capacity", (0,)), 1.0)
    (cell,) = apart.solve(Control())
    assert cell.standing is None
    text = cell_text(alike, shown, apart, cell)
    assert text.about == (
        "Link time 0 steps, capacity 4 slots: comparison: contains the same plan, scheduler and options twice."
    )


def test_only_published_orders_of_bounded_size_are_timed_at_once() -> None:
    base = of("v-shape-4", "tessel", "1f1b", "gpipe")
    assert at_once(base.pairs) == set(base.pairs[1:])
    large = [replace(pair, micro_batches=6000) for pair in base.pairs]
    assert at_once(large) == {large[1]}
