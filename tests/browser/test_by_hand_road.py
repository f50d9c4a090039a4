"""Edit plans and schedules by hand in a real Chromium: drag, be refused, pin, complete, undo."""

from __future__ import annotations

import re

import pytest
from helpers.browser import BEGIN, IDLE, LANE, LANES, at, canvas, drag, equals, only, soon


def digest(page, which: int = 0) -> str:
    return page.get_by_test_id("timeline").nth(which).get_attribute("data-digest") or ""


def rest(page) -> None:
    canvas(page).wait_for()
    page.wait_for_function(IDLE)
    canvas(page).scroll_into_view_if_needed()


@pytest.fixture
def plan(page, address: str):
    """Open the plan of four stages beside its schedule."""
    page.set_viewport_size({"width": 1440, "height": 1100})
    page.goto(f"{address}/schedule?sample=v-shape-4&n=8&view=schedule")
    page.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()
    canvas(page).wait_for()
    page.wait_for_function(IDLE)
    page.get_by_test_id("stMain").get_by_text("Plan", exact=True).click()
    page.get_by_text("Its schedule").wait_for()
    canvas(page, 1).wait_for()
    soon(lambda: told(canvas(page).get_attribute("aria-label"), "Timeline of 8 blocks"))  # not the previous one
    rest(page)
    return page


def test_a_stage_is_dragged_to_another_device_and_its_schedule_follows(plan) -> None:
    page, before = plan, [digest(plan), digest(plan, 1)]
    what_cannot_be_is_refused_before_the_drop_and_esc_lets_go(plan)
    equals(lambda: [digest(page), digest(page, 1)], before)
    drag(page, at(page, 1.5, 1, 16), at(page, 1.5, 2, 16), drop=False)
    equals(lambda: page.locator(".timeline .tip:visible").inner_text(), "F1, B1 to gpu2")
    page.mouse.up()
    soon(lambda: followed(page, before))
    page.wait_for_function(IDLE)
    says(page, "F1", "gpu2")  # the dragged block is selected
    page.keyboard.press("Control+z")
    equals(lambda: [digest(page), digest(page, 1)], before)


def followed(page, before: list[str]) -> None:
    """Assert that the changed plan has a new schedule. A slow machine may show the previous one in pale."""
    assert digest(page) not in before
    pale = page.get_by_test_id("timeline").nth(1).get_attribute("data-of") == "past"
    assert (digest(page, 1) not in before) is not pale


def what_cannot_be_is_refused_before_the_drop_and_esc_lets_go(page) -> None:
    before = digest(page)
    page.keyboard.down("Alt")
    drag(page, at(page, 1.5, 1, 16), at(page, 1.5, 3, 16), drop=False)
    equals(lambda: page.locator(".timeline .tip:visible").inner_text(), "alone it cannot go: B1 releases what it holds")
    page.mouse.up()
    page.keyboard.up("Alt")
    drag(page, at(page, 1.5, 1, 16), at(page, 1.5, 3, 16), drop=False)
    page.keyboard.press("Escape")
    page.mouse.up()
    page.wait_for_function(IDLE)
    assert digest(page) == before
    a_capacity_is_dragged(page)


def a_capacity_is_dragged(page) -> None:
    """Drag the capacity line of gpu1, which lies at the top of its memory lane."""
    x, y = at(page, 8, 4, 16)[0], canvas(page).bounding_box()["y"] + LANES + 4 * LANE + 30 + 24 + 2
    drag(page, (x, y), (x, y + 10), drop=False)
    equals(lambda: page.locator(".timeline .tip:visible").inner_text(), "gpu1: at most 2 slots (was 4 slots)")
    before = digest(page)
    page.mouse.up()
    soon(lambda: not_equal(digest(page), before))
    rest(page)
    page.get_by_role("tab", name="Devices").click()
    page.keyboard.press("Control+z")
    equals(lambda: digest(page), before)


def not_equal(one: str, other: str) -> None:
    assert one != other


