"""Helpers for tests in a real browser: wait for conditions, press buttons, navigate and type."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

PATIENCE_S = 60
"""Longest wait. An answer that takes a second alone takes much longer beside two other searches."""
ROW_PIXELS = 35
"""Height of a row of a table."""
BEGIN = re.compile("Search$|Build$")
"""Text of the button that starts a search or build."""
NO_WIDER = "() => document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth"
IDLE = "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"

GUTTER, LANES, LANE = (44, 0.16, 118), 74, 30
"""Layout of a timeline in pixels: width of the names (least, share of the width, most), top of the lanes, height of a
lane."""


def soon(check: Callable[[], None]) -> None:
    """Repeat a check until it passes. Raise its error if it still fails after `PATIENCE_S`."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def equals(read: Callable[[], object], expected: object) -> None:
    """Wait until `read` returns the expected value."""

    def check() -> None:
        found = read()
        assert found == expected, f"{found!r} in place of {expected!r}"

    soon(check)


def at_least(read: Callable[[], float], least: float) -> None:
    """Wait until `read` returns at least `least`."""

    def check() -> None:
        found = read()
        assert found >= least, f"{found!r}, and at least {least!r} is expected"

    soon(check)


def no_wider_than_the_screen(page) -> None:
    """Wait until the page has run, and needs no horizontal scrolling."""
    page.wait_for_function(IDLE)
    page.wait_for_function(NO_WIDER)


def press(page, label: str) -> None:
    """Press the first visible button whose text ends with `label`, ignoring its keyboard shortcut."""
    text = re.compile(rf"{re.escape(label)}(Ctrl \+ (Shift \+ )?\w)?$")
    page.locator("button:visible").filter(has_text=text).first.click()


def only(page, label: str):
    """Return the button with this name when there is exactly one.

    During a rerun, old and new elements can both be there.
    """
    found = page.get_by_role("button", name=label, exact=True)
    equals(found.count, 1)
    return found


def go(page, title: str) -> None:
    """Navigate to a page with the bar at the top."""
    page.mouse.move(0, 0)  # a tooltip may cover the bar
    page.get_by_test_id("stTopNavLink").filter(has_text=title).click()


def enter(page, label: str, text: str) -> None:
    """Enter text into a field."""
    field = page.get_by_label(label, exact=True).and_(page.locator("input"))
    field.fill(text)
    field.press("Enter")


def download(page, label: str):
    """Return the file that a button downloads."""
    with page.expect_download() as found:
        press(page, label)
    return found.value


def forget(context, address: str) -> None:
    """Close all tabs but the first, and clear the storage of this address, but not the caches."""
    first, *others = context.pages
    for tab in others:
        tab.close()
    context.set_offline(False)
    context.clear_cookies()
    session = context.new_cdp_session(first)
    session.send("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "all"})
    session.detach()


def canvas(page, which: int = 0):
    """Return the canvas of a timeline that receives mouse events."""
    return page.locator(".timeline canvas.over").nth(which)


def at(page, tick: float, device: int, whole: float) -> tuple[float, float]:
    """Return the position of a tick on the lane of a device in pixels, if the whole schedule is in view."""
    box = canvas(page).bounding_box()
    left = min(GUTTER[2], max(GUTTER[0], GUTTER[1] * box["width"]))
    share = tick / whole
    return box["x"] + left + share * (box["width"] - left - 10), box["y"] + LANES + LANE * (device + 0.5)


def drag(page, begin: tuple[float, float], end: tuple[float, float], *, drop: bool = True) -> None:
    """Drag the mouse from one point to another."""
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move(*end, steps=5)
    if drop:
        page.mouse.up()
