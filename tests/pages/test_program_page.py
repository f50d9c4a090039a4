"""The Program page: the lines of a rank beside its trace, details of an operation, and programs from three sources."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from conftest import App
from helpers.onnx_models import mlp

from pages.parts.program import sources, view
from pages.shared import program_state
from pages.shared.program_state import FILE, SCHEDULE, STRATEGY, ProgramState
from pages.shared.timeline.state import TimelineState
from pages.shared.widgets import literal
from tessel_core.ir.project import project, rank_text
from tessel_core.ir.text import program_text
from tessel_core.simulation import Trace
from tessel_core.simulation.idle import idle_of
from tessel_core.simulation.waiting import came_after, runs_of, waited_for
from tessel_core.strategies.families import find_family
from tessel_core.strategies.strategy import Strategy, build_program
from tessel_core.units import show_time
from tessel_core.workbench.messages.operation import place_of
from tessel_core.workbench.workspace import Workspace


@cache
def few_configurations() -> Workspace:
    """Return a grid with few configurations, like those of the Strategies page."""
    tab = App("strategies")
    for label, text in {
        "Layers": "8",
        "Stages P": "2",
        "Width": "512",
        "Batch": "256",
        "Replicas D": "1",
        "Micro-batches K": "16",
    }.items():
        next(each for each in tab.test.text_input if each.label == label).set_value(text)
    next(each for each in tab.test.text_input if each.label == "Tensor H").set_value("1")
    return tab.run().work


def strategies() -> App:
    """Open the Strategies page with few configurations."""
    return App.on("strategies", few_configurations())


def looked_at() -> App:
    """Return the program of the best strategy."""
    return App.on("program", few_configurations())


def state(tab: App) -> ProgramState:
    return tab.test.session_state["tessel"].of(ProgramState)


def trace_of(tab: App) -> Trace:
    shown = state(tab).shown
    assert shown is not None
    return shown.trace


def lines(tab: App) -> list[str]:
    return list(tab.test.dataframe[0].value["Operation"])


def first(tab: App) -> int:
    """Return the number of the first line in view."""
    return next(each for each in tab.test.number_input if each.label == "From line").value


def from_line(tab: App, number: int) -> App:
    next(each for each in tab.test.number_input if each.label == "From line").set_value(number)
    return tab.run()


def select(tab: App, row: int) -> App:
    """Select a line, as a click does. Streamlit's test runner has no rows to click."""
    of = state(tab)
    tab.test.session_state[f"lines-{of.turn}-{of.generation}-{of.rank}--{first(tab)}"] = {
        "selection": {"rows": [row], "columns": [], "cells": []}
    }
    return tab.run()


def upload(tab: App, name: str, data: bytes) -> App:
    tab.test.button_group[0].set_value(FILE)
    tab.run()
    tab.test.file_uploader[0].set_value((name, data, "text/plain"))
    return tab.run()


def written() -> bytes:
    family = find_family("mlp")
    built = build_program(family, family.spec(2, 64, 32, "fp16"), Strategy(pipeline=2, micro_batches=2))
    return program_text(built.program).encode()


def causes_of(tab: App) -> dict[str, list[float]]:
    """Return the bars of the lower picture for each cause, in per cent of the time of each device."""
    figure = json.loads(tab.test.get("plotly_chart")[-1].proto.spec)
    return {bars["name"]: bars["x"] for bars in figure["data"]}


def test_the_headline_is_idle_time_and_the_time_of_a_sample() -> None:
    tab = looked_at()
    trace = trace_of(tab)
    idle = idle_of(trace)
    assert idle is not None
    assert tab.numbers() == {
        "Idle": f"{float(idle.split.idle):.1%}",
        "Time per sample": show_time(trace.latency / 256, "s"),
    }
    beside = f"imbalance {float(idle.split.imbalance):.1%} + bubble {float(idle.split.bubble):.1%}"
    assert next(metric for metric in tab.test.metric if metric.label == "Idle").delta == literal(beside)
    shown = causes_of(tab)
    assert shown.pop("busy") == pytest.approx([100 * work * idle.tick / trace.latency for work in idle.split.work])
    shares = {str(cause): 100 * float(share) for cause, share in idle.causes.shares.items() if share}
    assert {name: sum(bars) / 2 for name, bars in shown.items()} == pytest.approx(shares), "of two devices"


