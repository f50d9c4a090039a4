"""From Start to a launch file in a real Chromium: ask for the fastest strategy, and download its settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.browser import download, enter, no_wider_than_the_screen, press
from helpers.looks import looks_right


def find_a_pipeline(page) -> None:
    """Ask for the fastest strategy of two stages, and wait for the whole answer."""
    page.get_by_role("button", name="Find the fastest").wait_for()
    page.get_by_text("Ranges", exact=True).click()
    enter(page, "Pipeline", "2")
    enter(page, "Micro-batch size", "1")
    press(page, "Find the fastest")
    page.get_by_text("Ready to launch").wait_for()
    page.locator(".timeline canvas.over").first.wait_for()


def test_the_road_from_start_to_a_launch_file(page, address: str) -> None:
    page.goto(address)
    press(page, "Find yours")
    find_a_pipeline(page)
    no_wider_than_the_screen(page)
    looks_right(page, "Recommend", came=False)
    written = Path(download(page, "Megatron-LM arguments").path()).read_text(encoding="utf-8")
    assert "--pipeline-model-parallel-size 2" in written


@pytest.mark.parametrize(
    ("label", "there"),
    [("Placement", "Objective"), ("Program", "What it waited for"), ("Compare", "Schedulers")],
)
def test_one_press_opens_another_page(page, address: str, label: str, there: str) -> None:
    page.goto(f"{address}/recommend")
    find_a_pipeline(page)
    press(page, label)
    page.get_by_text(there).first.wait_for()
    no_wider_than_the_screen(page)
    looks_right(page, label, came=False)


def test_what_would_be_faster_is_worked_out(page, address: str) -> None:
    page.goto(f"{address}/recommend")
    find_a_pipeline(page)
    press(page, "Work it out")
    page.get_by_text("more memory per GPU").first.wait_for()
    looks_right(page, "Recommend", came=False)
