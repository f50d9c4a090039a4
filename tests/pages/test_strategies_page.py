"""The Strategies page: ranges, points, cards and sentences, and details of one configuration."""

from __future__ import annotations

import json
from functools import cache

import pytest
from conftest import App

from pages.parts.strategies.points import FEASIBLE, FRONT, INFEASIBLE, identity
from pages.shared import strategies as strategies_form
from pages.shared.strategies import swept
from pages.shared.strategy_state import StrategyState
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.strategies.families import find_family
from tessel_core.strategies.form import asked_by
from tessel_core.strategies.grid import Grid, doubling, evaluate_grid
from tessel_core.strategies.strategy import equal_devices
from tessel_core.units import show_time
from tessel_core.workbench.workspace import Workspace


def filled(**words: str) -> App:
    """Return the page with these ranges filled in, on DistIR's mesh and with one network by default."""
    tab = App("strategies")
    next(each for each in tab.test.selectbox if each.label == "Mesh").set_value("distir-16")
    usual = {"Layers": "8", "Stages_P": "1..8x2", "Width": "512", "Batch": "256"}
    return fill(tab, {label.replace("_", " "): text for label, text in {**usual, **words}.items()})


@cache
def _asked(**words: str) -> Workspace:
    return filled(**words).work


def page(**words: str) -> App:
    """Return the same page, on a workspace whose form is already filled in."""
    return App.on("strategies", _asked(**words))


def fill(tab: App, words: dict[str, str]) -> App:
    for label, text in words.items():
        next(each for each in tab.test.text_input if each.label == label).set_value(text)
    return tab.run()


def write(tab: App, label: str, text: str) -> App:
    return fill(tab, {label: text})


def select(tab: App, widget: str, selection: dict) -> App:
    """Select a point, as a click in the table or a picture does. Streamlit's test runner cannot click there."""
    of, session = state(tab), tab.test.session_state["tessel"]
    found = identity(swept(asked_by(tab.work.strategies, tab.work.placing.mesh.mesh)))
    table = f"strategies-table-{found}-{of.view}-{of.why}-{of.generation}"
    key = table if widget == "table" else f"strategies-plot-{widget}-{found}"
    tab.test.session_state[session.key(key)] = {"selection": selection}
    return tab.run()


def figures(tab: App) -> list[dict]:
    return [json.loads(chart.proto.spec) for chart in tab.test.get("plotly_chart")]


def captions(tab: App) -> str:
    return " ".join(caption.value for caption in tab.test.caption).replace("\\", "")


def test_points_cards_and_sentences_are_those_of_the_sweep() -> None:
    tab = page()
    degrees = doubling(16)
    grid = Grid(data=degrees, tensor=degrees, pipeline=doubling(8), micro_batches=doubling(32))
    found = evaluate_grid(find_family("mlp"), grid, equal_devices(16, 1.4e13, 9e11, 25))
    assert f"{len(found):,} configurations on distir-16" in captions(tab)
    best = found.ranked("throughput")[0]
    assert tab.numbers()["Best throughput"] == f"{found.columns['throughput'][best]:,.0f} samples/s"
    points = {trace["name"]: trace for trace in figures(tab)[0]["data"]}
    front = found.front_of(("peak_memory", "throughput"))
    assert [point[0] for point in points["on the front"]["customdata"]] == list(front)
    assert len(points["feasible"]["x"]) + len(front) == found.feasible.sum()
    assert points["shown below"]["customdata"][0][0] == best
    assert tab.says("at its peak")
    assert tab.says("Devices are idle 0.0% of the time (imbalance 0.0% + bubble 0.0%). Every device computes")
    seconds = found.columns["latency"][best]
    headings = [text for each in tab.test.markdown if " samples/s" in (text := each.value.replace("\\", ""))]
    assert f"{show_time(seconds, 's')} per step, {show_time(seconds / 256, 's')} per sample" in headings[-1]
    assert len(tab.test.dataframe[0].value) == len(found.front)
    assert "Width" not in tab.test.dataframe[0].value, "what is the same in all is no column"


def state(tab: App) -> StrategyState:
    return tab.test.session_state["tessel"].of(StrategyState)


