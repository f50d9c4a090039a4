"""Work is shared as a file and as a link. Errors in either give a message of one sentence."""

from __future__ import annotations

import pytest

from tessel_core.costs.meshes import find_mesh
from tessel_core.formats import read_workspace, workspace_text
from tessel_core.networks import build_shape
from tessel_core.options import options_of
from tessel_core.scheduling import SCHEDULERS
from tessel_core.strategies.form import asked_by
from tessel_core.workbench.workspace import workspace_file, workspace_of

pytestmark = pytest.mark.usefixtures("restart")


def test_an_exported_workspace_opens_elsewhere_with_its_schedule(small, app, restart, monkeypatch, tmp_path) -> None:
    small.edit("blocks", 1, "duration", 4).search()
    text = export(small)
    monkeypatch.setenv("TESSEL_DATA", str(tmp_path / "of-somebody-else"))
    restart()
    other = app("start")
    other.test.file_uploader[0].upload("theirs.json", text.encode(), "application/json")
    other.run()
    assert other.work.token != small.work.token
    assert (other.work.name, other.work.draft, other.work.asked) == (
        small.work.name,
        small.work.draft,
        small.work.asked,
    )
    assert other.numbers()["Makespan"] == small.numbers()["Makespan"]
    assert small.kept == ["m-shape-4"], "it is kept from now on"


def export(app) -> str:
    """Return the file of the Export button, after a check that it reads back as the same workspace."""
    from pages.shared.keeping import _with_answer

    text = workspace_text(workspace_file(_with_answer(app.work)))
    assert workspace_of(read_workspace(text.encode()), app.work.token).draft == app.work.draft
    return text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"format": "tessel-workspace", "version": 2}', "version: tessel-workspace version 2 is not known"),
        (b'{"format": "tessel-workspace", "version": 1}', "the file: 'plans' is missing"),
        (
            b'{"format": "somebody-elses", "version": 1}',
            "format: 'somebody-elses' is not known, choose from tessel-plan",
        ),
        (b'{"cells": [], "nbformat": 4}', "the file: 'format' is missing"),
    ],
)
def test_somebody_elses_file_is_refused_in_one_sentence(small, content: bytes, complaint: str) -> None:
    small.edit("blocks", 1, "duration", 4)
    before, kept = small.work, small.kept
    small.go("start")
    small.test.file_uploader[0].upload("bad.json", content, "application/json")
    small.run()
    assert len(small.says(f"bad.json: {complaint}")) == 1
    assert (small.work, small.kept) == (before, kept)


def test_an_unknown_scheduler_in_a_file_is_told(app) -> None:
    from helpers.stores import simple_workspace

    text = workspace_text(simple_workspace(build_shape("m-shape"))).replace('"tessel"', '"magic"')
    other = app("start")
    other.test.file_uploader[0].upload("new.json", text.encode(), "application/json")
    other.run()
    assert other.says("new.json: scheduler: 'magic' is not known")
    assert other.kept == []


def test_a_link_opens_the_same_view_on_another_machine(small, tab, restart, monkeypatch, tmp_path) -> None:
    small.choose("Largest repeat", 3).choose("Time limit (s)", 2.5).choose("Micro-batches", 12).look_at("Schedule")
    link = small.address
    assert link["max-unroll"] == "3"
    monkeypatch.setenv("TESSEL_DATA", str(tmp_path / "of-somebody-else"))
    restart()
    other = tab(**{key: value for key, value in link.items() if key != "work"})
    assert other.work.question == small.work.question
    assert other.test.button_group[0].value == "Schedule"
    assert not other.says("address")
    gone = tab(**link)
    assert gone.says("The workspace of this link is not saved on this machine. Its sample m-shape-4 was opened instead")
    assert gone.work.question == small.work.question
    assert small.kept == []


def test_a_link_to_nothing_says_so(app) -> None:
    opened = app(work="long-gone")
    assert opened.says("not saved on this machine, and the link names no sample to open instead")
    assert not opened.press("Dismiss").run().says("not saved")


def test_an_address_has_no_two_meanings() -> None:
    taken = {"work", "sample", "scheduler", "n", "view", "compare"}
    for scheduler in SCHEDULERS.values():
        assert not taken & {name.replace("_", "-") for name in options_of(scheduler.config)}


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("max-unroll", "many", "Largest repeat: must be of type int, got 'many'"),
        ("max-unroll", "99", "Largest repeat: must be between 1 and 16, got 99"),
        ("time-limit", "nan", "Time limit: must be between 0.1 and 3600, got nan"),
        ("time-limit", "x" * 300, "time-limit: is longer than 280 letters"),
        ("view", "sideways", "view: must be one of plan, schedule, got 'sideways'"),
    ],
)
def test_a_wrong_setting_in_a_link_is_told(app, key: str, value: str, complaint: str) -> None:
    opened = app(sample="v-shape-4", **{key: value})
    assert opened.says(f"The address is invalid: {complaint}.")
    assert opened.go("schedule").work.plan.name == "v-shape-4", "what is right in the link is followed"


def test_all_that_is_wrong_in_a_link_is_told(app) -> None:
    opened = app("schedule", sample="v-shape-4", n="0", scheduler="magic", view="sideways", **{"time-limit": "3"})
    assert opened.says("The address is invalid in 3 places: ")
    assert opened.work.config.time_limit == 3.0


def test_a_mesh_once_chosen_stays_chosen_on_every_page_and_over_a_reload(app) -> None:
    """This holds for a preset, an edited preset, and a mesh chosen on Strategies."""

    def offered(tab) -> str:
        return next(each for each in tab.test.selectbox if each.label == "Mesh").value

    tab = app("strategies")
    assert (offered(tab), tab.work.placing.mesh_is_chosen) == ("h200-16", False), "until somebody chooses"
    tab.go("mesh").choose("Preset", "v100-1").press("Open preset").go("strategies")
    assert offered(tab) == "v100-1"
    assert any("on v100" in each.value for each in tab.test.caption)
    again = app("program", **tab.address)
    again.test.button_group[0].set_value("File")
    assert offered(again.run()) == "v100-1"
    tab.choose("Mesh", "h100-2").go("placement")
    assert tab.work.placing.mesh.mesh == find_mesh("h100-2")
    tab.go("mesh").choose("In a node, GB/s", 7.0).go("strategies")
    assert offered(tab) == ""
    assert asked_by(tab.work.strategies, open_mesh=tab.work.placing.mesh.mesh).devices != find_mesh("h100-2")


def test_the_link_of_a_changed_sample_opens_what_it_became(app) -> None:
    tab = app("schedule", sample="v-shape-4", n="8")
    tab.look_at("Plan").edit("blocks", 1, "duration", 7)
    other = app("schedule", **tab.address).look_at("Plan").edit("blocks", 1, "duration", 8)
    assert (other.kept, other.work.token) == (["v-shape-4"], tab.work.token), "and no second one"
