"""The Recommend page: three inputs, the fastest strategy with its proof, and details of a strategy of the front."""

from __future__ import annotations

import pytest
from conftest import App

from pages.shared.program_state import ProgramState
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.recommendation import Question, SearchRanges, recommend


def asked(**ranges: str) -> App:
    """Open the page with a small model, and ask for its strategy."""
    tab = App("recommend")
    tab.choose("Model", "gpt2-small")
    tab.choose("Global batch", 16)
    for label, text in {"Micro-batch size": "1", "Stages per device": "1", **ranges}.items():
        next(each for each in tab.test.text_input if each.label == label.replace("_", " ")).set_value(text)
    tab.press("Find the fastest")
    return tab.wait(lambda: not any("hourglass" in text.value for text in tab.test.markdown))


def texts(tab: App) -> str:
    """Return all texts of the page."""
    every = (*tab.test.markdown, *tab.test.caption, *tab.test.success, *tab.test.warning, *tab.test.info)
    return "\n".join(text.value for text in every)


@pytest.fixture(scope="module")
def question() -> Question:
    """Return the question of the page."""
    from tessel_core.costs.meshes import find_mesh

    found = preset_network("gpt2-small")
    assert found is not None
    family, said = found
    spec = family.spec(**{**said, "batch": 16, "dtype": "bf16", "sequence": 1024})
    return Question(family, spec, find_mesh("h100-8"), SearchRanges(micro_batch_size=(1,), stages_per_device=(1,)))


def test_the_page_says_what_the_search_says(question: Question) -> None:
    tab, found = asked(), recommend(question)
    assert found.best is not None
    assert f"of the {found.configurations:,} configurations" in tab.test.success[0].value.replace("\\", "")
    numbers = tab.numbers()
    assert numbers["Memory"].startswith(f"{found.best.peak / 1e9:.3g}")
    assert {"Step", "Tokens/s per GPU", "Weights", "Optimizer", "Activations"} <= set(numbers)
    assert len(tab.test.dataframe[0].value) == min(12, len(found.front))


def test_progress_has_a_place_of_its_own() -> None:
    """Progress that takes the place of an old answer would move the columns of that answer on the screen."""
    kinds = [child.type for child in asked().test.main.children.values()]
    assert kinds.index("empty") < kinds.index("success")


def test_a_pipeline_has_a_timeline_that_goes_on_to_schedule() -> None:
    tab = asked(Pipeline="4")
    assert "Timeline of the pipeline" in texts(tab)
    tab.press("Schedule")
    assert tab.work.question.micro_batches == tab.work.micro_batches == 8
    assert len(tab.work.plan.devices) == 4


def test_one_press_opens_the_placement_of_one_replica() -> None:
    tab = asked(Pipeline="4", Stages_per_device="1")
    tab.press("Placement")
    placing = tab.work.placing
    assert placing.graph is not None
    assert placing.graph.graph.is_training
    assert len(placing.devices) == 4
    assert (placing.costs.tensor, placing.costs.micro_batches, placing.costs.in_flight) == (1, 8, "1f1b")
    assert placing.problem.graph.time_unit == "s"


def test_one_press_opens_the_program_of_the_strategy() -> None:
    tab = asked(Pipeline="4", Stages_per_device="1")
    step = tab.numbers()["Step"]
    tab.press("Program")
    assert not tab.test.exception
    looked = tab.test.session_state["tessel"].states[ProgramState].strategy
    assert looked.trace.devices == tuple(range(1, 9))
    assert looked.samples == 16
    assert step.endswith("ms")
    assert looked.trace.latency * 1e3 == pytest.approx(float(step.split()[0]), rel=0.05)
    assert looked.title in texts(tab).replace("\\", "")


def test_one_press_compares_the_orders_of_the_stages() -> None:
    tab = asked(Pipeline="4", Stages_per_device="1")
    tab.press("Compare")
    pairs = tab.work.comparison.pairs
    assert [pair.scheduler for pair in pairs] == ["1f1b", "gpipe", "tessel"]
    assert {(len(pair.plan.devices), pair.micro_batches) for pair in pairs} == {(4, 8)}


def test_what_one_stage_cannot_open_says_why() -> None:
    tab = asked(Pipeline="1")
    off = {each.label: each.help for each in tab.test.button if each.disabled}
    assert {"Placement", "Schedule", "Compare"} <= set(off)
    assert "one stage" in off["Placement"]
    assert "Program" not in off


def test_idle_time_stands_by_cause_beside_the_timeline() -> None:
    tab = asked(Pipeline="4", Stages_per_device="1")
    assert "Idle time by cause, per device" in texts(tab)
    assert "The pipeline is idle" in texts(tab)


def test_a_shorter_order_is_searched_and_launched() -> None:
    tab = asked(Pipeline="4", Stages_per_device="1")
    if any(each.label == "Search for a shorter order" for each in tab.test.button):  # Compare asked the same before
        tab.press("Search for a shorter order")
    tab.wait(lambda: "No order of these stages within memory" in texts(tab))
    said = texts(tab).replace("\\", "")
    shorter = "shorter than 1f1b" in said
    assert shorter != ("no shorter order than 1f1b" in said)
    assert ("Megatron-LM runs 1f1b, not the order that the search found" in said) == shorter
    assert ("in the searched order" in said) == shorter


def test_prices_are_worked_out_when_asked() -> None:
    tab = asked(Pipeline="4", Stages_per_device="1")
    assert "half the bandwidth" not in texts(tab)
    tab.press("Work it out")
    tab.wait(lambda: "more memory per GPU" in texts(tab))
    assert all(clause in texts(tab) for clause in ("half the bandwidth", "one layer moved", "twice as large"))


def test_a_range_that_is_none_is_one_sentence() -> None:
    tab = App("recommend")
    next(each for each in tab.test.text_input if each.label == "ZeRO").set_value("all")
    tab.run()
    assert [error.value for error in tab.test.error] != []


def test_a_batch_that_nothing_divides_is_one_sentence() -> None:
    tab = App("recommend")
    tab.choose("Model", "gpt2-small")
    tab.choose("Global batch", 7)
    for label, text in {"Pipeline": "1", "Tensor": "1"}.items():
        next(each for each in tab.test.text_input if each.label == label).set_value(text)
    tab.press("Find the fastest")
    tab.wait(lambda: bool(tab.test.error))
    assert "the nearest batches that do" in tab.test.error[0].value


def test_start_leads_with_the_question() -> None:
    tab = App()
    assert "How do I cut my model for my cluster?" in texts(tab)
    tab.press("Find yours")
    assert any(button.label == "Find the fastest" for button in tab.test.button)