def shown(tab: App) -> str:
    """Return the strategy whose details are shown."""
    configuration = state(tab).configuration
    assert configuration is not None
    return str(configuration.strategy)


def list_those(tab: App, view: str) -> list[dict]:
    """Return the rows of the table."""
    next(group for group in tab.test.button_group if group.options[0].startswith(FRONT)).set_value(view)
    tab.run()
    return tab.test.dataframe[0].value.to_dict("records")


def test_infeasible_ones_have_reasons_that_can_be_chosen() -> None:
    tab = page()
    write(tab, "Micro-batches K", "1..3")
    rows = list_those(tab, INFEASIBLE)
    reasons = [row["Why not"] for row in rows]
    assert "a batch of 256 does not divide into 1 x 3 parts (replicas x micro-batches)" in reasons
    assert f"{len(rows)}" in " ".join(tab.test.button_group[0].options)
    tab.choose("Why not", "a batch of … does not divide into … x … parts (replicas x micro-batches)")
    assert {row["K"] for row in tab.test.dataframe[0].value.to_dict("records")} == {3}


def test_zero_recomputation_and_sizes_of_micro_batches_are_asked_too() -> None:
    tab = page()
    before = len(tab.test.dataframe[0].value)
    next(each for each in tab.test.multiselect if each.label == "ZeRO").set_value(["0", "1", "3"])
    next(each for each in tab.test.multiselect if each.label == "Recomputation").set_value(["none", "full"])
    write(tab, "Micro-batch size", "16,48")
    both = {"recompute": (Recompute.NONE, Recompute.FULL), "zero": (0, 1, 3)}
    grid = Grid(data=doubling(16), tensor=doubling(16), pipeline=doubling(8), micro_batch_size=(16, 48), **both)
    found = evaluate_grid(find_family("mlp"), grid, equal_devices(16, 1.4e13, 9e11, 25))
    assert before != len(found.front) == len(tab.test.dataframe[0].value)
    assert f"{len(found):,} configurations on distir-16, {found.feasible.sum():,} of them feasible" in captions(tab)
    assert f"{found.too_large:,} that need more than 16 devices are left out" in captions(tab)
    reasons = {row["Why not"] for row in list_those(tab, INFEASIBLE)}
    assert "a batch of 256 does not divide among 1 replicas into micro-batches of 48" in reasons


def test_what_does_not_fit_is_short_of_memory_and_can_be_looked_at() -> None:
    tab = page(Width="65536", Layers="64", Replicas_D="1", Tensor_H="1", Stages_P="1,2")
    write(tab, "Micro-batches K", "2").choose("Mesh", "v100-8")
    rows = list_those(tab, INFEASIBLE)
    assert all(" more than it has" in row["Why not"] for row in rows)
    assert "No configuration is feasible" in tab.says("No configuration")[0]
    select(tab, "table", {"rows": [0], "columns": [], "cells": []})
    assert state(tab).number == 0
    assert tab.says("Infeasible: gpu0 needs ")
    assert "at its peak" in tab.says("Memory is too small")[0]


def test_a_card_shows_its_configuration() -> None:
    tab = page()
    next(button for button in tab.test.button if "peak_memory" in (button.key or "")).click()
    tab.run()
    assert shown(tab) == "1/8/2/32 pipedream"
    assert tab.address["strategy"] == str(state(tab).number)
    (lanes,) = tab.timelines()
    assert len(lanes["devices"]) == 16
    assert {each["device"] for each in lanes["lanes"]} == set(range(16))


def test_every_card_says_what_holds_it_up() -> None:
    told = captions(page())
    assert told.count(" waits") >= 2
    assert "No device waits: all compute all the time." in told
    assert told.count("Most of its memory is ") == 4, "DistIR's devices have no capacity"


def test_a_point_a_row_and_the_box_show_a_configuration() -> None:
    tab = page()
    select(tab, "1", {"points": [{"customdata": [7, "", "", ""]}]})
    assert state(tab).number == 7
    row = tab.test.dataframe[0].value.iloc[3]
    select(tab, "table", {"rows": [3], "columns": [], "cells": []})
    assert shown(tab).startswith("/".join(str(int(row[name])) for name in "DHPK"))
    box = next(each for each in tab.test.selectbox if each.label == "Configuration")
    assert len(box.options) == len(tab.test.dataframe[0].value)
    box.select_index(5)
    tab.run()
    row = tab.test.dataframe[0].value.iloc[5]
    assert shown(tab).startswith("/".join(str(int(row[name])) for name in "DHPK"))


