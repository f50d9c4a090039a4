"""Every page with something on it, in both themes and at three widths: readable, nothing jumps, nothing is cut."""

from __future__ import annotations

import pytest
from helpers.browser import go, press
from helpers.looks import UNSEEN_FOCUS, WATCH, faults

DRAWN = ".timeline[data-painted] canvas.over"


@pytest.fixture
def watched(page):
    """A tab that counts what moves by itself."""
    page.add_init_script(WATCH)
    return page


def test_schedules_and_their_comparison_look_right(watched, address: str) -> None:
    page = watched
    page.goto(address)
    page.get_by_text("faster").wait_for()
    found = faults(page, "Start")
    page.goto(f"{address}/schedule?sample=v-shape-4&n=8&view=schedule")
    page.get_by_text("Makespan", exact=True).first.wait_for()
    page.locator(DRAWN).wait_for()
    found += faults(page, "Schedule")
    page.get_by_text("Plan", exact=True).click()
    page.get_by_text("One micro-batch alone").wait_for()
    page.locator(DRAWN).first.wait_for()
    found += faults(page, "Plan")
    go(page, "Compare")
    press(page, "Add")
    page.locator(DRAWN).first.wait_for()
    found += faults(page, "Compare")
    page.get_by_text("Difference", exact=True).click()
    page.get_by_text("The critical path of").wait_for()
    found += faults(page, "Difference")
    page.goto(f"{address}/learn?level=3")
    page.locator(".board .chip.lit").first.wait_for()
    press(page, "Finish")
    page.get_by_text("nobody can do better").wait_for()
    page.locator(DRAWN).first.wait_for()
    found += faults(page, "Learn")
    assert found == []


def test_networks_and_strategies_look_right(watched, address: str) -> None:
    page = watched
    page.goto(f"{address}/placement?graph=mlp-8-training")
    page.get_by_text("Press Place").wait_for()
    press(page, "Place")
    page.get_by_text("proved optimal").wait_for()
    page.get_by_text("Step by step", exact=True).click()
    page.locator(".filling circle").first.wait_for()
    press(page, "Whole table")
    known = page.locator(".filling section").nth(1)  # where another road has asked already
    page.get_by_role("button", name="Break contiguity").or_(known).first.click()
    page.locator(".filling section").nth(1).wait_for()
    found = faults(page, "Placement")
    press(page, "Schedule this")
    page.get_by_text("One micro-batch alone").wait_for()
    found += faults(page, "Plan of a placement")
    go(page, "Operator graph")
    page.locator(".scatterlayer .point").first.wait_for()
    found += faults(page, "Operator graph")
    go(page, "Device mesh")
    page.get_by_text("In a node, GB/s").wait_for()
    found += faults(page, "Device mesh")
    go(page, "Strategies")
    page.get_by_text("420 configurations on").wait_for()
    page.locator(DRAWN).first.wait_for()
    found += faults(page, "Strategies")
    go(page, "Program")
    page.locator(DRAWN).first.wait_for()
    found += faults(page, "Program")
    assert found == []


def test_the_focus_is_seen(watched, address: str) -> None:
    """Whatever the tab key comes to looks another way while it has the focus."""
    page = watched
    page.goto(f"{address}/schedule?sample=v-shape-4&n=8&view=plan")
    page.locator(DRAWN).first.wait_for()
    unseen = []
    for _ in range(24):
        page.keyboard.press("Tab")
        unseen += page.evaluate(UNSEEN_FOCUS)
    assert unseen == []