def test_a_program_from_a_file_has_idle_time_and_samples_that_nobody_knows() -> None:
    tab = upload(App("program"), "small.txt", written())
    assert list(tab.numbers()) == ["Idle"]
    tab = upload(App("program"), "host.txt", b"program p\n%x: fp32[4]@0\nreturn %x\n")
    assert tab.numbers() == {}, "there is no device but the host"
    assert any("there are no device lanes" in caption.value for caption in tab.test.caption)
    tab.test.session_state["tessel"].of(TimelineState).failed = "Canvas is not supported."
    tab = upload(tab, "small.txt", written())
    assert any("The button Trace on" in caption.value for caption in tab.test.caption)
    assert tab.numbers()


def test_the_lines_are_those_of_the_rank() -> None:
    tab = looked_at()
    ranks = project(trace_of(tab).program)
    for rank in (1, 2):
        tab.choose("Rank", rank)
        from_line(tab, 1)
        assert lines(tab) == rank_text(ranks[rank]).splitlines()[: view._LINES_PER_PAGE]


def test_at_first_the_longest_operation_is_looked_at() -> None:
    tab = looked_at()
    trace, number = trace_of(tab), state(tab).selected
    assert number is not None
    assert max(run.seconds for run in runs_of(trace, number)) == trace.seconds.max()
    (code,) = tab.test.code
    assert lines(tab).index(code.value) <= view._LINES_BEFORE_SELECTED + 1, "its line stands near the top"


def searched(tab: App) -> Any:
    """Return the search field."""
    return next(each for each in tab.test.text_input if each.label == "Search")


def test_windows_and_search() -> None:
    tab = looked_at()
    whole = rank_text(project(trace_of(tab).program)[state(tab).rank]).splitlines()
    assert len(whole) > view._LINES_PER_PAGE
    from_line(tab, 150)
    assert lines(tab) == whole[149 : 149 + view._LINES_PER_PAGE]
    searched(tab).set_value("MATMUL_GRAD")
    tab.run()
    assert lines(tab) == [line for line in whole if "matmul_grad" in line][: view._LINES_PER_PAGE]
    searched(tab).set_value("nothing like it")
    tab.run()
    assert lines(tab) == []


def test_a_row_shows_its_operation_closely() -> None:
    tab = looked_at()
    text = lines(tab)
    row = [i for i, line in enumerate(text) if "matmul(" in line][1]
    select(tab, row)
    trace, number = trace_of(tab), state(tab).selected
    assert number is not None
    assert [code.value for code in tab.test.code] == [text[row]]
    facts, before, after = (each.value for each in tab.test.dataframe[1:4])
    (run,) = runs_of(trace, number)
    assert list(facts["Lasts"]) == [show_time(run.seconds, "s")]
    assert len(after) == len(came_after(trace, number))
    assert list(before["Between"]) == [show_time(each.gap, "s") for each in waited_for(trace, number)]
    formula = " ".join(each.value for each in tab.test.markdown).replace("\\", "")
    assert "FLOP ÷" in formula
    assert "launch" in formula


def test_a_neighbour_leads_to_its_operation() -> None:
    tab = looked_at()
    trace, number = trace_of(tab), state(tab).selected
    assert number is not None
    before = waited_for(trace, number)
    chosen = {"selection": {"rows": [0], "columns": [], "cells": []}}
    tab.test.session_state[f"before-{state(tab).turn}-{number}"] = chosen
    tab.run()
    assert state(tab).selected == before[0].op
    assert tab.test.code[0].value in lines(tab)


