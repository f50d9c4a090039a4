"""The Strategies page: ranges to points, cards and sentences, one configuration looked at closely."""

from __future__ import annotations

import json

from conftest import App

from tessel_core.strategies import Grid, doubling, find_family, sweep
from tessel_core.strategies.simulate import equal_devices


def page(**words: str) -> App:
    """The page with these ranges on DistIR's mesh, one network unless they say otherwise."""
    tab = App("strategies")
    tab.choose("Mesh", "distir-16")
    for label, text in {"Layers": "8", "Stages_P": "1..8x2", "Width": "512", "Batch": "256", **words}.items():
        write(tab, label.replace("_", " "), text)
    return tab


def write(tab: App, label: str, text: str) -> App:
    next(each for each in tab.test.text_input if each.label == label).set_value(text)
    return tab.run()


def figures(tab: App) -> list[dict]:
    return [json.loads(chart.proto.spec) for chart in tab.test.get("plotly_chart")]


def captions(tab: App) -> str:
    return " ".join(caption.value for caption in tab.test.caption).replace("\\", "")


def test_points_cards_and_sentences_are_those_of_the_sweep() -> None:
    tab = page()
    degrees = doubling(16)
    grid = Grid(data=degrees, tensor=degrees, pipeline=doubling(8), micro_batches=doubling(32))
    found = sweep(find_family("mlp"), grid, equal_devices(16, 1.4e13, 9e11, 25))
    assert f"{len(found):,} configurations on distir-16" in captions(tab)
    best = found.ranked("throughput")[0]
    assert tab.numbers()["Best throughput"] == f"{found.columns['throughput'][best]:,.0f} samples/s"
    points = {trace["name"]: trace for trace in figures(tab)[0]["data"]}
    assert [point[0] for point in points["on the front"]["customdata"]] == list(found.front)
    assert len(points["feasible"]["x"]) + len(found.front) == found.feasible.sum()
    assert points["shown below"]["customdata"][0][0] == best
    assert tab.says("at its peak")
    assert len(tab.test.dataframe[0].value) == len(found.front)


def test_another_range_has_other_points() -> None:
    tab = page()
    write(tab, "Micro-batches K", "1..3")
    assert "not feasible" in tab.test.expander[0].label
    reasons = " ".join(str(row["Why not"]) for row in tab.test.dataframe[1].value.to_dict("records"))
    assert "a batch of 256 does not divide into 1 x 3 parts" in reasons


def test_zero_and_sizes_of_micro_batches_are_asked_too() -> None:
    tab = page()
    before = len(tab.test.dataframe[0].value)
    tab.test.toggle(key=next(each.key for each in tab.test.toggle if each.label == "ZeRO too")).set_value(True)
    write(tab, "Micro-batch size", "16,48")
    grid = Grid(
        data=doubling(16), tensor=doubling(16), pipeline=doubling(8), zero=(False, True), micro_batch_size=(16, 48)
    )
    found = sweep(find_family("mlp"), grid, equal_devices(16, 1.4e13, 9e11, 25))
    assert before != len(found.front) == len(tab.test.dataframe[0].value)
    assert f"{len(found):,} configurations on distir-16; {found.too_large:,} that take more" in captions(tab)
    reasons = " ".join(str(row["Why not"]) for row in tab.test.dataframe[1].value.to_dict("records"))
    assert "a batch of 256 does not divide among 1 replicas into micro-batches of 48" in reasons


def test_another_objective_shows_another_configuration() -> None:
    tab = page()
    tab.test.button_group[-1].set_value("peak_memory")
    tab.run()
    lanes = figures(tab)[2]
    assert "1/8/2/32 pipedream" in " ".join(each.value for each in tab.test.markdown).replace("\\", "")
    assert len([label for label in lanes["layout"]["yaxis"]["ticktext"] if label]) >= 16


def test_what_makes_no_sense_is_one_sentence() -> None:
    tab = page()
    write(tab, "Replicas D", "1..x")
    assert tab.says("Replicas D: must be numbers and ranges such as 1,3..5 or 1..64x2, got '1..x'.")
    write(tab, "Replicas D", "1..1000")
    write(tab, "Tensor H", "1..1000")
    assert tab.says("grid: has ")


def test_nothing_feasible_says_why() -> None:
    tab = page(Replicas_D="3")
    assert tab.says("No configuration is feasible")
    assert tab.test.expander[0].label.endswith("not feasible")


def test_too_many_for_a_page_are_left_to_the_terminal() -> None:
    tab = page(Batch="1..50")
    assert tab.says("more than the 5,000 of a page")


def test_gpts_have_sizes_of_their_own() -> None:
    tab = App("strategies")
    tab.choose("Network", "gpt")
    words = {"Batch": "16", "Replicas D": "1..2", "Tensor H": "1,5", "Stages P": "2", "Micro-batches K": "4"}
    for label, text in words.items():
        write(tab, label, text)
    assert not tab.test.exception
    # Two replicas of two stages of five devices are more than there are.
    assert "3 configurations on h200-16" in captions(tab)
    reasons = " ".join(str(row["Why not"]) for row in tab.test.dataframe[1].value.to_dict("records"))
    assert "12 heads do not divide among 5 devices" in reasons
    write(tab, "Heads", "10")
    assert tab.says("heads: hidden size 768 does not divide into 10 equal heads")
