"""Forms of one network have equal work per sample. Each published schedule runs on the form that it needs."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from helpers.seeds import one_in
from hypothesis import given, settings
from hypothesis import strategies as st

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats import plan_text
from tessel_core.formats.plan_file import read_plan
from tessel_core.formats.tables import plan_of, tables_of
from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.networks.cuts import shared_cut
from tessel_core.networks.forms import FORMS, NETWORKS, Layered, Terms, build_forms, forms_of, layered
from tessel_core.networks.layer_costs import Part
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, Answer, Comparison, Question, compare
from tessel_core.scheduling.curves import CountSweep
from tessel_core.scheduling.forms import forms_for_schedulers, line_up
from tessel_core.workbench.messages.comparison import comparison_columns, work_notes

CAPACITY = 150_000_000_000
EQUAL = [form for form in FORMS if form != "sharded"]
every_network = pytest.mark.parametrize("name", NETWORKS)
every_number = pytest.mark.parametrize("devices", one_in(2, [2, 3, 4, 8, 12]))
parts = st.builds(
    Part,
    forward=st.integers(1, 10**7),
    backward=st.integers(2, 10**7),
    weight_gradient=st.just(1),
    static_bytes=st.integers(0, 10**10),
    kept_bytes=st.integers(1, 10**9),
    sent_bytes=st.integers(0, 10**8),
)


def plain(scheduler: str) -> object:
    return SCHEDULERS[scheduler].config()


def work(plan: MicroBatchPlan) -> Fraction:
    assert plan.samples is not None
    return Fraction(sum(plan.work), plan.samples)


def static(plan: MicroBatchPlan) -> int:
    return sum(device.static_memory for device in plan.devices)


def held(plan: MicroBatchPlan) -> Fraction:
    """Return the bytes that the forward passes of a sample acquire."""
    return Fraction(sum(max(0, block.memory) for block in plan.blocks), plan.samples)


@every_network
@every_number
def test_all_forms_but_the_sharded_one_do_the_same_work_for_a_sample(name: str, devices: int) -> None:
    network = layered(name, 2)
    plans, _ = build_forms(network, devices, CAPACITY)
    assert {form for form in EQUAL if form in plans} == set(EQUAL)
    for form in EQUAL:
        assert work(plans[form]) == Fraction(network.ticks, network.samples), form
        assert held(plans[form]) == held(plans["v"]), form
        copies = 2 if form in ("x", "split-x") else 1
        assert static(plans[form]) == copies * static(plans["v"]) == copies * sum(p.static_bytes for p in network.parts)
        assert {device.memory_capacity for device in plans[form].devices} == {CAPACITY}
        assert len(plans[form].devices) == devices


@settings(deadline=None, max_examples=40)
@given(st.lists(parts, min_size=6, max_size=12), st.integers(2, 3))
def test_any_layers_have_forms_of_equal_work(layers: list[Part], devices: int) -> None:
    network = Layered("any", tuple(layers), 3)
    plans, missing = build_forms(network, devices, CAPACITY)
    assert list(missing) == ["sharded"]
    assert {work(plan) for plan in plans.values()} == {Fraction(network.ticks, 3)}


@every_number
def test_the_sharded_form_differs_by_what_sharding_costs_and_a_line_says_so(devices: int) -> None:
    found = line_up("gpt-6.7b", Terms(devices=devices), 8 * devices, plain).comparison
    pairs = tuple(pair for pair in found.pairs if pair.scheduler in ("1f1b", "1f1b+", "zb-h1"))
    one_way, halves, shards = (pair.plan for pair in pairs)
    notes = work_notes(compare(Comparison(pairs), [Answer.to(pair) for pair in pairs]))
    share = work(shards) / work(one_way) - 1
    assert 0 < share < 0.05
    expected = f"{shards.name} has {float(100 * share):.3g} % more work per sample than {one_way.name}"
    assert [note.partition(". ")[0] for note in notes] == [expected]
    assert work(halves) == work(one_way)


def test_stages_say_their_layers_and_hold_their_own_weights() -> None:
    plans, _ = forms_of("gpt-6.7b", Terms(devices=4))
    labels = {form: [block.label for block in plans[form].blocks if block.kind is BlockKind.FORWARD] for form in EQUAL}
    assert labels["v"][0].startswith("embedding, layers 0–")
    assert labels["v"][-1].endswith(", head")
    assert labels["x"] == labels["v"] * 2
    folded = [plans["zb-v"].blocks[b].label for b in plans["zb-v"].blocks_on[0]]
    assert folded[0].startswith("embedding")
    assert folded[1].endswith("head")
    turn = [dep.lag for dep in plans["zb-v"].dependencies if (dep.predecessor, dep.successor) == ("F3", "F4")]
    assert turn == [0], "a device sends itself nothing"


def test_each_schedule_runs_on_the_form_that_it_was_published_for() -> None:
    plans, _ = forms_of("gpt-6.7b", Terms(devices=4))
    assert forms_for_schedulers(plans) == {
        "1f1b": "v",
        "1f1b+": "sharded",
        "interleaved": "loop",
        "chimera": "x",
        "zb-h1": "split-v",
        "zb-h2": "split-v",
        "zb-v": "zb-v",
        "v-half": "zb-v",
        "v-min": "zb-v",
        "dualpipe": "split-x",
        "gpipe": "v",
        "pipedream": "v",
    }


@pytest.mark.parametrize(
    ("name", "devices", "micro_batches", "missing"),
    [
        ("gpt-6.7b", 4, 8, []),
        ("gpt-175b", 4, 8, ["Without the form Sharded vocabulary", "No form suits 1F1B+."]),
        ("mt5-xxl", 5, 8, ["No form suits Chimera, DualPipe."]),
        ("gpt-6.7b", 4, 7, ["Without the form X", "Without the form X, split backward"]),
        (
            "gpt-6.7b",
            24,
            48,
            ["Without the form Loop", "Without the form ZB-V", "No form suits Interleaved 1F1B, ZB-V"],
        ),
    ],
)
def test_what_has_no_pair_is_said(name: str, devices: int, micro_batches: int, missing: list[str]) -> None:
    found = line_up(name, Terms(devices=devices), micro_batches, plain)
    assert len(found.missing) == len(missing)
    assert all(each.startswith(start) for each, start in zip(found.missing, missing, strict=True))


def test_every_pair_runs_the_same_samples_and_is_told_per_sample() -> None:
    found = line_up("gpt-6.7b", Terms(devices=4, micro_batch=3), 8, plain).comparison
    assert {pair.micro_batches * pair.plan.samples for pair in found.pairs} == {24}
    assert found.micro_batches == 8
    published = Comparison(tuple(pair for pair in found.pairs if pair.scheduler != "tessel"))
    answers = [Answer.to(pair) for pair in published.pairs]
    rows = compare(published, answers)
    for pair, answer, row in zip(published.pairs, answers, rows, strict=True):
        assert answer.report is not None
        assert row.time_each == Fraction(answer.report.makespan, 24), "warmup and cooldown count for all or for none"
        assert row.time_each >= work(pair.plan) / 4, "no schedule is faster than four busy devices"
    assert any(column.heading == "Time per sample (ms)" for column in comparison_columns(rows, "ns"))


def test_another_number_of_micro_batches_is_halved_for_those_of_twice_the_samples() -> None:
    plans, _ = forms_of("gpt-6.7b", Terms(devices=4))
    pairs = Comparison((Question("chimera", plans["x"], 4, plain("chimera")),))
    pairs = pairs.with_pair(Question("1f1b", plans["v"], 1, plain("1f1b")))
    assert [pair.micro_batches for pair in pairs.pairs] == [4, 8]
    assert [pair.micro_batches for pair in pairs.with_micro_batches(12).pairs] == [6, 12]
    with pytest.raises(InputError, match="has 4 samples per micro-batch, which do not divide the 14 samples"):
        pairs.with_micro_batches(7)
    with pytest.raises(InputError, match=r"has 8 micro-batches, but needs 4 to match 8 of gpt-6\.7b-v-4"):
        Comparison((pairs.pairs[1], Question("chimera", plans["x"], 8, plain("chimera"))))
    sweep = CountSweep(pairs.pairs, (1, 2, 4))
    points = [(point.pair.scheduler, point.pair.micro_batches, point.micro_batches) for point in sweep.solve(Control())]
    assert points == [("1f1b", 1, 1), ("chimera", 1, 2), ("1f1b", 2, 2), ("chimera", 2, 4), ("1f1b", 4, 4)]


def test_where_one_plan_does_not_say_its_samples_times_are_per_micro_batch() -> None:
    v, x = load_sample("v-shape-4"), load_sample("x-shape-4")
    pairs = Comparison((Question("1f1b", v, 4, plain("1f1b")),)).with_pair(Question("chimera", x, 9, plain("chimera")))
    rows = compare(pairs, [Answer.to(pair) for pair in pairs.pairs])
    assert {row.each for row in rows} == {"micro-batch"}
    assert work_notes(rows) == (
        "x-shape-4 has 100 % more work per micro-batch than v-shape-4. Its ratios include this difference.",
    )


def test_samples_are_kept_in_files_and_under_edit() -> None:
    plans, _ = forms_of("gpt-6.7b", Terms(devices=2))
    for plan in plans.values():
        assert read_plan(plan_text(plan).encode()) == plan
        assert plan_of(tables_of(plan)) == plan
    assert plans["v"].samples == 2
    assert plans["x"].samples == 4


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.lists(st.integers(1, 30), min_size=6, max_size=10),
    st.sampled_from([(0, 1, 0, 1), (0, 1, 1, 0), (0, 1, 2, 2, 1, 0), (0, 1, 2, 0, 1, 2)]),
)
def test_stages_that_share_devices_are_cut_as_evenly_as_any(loads: list[int], places: tuple[int, ...]) -> None:
    def busiest(ends: tuple[int, ...]) -> int:
        stages = zip(places, (0, *ends), (*ends, len(loads)), strict=True)
        sums = dict.fromkeys(places, 0)
        for device, first, last in stages:
            sums[device] += sum(loads[first:last])
        return max(sums.values())

    def ends_of(cut: tuple[range, ...]) -> tuple[int, ...]:
        return tuple(stage.stop for stage in cut[:-1])

    cut = shared_cut(loads, places)
    assert [i for stage in cut for i in stage] == list(range(len(loads)))
    assert all(cut)
    best = min(map(busiest, combinations(range(1, len(loads)), len(places) - 1)))
    assert busiest(ends_of(cut)) == best
