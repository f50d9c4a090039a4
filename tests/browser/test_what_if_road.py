"""*What if* in a real Chromium: a slider moves and the schedules follow, a map is solved, and a cell opens."""

from __future__ import annotations

import re

from helpers.browser import IDLE, equals, no_wider_than_the_screen, press, soon

CELLS = 42


def test_a_slider_redraws_while_it_moves_and_a_cell_of_the_map_opens(page, address: str) -> None:
    page.goto(f"{address}/compare?sample=v-shape-4&n=8&compare=what-if")
    press(page, "Add")
    timeline = page.locator(".timeline[data-painted]")
    timeline.first.wait_for()
    page.wait_for_function(IDLE)
    backward = page.locator(".what-if [data-field=backward]")
    equals(lambda: said(backward), "3 : 1")
    before = timeline.get_attribute("data-digest")
    backward.press("ArrowRight")
    equals(lambda: said(backward), "4 : 1")
    page.wait_for_url("**&if=backward%3A4%2F3**")
    soon(lambda: drawn_anew(timeline, before))
    spoken(page, r"^Tessel search, v-shape-4; List scheduling, .* tie: 55 steps\.$")
    equals(lambda: timeline.get_attribute("data-of"), "present")  # the searches have followed
    page.keyboard.press("Control+z")
    equals(lambda: said(backward), "3 : 1")
    soon(lambda: drawn_as(timeline, before))
    page.keyboard.press("Control+y")
    equals(lambda: said(backward), "4 : 1")
    soon(lambda: drawn_anew(timeline, before))
    equals(lambda: timeline.get_attribute("data-of"), "present")

    press(page, "Solve the map")
    cells = page.locator(".wins button")
    equals(cells.count, CELLS)
    tight = page.get_by_role("button", name=re.compile(r"^Micro-batches 32, capacity 1 slot: "))
    assert re.fullmatch(r"tie\s+640 steps", tight.inner_text())
    tight.click()
    equals(lambda: said(page.locator(".what-if [data-field=capacity]")), "1 slot")
    equals(lambda: said(page.locator(".what-if [data-field=micro_batches]")), "32")
    spoken(page, r" tie: 640 steps\.$")
    page.get_by_text("Does not fit in memory: 1F1B, v-shape-4").wait_for()
    no_wider_than_the_screen(page)
    press(page, "Reset sliders")
    equals(lambda: said(backward), "3 : 1")


def spoken(page, sentence: str) -> None:
    """Return the sentence that names the winner."""
    page.locator("strong", has_text=re.compile(sentence)).first.wait_for()


def said(slider) -> str:
    return slider.get_attribute("aria-valuetext") or ""


def drawn_as(timeline, before: str) -> None:
    assert timeline.get_attribute("data-digest") == before


def drawn_anew(timeline, before: str) -> None:
    assert timeline.get_attribute("data-digest") != before
