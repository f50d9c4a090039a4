"""What every test in a real Chromium does: read until it is so, press, go, type, at the pace of a busy machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

PATIENCE_S = 60
"""A minute: an answer that takes a second takes many beside two other searches."""
ROW_PIXELS = 35
"""How high a row of a table is."""
BEGIN = re.compile("Search$|Build$")
"""What the button says that asks for a schedule."""
NO_WIDER = "() => document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth"
IDLE = "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"

GUTTER, LANES, LANE = (44, 0.16, 118), 74, 30
"""Pixels of a timeline: what its names take (least, share, most), where its lanes begin, how high one is."""


def soon(check: Callable[[], None]) -> None:
    """Make a check until it holds. A screen on its way to what it will show is no mistake; one that stays so is."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def equals(read: Callable[[], object], expected: object) -> None:
    """Until what is read is what is expected."""

    def check() -> None:
        found = read()
        assert found == expected, f"{found!r} in place of {expected!r}"

    soon(check)


def at_least(read: Callable[[], float], least: float) -> None:
    """Until what is read is so much."""

    def check() -> None:
        found = read()
        assert found >= least, f"{found!r}, and at least {least!r} is expected"

    soon(check)


def no_wider_than_the_screen(page) -> None:
    """Of a page whose script has ended: nothing has to be scrolled for sideways."""
    page.wait_for_function(IDLE)
    page.wait_for_function(NO_WIDER)


def press(page, label: str) -> None:
    """The first button whose text ends so, but for the keys that press it too."""
    text = re.compile(rf"{re.escape(label)}(Ctrl \+ (Shift \+ )?\w)?$")
    page.locator("button:visible").filter(has_text=text).first.click()


def only(page, label: str):
    """The button of this name, once there is one: while a page runs anew, what it shows and what it showed overlap."""
    found = page.get_by_role("button", name=label, exact=True)
    equals(found.count, 1)
    return found


def go(page, title: str) -> None:
    """To a page of the app, by the bar at the top."""
    page.mouse.move(0, 0)  # a tooltip of what was pointed at may lie over the bar
    page.get_by_test_id("stTopNavLink").filter(has_text=title).click()


def enter(page, label: str, text: str) -> None:
    """Into a field."""
    field = page.get_by_label(label, exact=True).and_(page.locator("input"))
    field.fill(text)
    field.press("Enter")


def download(page, label: str):
    """What a button hands out."""
    with page.expect_download() as found:
        press(page, label)
    return found.value


def forget(context, address: str) -> None:
    """Close all tabs but the first, and drop all that pages of this address have kept; caches stay."""
    first, *others = context.pages
    for tab in others:
        tab.close()
    context.set_offline(False)
    context.clear_cookies()
    session = context.new_cdp_session(first)
    session.send("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "all"})
    session.detach()


def canvas(page, which: int = 0):
    """What takes the gestures of a timeline."""
    return page.locator(".timeline canvas.over").nth(which)


def at(page, tick: float, device: int, whole: float) -> tuple[float, float]:
    """The point of a tick on a device's lane, while all of the time is seen."""
    box = canvas(page).bounding_box()
    left = min(GUTTER[2], max(GUTTER[0], GUTTER[1] * box["width"]))
    share = tick / whole
    return box["x"] + left + share * (box["width"] - left - 10), box["y"] + LANES + LANE * (device + 0.5)


def drag(page, begin: tuple[float, float], end: tuple[float, float], *, drop: bool = True) -> None:
    """From one point to another."""
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move(*end, steps=5)
    if drop:
        page.mouse.up()