def test_a_click_in_the_timeline_shows_the_operation_on_its_rank() -> None:
    tab = looked_at()
    trace = trace_of(tab)
    event = next(i for i in range(trace.events - 1, -1, -1) if trace.device[i] == 2)
    number = int(trace.op[event])
    (shown,) = tab.timelines()
    seen = {"of": shown["digest"], "at": f"{number}.1"}
    tab.test.session_state[f"program-timeline-{state(tab).turn}"] = {"look": seen}
    tab.run()
    assert state(tab).selected == number
    assert state(tab).rank == 2
    assert any(line in lines(tab) for line in [code.value for code in tab.test.code])


def test_an_uploaded_program_and_one_that_is_none() -> None:
    tab = upload(App("program"), "written.txt", written())
    assert from_line(tab, 1) is tab
    assert lines(tab)[0].startswith("program mlp")
    shown = lines(tab)
    tab.test.file_uploader[0].set_value(
        ("bad.txt", b"program a\n%x: fp32[4]@1\n%y: fp32[5]@1 = relu(%x)\nreturn %y", "")
    )
    tab.run()
    assert tab.says("bad.txt: operation 0 (relu): outputs fp32[5]@1, but its inputs imply fp32[4]@1.")
    assert lines(tab) == shown
    tab.test.file_uploader[0].set_value(("bytes.txt", b"\xff\xfe\x00", ""))
    tab.run()
    assert tab.says("bytes.txt: is not text.")
    assert lines(tab) == shown


def test_an_onnx_model_is_a_program_too() -> None:
    """It is read with likely sizes, then with chosen ones. A file that is no model leaves the program unchanged."""
    tab = upload(App("program"), "model.onnx", mlp().SerializeToString())
    assert [line.split(" = ")[1].split("(")[0] for line in lines(tab) if " = " in line] == ["gemm", "relu", "matmul"]
    assert "%x: fp32[1, 64]@1" in program_text(trace_of(tab).program)
    tab.choose("batch", 8)
    assert "%x: fp32[8, 64]@1" in program_text(trace_of(tab).program)
    assert tab.work.placing.sizes == {"batch": 8}
    tab.test.file_uploader[0].set_value(("bad.onnx", mlp().SerializeToString()[:500], ""))
    tab.run()
    assert tab.says("bad.onnx: the model: is damaged or cut off")
    assert "%x: fp32[8, 64]@1" in program_text(trace_of(tab).program)


def test_an_uploaded_program_survives_a_reload_while_the_server_runs() -> None:
    tab = upload(App("program"), "written.txt", written())
    shown = lines(tab)
    again = App("program", **tab.address)
    assert lines(again) == shown
    tab.go("strategies").go("program")
    assert lines(tab) == shown
    program_state._shelf().clear()
    gone = App("program", **tab.address)
    assert gone.says("program: is no longer in memory. Upload its file again")


def test_too_many_operations_are_refused_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_OPERATIONS", 10)
    tab = upload(App("program"), "written.txt", written())
    assert tab.says("operations, more than the 100,000 that are shown here.")
    assert not tab.test.dataframe


def test_devices_that_the_mesh_does_not_have_are_one_sentence() -> None:
    tab = upload(App("program"), "far.txt", b"program far\n%x: fp32[4]@99\n%y: fp32[4]@99 = relu(%x)\nreturn %y")
    assert tab.says("device 99: is not in mesh h200-16, whose devices are 1 to 16.")
    tab = upload(App("program"), "far.txt", b"program far\n%x: fp32[4]@999999999\nreturn %x")
    assert tab.says("names device 999999999, but this page shows at most 256 devices")


def test_the_schedule_of_the_workspace_is_a_program(small: App) -> None:
    small.search()
    small.go("program")
    assert state(small).source == SCHEDULE
    assert any("block(" in line for line in lines(small))
    trace = trace_of(small)
    select(small, next(i for i, line in enumerate(lines(small)) if "block(" in line))
    assert small.test.code[0].value in program_text(trace.program).splitlines()


