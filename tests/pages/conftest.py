"""Run the app without a browser, with Streamlit's own test runner."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, app_test, local_script_runner
from streamlit.testing.v1.element_tree import ButtonGroup
from streamlit.testing.v1.local_script_runner import LocalScriptRunner

from pages.parts.start import opening
from pages.shared import session as session_module
from pages.shared.session import FIRST_SAMPLE, Session
from tessel_core.charts.timeline import timeline_frames
from tessel_core.samples import list_graphs, list_samples, load_sample
from tessel_core.scheduling import Question, find_scheduler
from tessel_core.workbench import jobs
from tessel_core.workbench.store import find_store, new_token
from tessel_core.workbench.store import store as store_module
from tessel_core.workbench.workspace import Workspace, workspace_file

APP = str(Path(__file__).resolve().parents[2] / "app.py")


class App:
    """One browser tab, described by the actions of a user."""

    def __init__(self, page: str = "", **address: str) -> None:
        self.test = AppTest.from_file(APP, default_timeout=30)
        for key, value in address.items():
            self.test.query_params[key] = value
        if page:
            self.go(page)
        else:
            self.run()

    @classmethod
    def on(cls, page: str, work: Workspace) -> App:
        """Open a page on a copy of this workspace. This takes one run, and filling in the forms would take several."""
        token = new_token()
        find_store().workspaces.create(workspace_file(work), token)
        return cls(page, work=token)

    def run(self) -> App:
        self.test.run()
        assert not self.test.exception, "a page must never show a traceback"
        return self

    def go(self, page: str) -> App:
        self.test.switch_page(f"pages/{page}.py")
        return self.run()

    def place(self) -> App:
        """Press Place and wait for the answer."""
        self.press("Place")
        return self.wait(lambda: "Phase" not in self.numbers())

    @property
    def work(self) -> Workspace:
        session: Session = self.test.session_state["tessel"]
        assert session.work is not None
        return session.work

    @property
    def durations(self) -> list[int]:
        return [block.duration for block in self.work.plan.blocks]

    @property
    def address(self) -> dict[str, str]:
        shown = [each.proto for each in self.test.get("bidi_component")]
        completed = [json.loads(each.json) for each in shown if each.component_name == "tessel_address"]
        latest = completed[-1] if completed else {"wanted": {}, "not": []}
        there = {key: value for key, value in dict(self.test.query_params).items() if key not in latest["not"]}
        return there | latest["wanted"]

    @property
    def kept(self) -> list[str]:
        """Names of all workspaces in the store."""
        return [kept.name for kept in find_store().workspaces.all()]

    def press(self, label: str) -> App:
        button = next(button for button in self.test.button if button.label == label)
        assert not button.disabled, f"{label} is off"
        button.click()
        return self.run()

    def choose(self, label: str, value: Any) -> App:
        found = [w for kind in ("selectbox", "number_input") for w in self.test.get(kind) if w.label == label]
        found[0].set_value(value)
        return self.run()

    def pick(self, gallery: str, name: str) -> App:
        """Choose a sample from a gallery.

        The test runner has no browser, so this sets the state that a browser would send.
        """
        (family,) = {each.family for each in (*list_samples(), *list_graphs()) if each.name == name}
        self.choose(f"{gallery}, group", family)
        self.test.session_state[f"gallery-{gallery}"] = {"chosen": name}
        return self.run()

    def look_at(self, view: str) -> App:
        self.test.button_group[0].set_value(view)
        return self.run()

    @property
    def switches(self) -> list[ButtonGroup[str]]:
        """The switch between the shortest and the steady schedule, or an empty list if the page has none."""
        return [each for each in self.test.button_group if "Steady" in each.options]

    def show(self, objective: str) -> App:
        """Switch to the schedule of this objective."""
        self.switches[0].set_value(objective)
        return self.run()

    def edit(self, table: str, row: int, column: str, value: Any) -> App:
        """Change a table cell.

        Streamlit's test runner has no table, so this sets the state that a browser would send.
        """
        edits = {"edited_rows": {row: {column: value}}, "added_rows": [], "deleted_rows": []}
        session: Session = self.test.session_state["tessel"]
        self.test.session_state[session.key(table)] = edits
        return self.run()

    def wait(self, done: Callable[[], bool]) -> App:
        """Rerun the page until `done` returns true. Kernels may be compiled first, once per machine."""
        begun = time.monotonic()
        while not done():
            waited_s = time.monotonic() - begun
            assert waited_s < 120, "nothing came in time"
            time.sleep(max(0.05, waited_s / 5))
            self.run()
        return self

    def search(self) -> App:
        """Press Search and wait until no search is running."""
        begin = next(button.label for button in self.test.button if button.label in ("Search", "Build"))
        self.press(begin)
        return self.wait(lambda: "Phase" not in self.numbers())

    def says(self, part: str) -> list[str]:
        """Return every coloured message on the page that contains `part`, without Markdown's escapes."""
        kinds = (self.test.success, self.test.info, self.test.warning, self.test.error)
        boxes = [box for kind in kinds for box in kind]
        texts = [box.value.replace("\\", "") for box in boxes]
        return [text for text in texts if part in text]

    def files(self) -> list[str]:
        """Return the labels of the download buttons, except Export."""
        labels = [button.label for button in self.test.get("download_button")]
        return [label for label in labels if label != "Export"]

    def timelines(self) -> list[dict[str, Any]]:
        """Return the header and the columns of each schedule in the page's timelines."""
        names = "tessel_timeline", "tessel_timeline_small"
        shown = [each.proto for each in self.test.get("bidi_component") if each.proto.component_name in names]
        return [{**header, **columns} for each in shown for header, columns in timeline_frames(each.bytes)]

    def numbers(self) -> dict[str, str]:
        return {metric.label: metric.value for metric in self.test.metric}