def test_axes_can_be_chosen_and_stay() -> None:
    tab = page()
    tab.choose("Across, picture 0", "devices")
    assert figures(tab)[0]["layout"]["xaxis"]["title"]["text"] == "devices"
    assert tab.address["axes"] == "devices-throughput,devices-latency"
    again = App("strategies", **tab.address)
    assert figures(again)[0]["layout"]["xaxis"]["title"]["text"] == "devices"


def test_what_was_asked_survives_a_reload_other_pages_and_undo() -> None:
    tab = filled()
    next(button for button in tab.test.button if "peak_memory" in (button.key or "")).click()
    tab.run()
    before, chosen = captions(tab), shown(tab)
    tab.go("start").go("strategies")
    assert captions(tab) == before
    assert shown(tab) == chosen
    again = App("strategies", **tab.address)
    assert captions(again) == before
    assert shown(again) == chosen
    again.go("program")
    assert chosen in " ".join(each.value for each in again.test.markdown).replace("\\", "")
    again.go("strategies").press("Undo")
    assert next(each for each in again.test.text_input if each.label == "Batch").value == "1024,8192"


def test_the_browser_s_back_leads_to_what_was_looked_at() -> None:
    tab = page()
    address = tab.address
    next(button for button in tab.test.button if "peak_memory" in (button.key or "")).click()
    tab.run()
    assert tab.address != address
    forward = tab.address
    for key, value in address.items():
        tab.test.query_params[key] = value
    del tab.test.query_params["strategy"]
    tab.run()
    assert tab.address == address
    tab.test.query_params["strategy"] = forward["strategy"]
    tab.run()
    assert shown(tab) == "1/8/2/32 pipedream"


def test_a_large_program_is_simulated_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies_form, "MAX_UNASKED_OPERATIONS", 10)
    tab = page()
    assert "Press Show to simulate it and see its bottleneck." in captions(tab)
    assert not tab.says("at its peak")
    tab.press(next(button.label for button in tab.test.button if button.label.startswith("Simulate at least")))
    assert tab.says("at its peak")


def test_what_makes_no_sense_is_one_sentence() -> None:
    tab = page()
    write(tab, "Replicas D", "1..x")
    assert tab.says("Replicas D: must be numbers and ranges such as 1,3..5 or 1..64x2, got '1..x'.")
    assert App("strategies", **tab.address).says("got '1..x'."), "what was typed is kept as it is"
    write(tab, "Replicas D", "1..1000")
    write(tab, "Tensor H", "1..1000")
    assert tab.says("grid: has ")


def test_a_wrong_range_leaves_the_last_answer_where_it_is() -> None:
    tab = page()
    best = tab.numbers()["Best throughput"]
    write(tab, "Replicas D", "0")
    assert tab.says("Replicas D: must be at least 1, got 0")
    assert "The results below answer the previous question." in captions(tab)
    assert tab.numbers()["Best throughput"] == best
    write(tab, "Replicas D", "1")
    assert "The results below answer" not in captions(tab)


def test_what_takes_long_comes_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each short part the page shows what is there, and continues until all is there."""
    monkeypatch.setattr(strategies_form, "_SLICES_S", [0.02 * n for n in range(1, 200)])
    for kept in (strategies_form._answer, strategies_form._outcomes):
        kept.cache_clear()
    tab = filled(Layers="7")
    so_far = strategies_form._answer(asked_by(tab.work.strategies, tab.work.placing.mesh.mesh))
    assert so_far[0].unreached > so_far[-1].unreached == 0
    assert " are done" not in captions(tab)


def test_a_sweep_that_runs_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not call the grid infeasible before the end."""
    work = _asked()
    monkeypatch.setattr(strategies_form, "_SLICES_S", [0.0])
    monkeypatch.setattr(strategies_form, "go_on", lambda asked: False)
    for kept in (strategies_form._answer, strategies_form._outcomes):
        kept.cache_clear()
    tab = App.on("strategies", work)
    count = len(swept(asked_by(work.strategies, work.placing.mesh.mesh)))
    assert not tab.says("No configuration is feasible")
    assert tab.says(f"0 of {count:,} are done. None of these is feasible.")
    assert captions(tab).count(f"; 0 of {count:,} are done") == 1
    strategies_form._answer.cache_clear()


