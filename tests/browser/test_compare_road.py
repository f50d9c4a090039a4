"""Rows of Compare in a real Chromium: added together, named, dragged, moved by keys, cleared, and restored."""

from __future__ import annotations

from helpers.browser import IDLE, canvas, equals, press
from helpers.looks import looks_right

MARKUP = "**x** <b>y</b> | $z$ :red[q]"


def test_rows_are_dragged_named_and_cleared_and_undo_brings_them_back(page, address: str) -> None:
    page.goto(f"{address}/compare?sample=m-shape-4&n=12")
    press(page, "Add")
    canvas(page, 3).wait_for()
    page.wait_for_function(IDLE)
    looks_right(page, "Compare", came=False)
    step(page, "Undo")
    page.get_by_text("Nothing to compare yet").wait_for()  # all four were one step of undo
    step(page, "Redo")
    canvas(page, 3).wait_for()
    usual = ["Tessel search", "List scheduling", "1F1B+", "GPipe"]
    equals(lambda: drawn(page), usual)

    arrange(page)
    equals(lambda: listed(page), usual)
    grips = page.locator(".pairs button")
    begin, end = (grips.nth(i).bounding_box() for i in (3, 0))
    page.mouse.move(begin["x"] + 9, begin["y"] + 9)
    page.mouse.down()
    page.mouse.move(end["x"] + 9, end["y"] + 4, steps=8)
    page.mouse.up()
    dragged = ["GPipe", "Tessel search", "List scheduling", "1F1B+"]
    equals(lambda: listed(page), dragged)
    equals(lambda: drawn(page), dragged)
    page.wait_for_function(IDLE)
    page.keyboard.press("Control+z")  # one step of undo, which the list follows
    equals(lambda: listed(page), usual)
    equals(lambda: drawn(page), usual)

    for key in ("ArrowDown", "ArrowUp", "ArrowUp"):  # faster than the page answers
        page.locator(".pairs li", has=page.get_by_label("Move 1F1B+")).get_by_role("button").press(key)
    equals(lambda: drawn(page), ["Tessel search", "1F1B+", "List scheduling", "GPipe"])
    equals(lambda: focused(page), "Move 1F1B+, m-shape-4, row 2 of 4")
    name = page.locator(".pairs input").nth(1)
    name.fill(MARKUP)
    name.press("Enter")
    arranged = ["Tessel search", MARKUP, "List scheduling", "GPipe"]
    equals(lambda: drawn(page), arranged)
    name.press("Escape")
    step(page, "Clear")
    page.get_by_text("Nothing to compare yet").wait_for()
    step(page, "Undo")
    equals(lambda: drawn(page), arranged)
    for view in ("Idle time", "Difference"):
        page.get_by_test_id("stMain").get_by_text(view, exact=True).first.click()
        page.get_by_test_id("stMarkdown").filter(has_text=MARKUP).first.wait_for()
    page.get_by_text("The critical path of").wait_for()
    looks_right(page, "Difference", came=False)


def arrange(page) -> None:
    """Open the list *Arrange*."""
    page.get_by_test_id("stPopover").filter(has_text="Arrange").get_by_role("button").first.click()
    page.locator(".pairs li").nth(3).wait_for()


def step(page, label: str) -> None:
    page.wait_for_function(IDLE)
    press(page, label)
    page.wait_for_function(IDLE)


def listed(page) -> list[str]:
    """Return the names in the list under *Arrange*."""
    return [name.split(",")[0] for name in page.locator(".pairs input").evaluate_all("all => all.map((e) => e.value)")]


def drawn(page) -> list[str]:
    """Return the titles of the timelines."""
    titles = page.locator(".timeline .heading .name").all_inner_texts()
    return [title.split(",")[0] for title in titles]


def focused(page) -> str:
    return page.evaluate("() => document.activeElement.shadowRoot?.activeElement?.ariaLabel ?? ''")
