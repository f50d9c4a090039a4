"""One Chromium and one running app a worker, and a fresh tab a test: any worker may take any test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.app_server import CHROMIUM, QUIET, serve
from helpers.browser import PATIENCE_S

PICTURES = Path(__file__).resolve().parents[2] / "build" / "pictures"
"""What each road showed at its end is kept there, to look at."""


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests."""
    if os.environ.get("TESSEL_REQUIRE_BROWSER") != "1":
        pytest.importorskip("playwright", reason="playwright is not installed")
        if CHROMIUM is None:
            pytest.skip("no chromium on this machine; TESSEL_REQUIRE_BROWSER=1 makes this a failure")
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "TESSEL_REQUIRE_BROWSER=1, and there is no chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def address(browser, tmp_path_factory) -> Iterator[str]:
    """The app in a process of its own, on a free loopback port, with a data folder of its own."""
    with serve(tmp_path_factory.mktemp("data")) as (url, _):
        yield url


@pytest.fixture
def page(browser, address, request):
    """A fresh tab at the size that everything must fit, in which any error of the page's script fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    tab = context.new_page()
    tab.set_default_timeout(PATIENCE_S * 1000)
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    yield tab
    tab.screenshot(path=PICTURES / f"{request.node.name}.png")
    assert tab.get_by_test_id("stException").all_inner_texts() == []
    assert not errors
    context.close()
