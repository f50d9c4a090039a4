"""Visit the plan of a schedule by keyboard. Other browser tests check the looks of the other pages."""

from __future__ import annotations

from helpers.looks import UNSEEN_FOCUS, looks_right


def test_a_plan_looks_right_and_the_focus_is_seen(page, address: str) -> None:
    """Every element that the Tab key reaches looks different while it has the focus."""
    page.goto(f"{address}/schedule?sample=v-shape-4&n=8&view=plan")
    page.get_by_text("One micro-batch alone").wait_for()
    page.locator(".timeline[data-painted] canvas.over").first.wait_for()
    unseen = []
    for _ in range(24):
        page.keyboard.press("Tab")
        unseen += page.evaluate(UNSEEN_FOCUS)
    assert unseen == []
    looks_right(page, "Plan")