@pytest.fixture(autouse=True)
def _app_around_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave like a server that has already answered.

    A fresh one would treat the folder `pages` as an app of its own.
    """
    begin = PagesManager.__init__

    def begin_later(self: PagesManager, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        PagesManager.uses_pages_directory = False

    monkeypatch.setattr(PagesManager, "__init__", begin_later)
    # Streamlit leaves the app as the main module. Processes that later tests start would import it.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(autouse=True)
def _no_search_outlives_its_test(restart_jobs: list[jobs.Jobs]) -> Iterator[None]:
    """Stop all searches after each test. A server stops them some seconds after its last tab has closed."""
    yield
    for each in (jobs._JOBS, *restart_jobs):
        each.close(0)


@pytest.fixture
def restart_jobs() -> list[jobs.Jobs]:
    """Job tables of the servers that a test has restarted."""
    return []


@pytest.fixture(autouse=True, scope="session")
def _a_run_costs_what_a_page_costs() -> Iterator[None]:
    """Speed up Streamlit's test runner.

    It compiles all scripts for every run, and polls for the end of a run a thousand times per second. For every app, it
    also reads the metadata of all installed packages, although none has a component.
    """
    compiled = ScriptCache()

    def ended(runner: LocalScriptRunner, timeout_s: float) -> None:
        assert runner._script_thread is not None
        runner._script_thread.join(timeout_s)
        assert runner.script_stopped(), f"a page took more than {timeout_s} s"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", list)
        patch.setattr(app_test, "ScriptCache", lambda: compiled)
        patch.setattr(local_script_runner, "ScriptCache", lambda: compiled)
        patch.setattr(local_script_runner, "require_widgets_deltas", ended)
        yield


@pytest.fixture(autouse=True)
def _quick_opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the search of the Start page by a quick one.

    Only the test of its picture runs the real search, unpolished.
    """
    question = Question("1f1b+", load_sample(FIRST_SAMPLE), 4, find_scheduler("1f1b+").config())
    if "first_screen" in request.node.name:
        asked = opening._searched()
        question = replace(asked, config=replace(asked.config, polish=0.0))
    monkeypatch.setattr(opening, "_searched", lambda: question)


@pytest.fixture
def app() -> type[App]:
    return App


@pytest.fixture
def tab() -> Callable[..., App]:
    """Return a function that opens another tab on the Schedule page, optionally on the workspace of a token."""
    return lambda token="", **address: App("schedule", **({"work": token} if token else {}), **address)


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch, restart_jobs: list[jobs.Jobs]) -> Callable[[], None]:
    """Return a function that forgets all that the server has in memory, as a restart does.

    It has run once before the test.
    """

    def begin_anew() -> None:
        fresh = jobs.Jobs()
        restart_jobs.append(fresh)
        monkeypatch.setattr(jobs, "submit", fresh.submit)
        monkeypatch.setattr(jobs, "find", fresh.find)
        store_module._opened.cache_clear()
        session_module._desk.cache_clear()

    begin_anew()
    return begin_anew


@pytest.fixture
def small() -> App:
    """The Schedule page with a small plan, whose search ends at once."""
    return App("schedule", sample="m-shape-4", n="13")


@pytest.fixture
def placed(restart: Callable[[], None]) -> App:
    """The Placement page with a small network and its answer."""
    return App("placement", graph="mlp-8-training").place()
