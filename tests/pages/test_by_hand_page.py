"""Edit a schedule by hand: the server keeps the edits, and a reload shows them."""

from __future__ import annotations

from dataclasses import replace

from conftest import App
from helpers.stores import small_work

from tessel_core.editing.schedule import reordered
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.finish import BY_HAND
from tessel_core.scheduling.reports import evaluate
from tessel_core.workbench.workspace import ByHand, Pin


def moved_by_hand() -> App:
    """Return a schedule that was made longer by hand, with one pinned run."""
    plan = load_sample("v-shape-4")
    built = solve_schedule("1f1b", plan, 6).solution
    assert built is not None
    slower = reordered(built, (3, 0), 9)
    work = small_work(plan, 6).changed_by_hand(evaluate(slower, BY_HAND))
    return App.on("schedule", replace(work, by_hand=ByHand((Pin(0, 0),))))


def test_a_reload_goes_on_changing_by_hand() -> None:
    tab = moved_by_hand().look_at("Schedule")
    assert "hand" not in tab.address
    toggle = next(each for each in tab.test.toggle if each.label == "Change by hand")
    toggle.set_value(True)
    tab.run()
    assert tab.address["hand"] == "on"
    again = App("schedule", **tab.address)
    assert next(each for each in again.test.toggle if each.label == "Change by hand").value
    assert again.timelines()[0]["changing"]


def test_a_reload_goes_on_completing_the_schedule() -> None:
    tab = moved_by_hand().look_at("Schedule")
    longer = tab.work.opened.makespan
    again = App("schedule", **{**tab.address, "hand": "finish"})
    again.wait(lambda: again.work.opened.makespan < longer)
    assert again.work.opened.makespan < longer
    assert again.address["hand"] == "on"
    assert App("schedule", **{**tab.address, "hand": "feet"}).says("hand: must be one of on, finish, finish-in-order")
