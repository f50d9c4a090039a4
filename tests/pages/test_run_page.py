"""The Run page: reasons against a run, a saved run, a run from a file, and a run in progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from conftest import App
from helpers.measured import as_measured

from pages.parts.run import asked
from tessel_core.control import Control
from tessel_core.formats.run_file import run_file, run_text
from tessel_core.model import Schedule
from tessel_core.workbench import jobs
from tessel_core.workbench.running import RunQuestion, RunReport


def solved(tab: App) -> Schedule:
    """Return the schedule that the page runs."""
    run = jobs.find(tab.search().work.question.search)
    assert run is not None
    assert run.result is not None
    return run.result.solution


def test_without_a_schedule_the_page_leads_to_one(app: type[App]) -> None:
    tab = app("run", sample="v-shape-4", n="4")
    assert tab.says("No schedule yet")
    assert tab.timelines() == []
    assert "Run" not in [button.label for button in tab.test.button]


def test_without_torch_a_schedule_does_not_run_and_a_recorded_one_is_shown(
    small: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "why_no_torch", lambda: "needs PyTorch: pip install it")
    schedule = solved(small)
    small.go("run")
    assert next(button for button in small.test.button if button.label == "Run").disabled
    assert small.says("Running needs PyTorch: pip install it")
    work = replace(small.work, ran=as_measured(schedule))
    tab = App.on("run", work)
    assert [each["title"] for each in tab.timelines()][:2] == ["Measured", "Predicted from an earlier run"]
    assert tab.says("All losses and gradients equal those of one process")
    assert tab.numbers()["Measured / predicted"] == "1.000"
    assert [len(each.value.columns) for each in tab.test.dataframe] == [5, 3]


def test_a_run_is_opened_from_a_file_and_kept(small: App, restart: Callable[[], None]) -> None:
    run = as_measured(solved(small))
    tab = App()
    tab.test.file_uploader[0].set_value(("mine.run.json", run_text(run_file(run)).encode(), "application/json"))
    tab.run()
    assert tab.timelines()[0]["title"] == "Measured"
    assert tab.work.opened is not None
    token = tab.address["work"]
    restart()
    again = App("run", work=token)
    assert again.work.ran is not None
    assert again.work.ran.start_ns == run.start_ns
    assert again.timelines()[0]["title"] == "Measured"


def test_a_run_goes_on_ends_and_is_kept(small: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "why_no_torch", lambda: "")

    def solve(question: RunQuestion, control: Control) -> RunReport:
        return RunReport.of(as_measured(question.schedule, seed=question.number))

    monkeypatch.setattr(RunQuestion, "solve", solve)
    schedule = solved(small)
    small.go("run").press("Run").wait(lambda: small.work.ran is not None)
    assert small.work.ran.schedule == schedule
    before = small.work.ran
    small.press("Run").wait(lambda: small.work.ran is not before)
    assert not [button for button in small.test.button if button.label == "Undo" and not button.disabled]
    again = App("run", work=small.address["work"])
    assert again.timelines()[0]["title"] == "Measured", "also of a sample that nobody changed"


def test_a_tab_that_is_loaded_again_goes_on_with_its_run(small: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "why_no_torch", lambda: "")
    ends = threading.Event()

    def solve(question: RunQuestion, control: Control) -> RunReport:
        ends.wait(20)
        return RunReport.of(as_measured(question.schedule, seed=question.number))

    monkeypatch.setattr(RunQuestion, "solve", solve)
    solved(small)
    small.go("run").press("Run")
    again = App("run", **small.address)
    assert "Cancel" in [button.label for button in again.test.button]
    ends.set()
    again.wait(lambda: again.work.ran is not None)
    assert again.timelines()[0]["title"] == "Measured"
    assert "Cancel" not in [button.label for button in App("run", **again.address).test.button], "it is taken once"
    assert not again.says("another schedule")
    again.go("schedule").choose("Micro-batches", 5).search().go("run")
    assert again.says("This run used another schedule than the current one")


def test_a_rank_that_ends_early_is_one_sentence(small: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from tessel_core.execution.ranks import RankError

    def solve(question: RunQuestion, control: Control) -> RunReport:
        raise RankError("rank 1 at B0 #3", "was killed (SIGKILL)")

    monkeypatch.setattr(asked, "why_no_torch", lambda: "")
    monkeypatch.setattr(RunQuestion, "solve", solve)
    solved(small)
    small.go("run").press("Run").wait(lambda: bool(small.says("was killed")))
    assert small.says("rank 1 at B0 #3: was killed (SIGKILL)")
    assert small.work.ran is None