def test_more_ways_to_cut_are_asked_where_the_network_has_them() -> None:
    tab = page().choose("Mesh", "h200-8")
    texts = {each.label: each for each in tab.test.text_input}
    assert texts["Context C"].disabled
    assert texts["Experts E"].disabled
    assert "The network has no sequence of tokens that devices could share." in captions(tab)
    fill(tab, {"Replicas D": "1", "Tensor H": "1,2", "Stages P": "1", "Micro-batches K": "1"})
    fill(tab.choose("Network", "gpt"), {"Batch": "8", "Layers": "2", "Sequence": "256", "Context C": "1,2"})
    tab.test.multiselect(key=next(each.key for each in tab.test.multiselect if each.label == "ZeRO")).set_value(
        ["0", "3"]
    )
    next(each for each in tab.test.multiselect if each.label == "Formats").set_value(["bf16", "fp8"])
    next(each for each in tab.test.toggle if each.label == "Sequence parallel").set_value(True)
    tab.run()
    assert next(each for each in tab.test.text_input if each.label == "Experts E").disabled
    assert "The network has no experts that devices could share." in captions(tab)
    # Two degrees of H times two formats. With C = 2, ZeRO-3 doubles them. Each configuration is feasible.
    assert "12 configurations on h200-8, 12 of them feasible" in captions(tab)
    rows = list_those(tab, FEASIBLE)
    assert {(row["C"], row["ZeRO"]) for row in rows} == {(1, 0), (2, 0), (2, 3)}
    assert {row["Sequence parallel"] for row in rows if row["H"] == 1} == {False}
    assert {row["Dtype"] for row in rows} == {"bf16", "fp8"}
    assert tab.work.strategies["zero"] == "0,3"
    at = max(i for i, row in enumerate(rows) if (row["C"], row["ZeRO"]) == (2, 3))
    select(tab, "table", {"rows": [at], "columns": [], "cells": []})
    assert "sequences over 2 (ring)" in shown(tab)
    before = shown(tab)
    again = App("strategies", **tab.address)
    assert shown(again) == before
    again.go("program")
    assert before in " ".join(each.value for each in again.test.markdown).replace("\\", "")


def test_nothing_feasible_says_why() -> None:
    tab = page(Replicas_D="3")
    assert tab.says("No configuration is feasible")
    assert all("does not divide" in row["Why not"] for row in list_those(tab, INFEASIBLE))


def test_too_many_for_a_page_are_left_to_the_terminal() -> None:
    tab = page(Batch="1..50")
    assert tab.says("exceed this page's limit of 5,000")


def test_gpts_have_sizes_of_their_own() -> None:
    tab = App("strategies")
    fill(tab, {"Replicas D": "1..2", "Tensor H": "1,5", "Stages P": "2", "Micro-batches K": "4"})
    write(tab.choose("Network", "gpt"), "Batch", "16")
    assert not tab.test.exception
    # Two replicas of two stages of five devices need more devices than there are.
    assert "3 configurations on h200-16" in captions(tab)
    rows = list_those(tab, INFEASIBLE)
    assert "12 heads do not divide among 5 devices" in [row["Why not"] for row in rows]
    write(tab, "Heads", "10")
    assert tab.says("heads: hidden size 768 does not divide into 10 equal heads")


def test_serving_shows_its_cache() -> None:
    tab = App("strategies")
    fill(tab, {"Replicas D": "1", "Tensor H": "1", "Stages P": "1,2", "Micro-batches K": "1"})
    tab.choose("Network", "gpt")
    next(each for each in tab.test.multiselect if each.label == "Mode").set_value(["decode"])
    tab.run()
    assert "KV cache" in tab.says("at its peak")[0]
    bars = figures(tab)[2]["data"][-1]
    assert "KV cache" in bars["y"]
