"""A hosted app accepts no paths, starts no processes, shows only the visitor's own work, and limits searches."""

from __future__ import annotations

import pytest
from conftest import App
from helpers.stores import PLAN, small_work

from pages.parts.run import asked
from tessel_core.workbench import jobs
from tessel_core.workbench.jobs import Run


@pytest.fixture(autouse=True)
def _hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSEL_HOSTED", "1")


def test_no_path_is_asked_for() -> None:
    assert [each.label for each in App("graph").test.text_input] == ["Name"]


def test_a_schedule_runs_on_no_process(small: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The press of a disabled button is ignored too. A manipulated browser could send it."""
    monkeypatch.setattr(asked, "why_no_torch", lambda: "")
    begun: list[object] = []
    monkeypatch.setattr(asked, "start_search", begun.append)
    small.search().go("run")
    assert small.says("A hosted app starts no processes")
    monkeypatch.setattr(asked, "form_button", lambda label, *place, **look: label == "Run")
    small.run()
    assert begun == []


def test_work_of_others_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = App.on("schedule", small_work(PLAN, name="my own"))
    assert mine.work.name == "my own", "a link opens what is one's own"
    assert "Workspaces" not in [each.label for each in App().test.selectbox]
    monkeypatch.delenv("TESSEL_HOSTED")
    assert "Workspaces" in [each.label for each in App().test.selectbox]


def test_a_link_asks_for_no_long_search() -> None:
    tab = App("schedule", sample="v-shape-4", **{"time-limit": "600"})
    assert tab.says("Time limit: must be between 0.1 and 20, got 600")
    assert tab.work.config.time_limit == 20


def test_a_tab_has_one_search_at_a_time(small: App, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Run[object]] = []
    monkeypatch.setattr(Run, "leave", lambda run, present: left.append(run))
    first = small.choose("Micro-batches", 27).search().work.question  # numbers that no other test searches
    small.choose("Micro-batches", 29).search()
    assert left == [jobs.find(first.search)]