def test_a_block_is_stretched_split_and_cut_by_mouse_keys_and_buttons(plan) -> None:
    page, before = plan, digest(plan)
    drag(page, (at(page, 2, 1, 16)[0] - 2, at(page, 2, 1, 16)[1]), at(page, 4, 1, 16))
    soon(lambda: says(page, "1 – 4 steps", "3 steps"))
    rest(page)
    only(page, "Split backward").click()
    soon(lambda: told(canvas(page).get_attribute("aria-label"), "Timeline of 9 blocks"))
    rest(page)
    page.mouse.click(*at(page, 2, 1, 18))
    soon(lambda: says(page, "F1"))
    page.keyboard.press("Alt+ArrowRight")
    soon(lambda: says(page, "1 – 5 steps"))
    for _ in range(3):  # faster than the page runs
        page.keyboard.press("Control+z")
    equals(lambda: digest(page), before)


def says(page, *parts: str) -> None:
    text = page.locator(".timeline .card").first.inner_text()
    assert all(part in text for part in parts), text


@pytest.fixture
def schedule(page, address: str):
    """Open a schedule of eight micro-batches on four devices, 44 steps long, to change by hand."""
    page.set_viewport_size({"width": 1440, "height": 1200})
    page.goto(f"{address}/schedule?sample=v-shape-4&n=8&scheduler=1f1b&view=schedule")
    page.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()
    rest(page)
    page.get_by_text("Change by hand").click()
    page.get_by_role("button", name="Push left").wait_for()
    rest(page)
    return page


def verdict(page) -> str:
    return " ".join(page.locator(".timeline .verdict").all_inner_texts()).strip()


def test_a_run_is_dropped_judged_pinned_and_the_rest_completed(schedule) -> None:
    page, before = schedule, digest(schedule)
    drag(page, at(page, 3.5, 3, 44), at(page, 10.7, 3, 44), drop=False)  # the first F3
    tip = page.locator(".timeline .tip:visible")
    soon(lambda: told(tip.inner_text(), r"^starts at \d+ steps, in its turn$"))
    lands = re.findall(r"\d+", tip.inner_text())[0]
    page.mouse.up()
    soon(lambda: told(verdict(page), r"^\+\d+ steps: .* gap \d+\.\d\d%$"))
    soon(lambda: says(page, "F3", f"{lands} – "))
    page.get_by_text("Changed by hand", exact=True).wait_for()
    rest(page)
    changed = digest(page)
    assert changed != before
    page.keyboard.down("Alt")
    drag(page, at(page, 0.5, 0, 44), at(page, 30, 0, 44))  # the first F0
    page.keyboard.up("Alt")
    soon(lambda: told(verdict(page), r"\(rule: (no overlap|dependency)\)$"))
    assert digest(page) == changed, "a drop that breaks a rule changes nothing"
    two_runs_swap(page)
    page.mouse.click(*at(page, 0.5, 0, 44))
    only(page, "Pin").click()
    equals(lambda: verdict(page), "1 of 64 runs pinned")
    only(page, "Finish from here").click()
    soon(lambda: told(verdict(page), "proved: no schedule with these pins is shorter"))
    page.reload()
    page.get_by_text("1 run pinned").wait_for()
    only(page, "Back to the searched schedule").click()
    equals(lambda: digest(page), before)


def two_runs_swap(page) -> None:
    """Swap the first two runs of device 0: refused while one needs the other, accepted for other runs, then undone."""
    tip, before = page.locator(".timeline .tip:visible"), digest(page)
    drag(page, at(page, 0.5, 0, 44), at(page, 1.5, 0, 44), drop=False)
    equals(tip.inner_text, "swaps places with F0 of 1")
    page.keyboard.down("Alt")
    page.mouse.move(*at(page, 1.45, 0, 44))
    equals(
        tip.inner_text,
        "swaps places with F0 of 1, all others stay: F1 of 0 needs what F0 of 0 makes (rule: dependency)",
    )
    page.keyboard.up("Alt")
    page.mouse.move(*at(page, 1.5, 0, 44))
    page.mouse.up()
    soon(lambda: told(verdict(page), r"^\+\d+ steps?: \w+ of \d (now waits for|is on the critical path)"))
    soon(lambda: not_equal(digest(page), before))
    rest(page)
    page.keyboard.press("Control+z")
    equals(lambda: digest(page), before)
    rest(page)


def told(text: str, pattern: str) -> None:
    assert re.search(pattern, text), text