def test_a_strategy_that_nobody_chose_is_the_one_that_strategies_shows() -> None:
    """A reload and a link therefore show the same strategy."""
    tab = App("program")
    tab.test.button_group[0].set_value(STRATEGY)
    tab.run()
    shown = state(tab).strategy
    assert shown is not None
    assert lines(tab)
    again = App("program", of="strategy")
    assert state(again).strategy is not None
    assert state(again).strategy.title == shown.title
    begun = App("strategies")
    begun.go("program")
    assert state(begun).strategy.title == shown.title


def test_a_strategy_opens_as_a_plan_in_its_own_order() -> None:
    tab = strategies().press("Open in Schedule")
    assert [len(tab.work.plan.devices), tab.work.micro_batches, tab.work.scheduler] == [2, 16, "pipedream"]
    assert [block.name for block in tab.work.plan.blocks] == ["F0", "F1", "B1", "B0"]
    assert tab.go("schedule").search().work.asked == tab.work.question


def test_a_strategy_joins_the_comparison() -> None:
    tab = strategies().press("Add to Compare")
    (pair,) = tab.work.comparison.pairs
    assert (pair.scheduler, pair.micro_batches, pair.plan.time_unit) == ("pipedream", 16, "ns")
    labels = {button.label for button in tab.test.button}
    assert labels & {"On Compare", "Add to Compare"} == {"On Compare"}, "added once"


def test_what_is_no_pipeline_says_why() -> None:
    tab = strategies()
    next(each for each in tab.test.text_input if each.label == "Stages P").set_value("1")
    tab.run()
    for label in ("Open in Schedule", "Add to Compare"):
        button = next(button for button in tab.test.button if button.label == label)
        assert button.disabled
        assert "has one stage, so it has no pipeline" in button.help.replace("\\", "")
    assert tab.press("Program") is tab
    assert state(tab).source == STRATEGY


def test_the_trace_goes_to_a_file_unless_it_is_too_large_for_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    tab = looked_at()
    (button,) = [each for each in tab.test.get("download_button") if each.label == "Trace"]
    assert not button.disabled
    monkeypatch.setattr("tessel_core.exports.simulation_trace.MAX_EVENTS", 10)
    (button,) = [each for each in tab.run().test.get("download_button") if each.label == "Trace"]
    assert button.disabled
    assert f"has {trace_of(tab).events:,} events, more than 10, the limit of trace viewers" in button.help


def test_a_program_that_never_frees_is_shown_and_said() -> None:
    text = b"program p\n%x: fp32[4]@1\n%y: fp32[4]@1 = relu(%x)\n%z: fp32[4]@1 = relu(%x)\nreturn %z\n"
    tab = upload(App("program"), "p.txt", text)
    assert trace_of(tab).peak_memory == (32,)
    assert any("No operation uses %y, " in each.value.replace("\\", "") for each in tab.test.caption)


def wanted(tab: App) -> str:
    """Return the place that the timeline is asked to select, or None."""
    said = [each.proto for each in tab.test.get("bidi_component") if each.proto.component_name.endswith("_said")]
    return json.loads(said[0].json)["wanted"].split(" ")[1] if said and json.loads(said[0].json)["wanted"] else ""


def hear(tab: App, place: str) -> App:
    """Send the message of the timeline after a user has selected this place."""
    (shown,) = tab.timelines()
    tab.test.session_state[f"program-timeline-{state(tab).turn}"] = {"look": {"of": shown["digest"], "at": place}}
    tab.run()
    return tab


def test_text_and_timeline_follow_one_another_and_a_range_stays() -> None:
    tab = looked_at()
    assert wanted(tab) == "", "at first the whole picture is seen"
    before = state(tab).selected
    select(tab, 8)
    chosen = state(tab).selected
    assert chosen != before
    assert wanted(tab) == place_of(trace_of(tab), chosen)
    hear(tab, place_of(trace_of(tab), chosen))
    assert wanted(tab) == ""
    hear(tab, "r3-90")
    assert (wanted(tab), state(tab).selected) == ("", chosen), "a range leaves the text, and is left"
    hear(tab, "")
    assert wanted(tab) == ""
