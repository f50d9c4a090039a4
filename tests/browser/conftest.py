"""Run the browser tests with one Chromium and one app per pytest worker. Each test gets a fresh tab.

Tests share Chromium's caches and the process that runs the app's scripts, as the tabs of one person do: loading and
compiling them anew takes a second. They share nothing that a page can keep.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path

import pytest
from helpers.app_server import HEADLESS, QUIET, serve
from helpers.browser import PATIENCE_S, forget
from helpers.looks import WATCH

PICTURES = Path(__file__).resolve().parents[2] / "build" / "pictures"
"""If a test fails, its last screenshot is saved here."""
SCREEN = {"width": 1280, "height": 800}
"""Size of the window. Every page must fit."""
SHARED = [
    *QUIET,
    # All tabs run in one process, which leaves the other cores to servers and searches.
    "--process-per-site",
    "--js-flags=--single-threaded --no-maglev --no-opt",  # no page lives long enough to gain from optimising
    # With the first of these features, Chromium compiles all of Streamlit's scripts at every load, although its cache
    # has them compiled. This list replaces Playwright's list. The other features are the entries of that list that
    # matter here.
    "--disable-features=BackgroundResourceFetch,HttpsUpgrades,MediaRouter,PaintHolding",
]
LITTLE_MS = 2000
"""With a timeout below this, Playwright polls ten times per second, and otherwise only twice."""


@pytest.fixture(scope="session")
def context(tmp_path_factory):
    """Start one Chromium for all tests, with its own profile folder."""
    if os.environ.get("TESSEL_REQUIRE_BROWSER") != "1":
        pytest.importorskip("playwright", reason="playwright is not installed")
        if HEADLESS is None:
            pytest.skip("no chromium on this machine; TESSEL_REQUIRE_BROWSER=1 makes this a failure")
    from playwright.sync_api import Locator, sync_playwright

    assert HEADLESS is not None, "TESSEL_REQUIRE_BROWSER=1, and there is no chromium"
    folder = tmp_path_factory.mktemp("chromium")
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        wait_for = Locator.wait_for
        for act in (wait_for, Locator.click, Locator.fill):
            patch.setattr(Locator, act.__name__, _looking_often(act, wait_for))
        context = playwright.chromium.launch_persistent_context(
            folder,
            executable_path=HEADLESS,
            args=SHARED,
            viewport=SCREEN,
            accept_downloads=True,
            reduced_motion="reduce",  # the processor paints each frame of an animation
        )
        yield context
        context.close()


def _looking_often(act: Callable, wait_for: Callable) -> Callable:
    """Return `act`, which first waits with `wait_for` until the element exists, or is in the given `state`."""
    from playwright.sync_api import TimeoutError as NotYet

    @wraps(act)
    def acted(locator, *given, state: str = "visible", timeout: float = PATIENCE_S * 1000, **named):
        until = time.monotonic() + timeout / 1000
        while True:
            try:
                wait_for(locator, state=state, timeout=min(LITTLE_MS, timeout))
                return None if act is wait_for else act(locator, *given, timeout=timeout, **named)
            except NotYet:
                if time.monotonic() > until:
                    raise

    return acted


@pytest.fixture(scope="session")
def address(context, tmp_path_factory) -> Iterator[str]:
    """Run the app in its own process, on a free loopback port, with its own data folder, and return its address.

    The first tab stays open, so that Chromium's process for it never ends.
    """
    with serve(tmp_path_factory.mktemp("data")) as (url, _):
        context.pages[0].goto(f"{url}/_stcore/health")
        yield url


@pytest.fixture
def page(context, address, request):
    """Return a fresh tab of that size. Any error of the page's script fails the test."""
    tab = context.new_page()
    tab.set_default_timeout(PATIENCE_S * 1000)
    tab.add_init_script(WATCH)
    errors, failed = list[str](), request.session.testsfailed
    tab.on("pageerror", lambda error: errors.append(str(error)))
    yield tab
    if request.session.testsfailed > failed:
        tab.screenshot(path=PICTURES / f"{request.node.name}.png")
        print(tab.url, tab.locator("body").inner_text()[:3000], sep="\n")
    assert tab.get_by_test_id("stException").all_inner_texts() == []
    assert not errors


@pytest.fixture(autouse=True)
def _nothing_stays(context, address: str) -> Iterator[None]:
    yield
    forget(context, address)
