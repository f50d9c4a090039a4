"""The course in a real Chromium: a level by keyboard and by mouse, its rules, the coach, and saved progress."""

from __future__ import annotations

import re
from functools import partial

from helpers.browser import IDLE, download, equals, press, soon
from helpers.looks import MISPLACED, looks_right

FULL = "each => [document.fullscreenElement !== null, each.classList.contains('full')]"


def line(page) -> str:
    return page.locator(".board .line").inner_text()


def placed(page) -> int:
    return int(page.locator(".board").get_attribute("data-placed") or 0)


def begun(page) -> None:
    page.locator(".board .chip.lit").first.wait_for()
    page.wait_for_function(IDLE)


def test_a_level_is_placed_by_keyboard_and_kept(page, address: str) -> None:
    page.goto(f"{address}/learn?level=1")
    begun(page)
    page.locator(".board .chip.lit").first.focus()
    for count in range(1, 4):  # the next highlighted run gets the focus
        page.keyboard.press("Enter")
        equals(lambda: placed(page), count)
        page.locator(".board .chip.lit").first.focus()
    page.keyboard.press("Backspace")
    equals(lambda: placed(page), 2)
    page.keyboard.press("1")
    page.keyboard.press("s")
    equals(lambda: placed(page), 4)
    page.get_by_text("4 steps, proved optimal.").wait_for()
    page.locator(".timeline[data-painted]").first.wait_for()
    looks_right(page, "Learn")
    page.reload()
    page.get_by_text("4 steps, proved optimal.").wait_for()
    press(page, "Next: Why micro-batches")
    page.wait_for_url("**level=2**")
    page.get_by_role("button", name="Show").wait_for()
    page.go_back()
    page.wait_for_url("**level=1**")
    equals(lambda: placed(page), 4)
    again = page.context.new_page()  # the browser remembers it without the link
    again.goto(f"{address}/learn?level=1")
    again.locator(".board[data-placed='4']").wait_for()


def test_a_block_is_stamped_across(page, address: str) -> None:
    """By keyboard: refused with the rule, then placed too late, then as the coach suggests. The result is saved."""
    page.goto(f"{address}/learn?level=9")
    begun(page)
    period, copies = page.locator(".board input"), page.locator(".board .stamp")
    for number in range(8):  # each block of micro-batch 0, one after another
        page.locator(".board .chip[data-run$=' 0'].lit").last.focus()
        page.keyboard.press("Enter")
        equals(lambda: placed(page), number + 1)
    equals(lambda: line(page), "The block has 1 micro-batch. Choose its period.")
    period.fill("7")
    period.press("Enter")
    soon(lambda: told(line(page), r"^Every 7: B2 .* runs F2 of micro-batch 1 then"))
    period.fill("16")
    period.press("Enter")
    page.get_by_text("This block can already repeat every 8 steps.").wait_for()
    page.reload()
    begun(page)
    assert copies.count() > 0
    press(page, "Start over")
    press(page, "Finish")
    page.get_by_text("16/3 steps each. Proved: no block of any size has a shorter time per micro-batch.").wait_for()
    assert page.evaluate(MISPLACED) == []


def told(text: str, pattern: str) -> None:
    assert re.search(pattern, text), text


def test_runs_are_dragged_refused_moved_and_completed(page, address: str) -> None:
    page.goto(f"{address}/learn?level=3")
    begun(page)
    chip, lane = page.locator(".board .chip").first, page.locator(".board .lane").first
    chip.click()
    box, there = chip.bounding_box(), lane.bounding_box()
    assert box is not None
    assert there is not None
    page.mouse.move(box["x"] + 9, box["y"] + 9)
    page.mouse.down()
    page.mouse.move(there["x"] + 3, there["y"] + 9, steps=4)
    soon(lambda: said(page, "F0 of micro-batch 1 cannot start at 0: gpu0 runs F0 of micro-batch 0 then."))
    page.mouse.up()
    equals(lambda: placed(page), 1)
    lane.click(position={"x": there["width"] * 0.3, "y": 9})
    equals(lambda: placed(page), 2)
    assert re.search(r"F0 of micro-batch 1 starts at 3\.", line(page))
    page.locator(".board .chip").first.click()
    said(page, "F0 of micro-batch 2 does not fit at 4: gpu0 would hold 3 of 2 at 4, and nothing is freed before.")
    run = page.locator(".board .run").nth(1)
    run.focus()
    page.keyboard.press("ArrowLeft")
    equals(lambda: line(page), "F0 of micro-batch 1 starts at 2.")
    press(page, "Step")  # the searched schedule begins differently, so the coach has to compute
    equals(lambda: placed(page), 3)
    press(page, "Finish")
    equals(lambda: placed(page), 16)
    page.get_by_text("10 steps, proved optimal.").wait_for()
    press(page, "Start over")
    equals(lambda: placed(page), 0)


def said(page, sentence: str) -> None:
    assert line(page) == sentence


def test_a_deck_is_presented_and_plays_from_its_file(page, address: str, tmp_path) -> None:
    page.goto(f"{address}/learn?level=slides-zero-bubble")
    slides = page.locator(".slides")
    slides.locator(".timeline[data-painted]").wait_for()
    page.wait_for_function(IDLE)
    file = tmp_path / "deck.html"
    download(page, "Download as HTML").save_as(file)
    for deck in (page, page.context.new_page()):
        if deck is not page:
            deck.context.set_offline(True)
            deck.goto(file.as_uri())
        deck.bring_to_front()  # a background tab may not enter full screen
        slides = deck.locator(".slides")
        slides.focus()
        for key, number in (("ArrowRight", "2"), ("PageDown", "3"), ("PageUp", "2"), ("End", "8"), ("Home", "1")):
            deck.keyboard.press(key)
            deck.locator(f".slides[data-slide='{number}']").wait_for()
        slides.locator(".timeline[data-painted]").wait_for()
        slides.press(" ")
        slides.locator(".story p").first.wait_for()
        for times, full in ((2, False), (1, True), (1, False)):  # the second press comes before full screen is granted
            for _ in range(times):  # real presses, because full screen is granted to nothing else
                slides.press("f")
            deck.wait_for_timeout(100)
            equals(partial(slides.evaluate, FULL), [full, full])
        assert len(re.findall(rb"/Type /Page\b", deck.pdf())) == 8, "every slide on a page of its own, and nothing else"
    deck.clock.install()
    press(deck, "Play through")
    for number in range(2, 9):  # each for its reading time
        deck.locator(f".slides[data-going][data-slide='{number - 1}']").wait_for()
        deck.clock.fast_forward(40_000)
    deck.locator(".slides[data-going][data-slide='8']").wait_for()
    deck.clock.fast_forward(40_000)
    deck.locator(".slides:not([data-going])").wait_for()
