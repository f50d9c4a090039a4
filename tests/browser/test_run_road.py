"""A recorded run in the browser: drawn over its prediction, explained, saved, and used for a new search."""

from __future__ import annotations

from pathlib import Path

from helpers.browser import press
from helpers.looks import looks_right
from helpers.measured import as_measured

from tessel_core.formats.run_file import run_file, run_text
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule

DRAWN = ".timeline[data-painted] canvas.over"


def test_a_recorded_run_is_seen_asked_about_kept_and_searched_again(page, address: str, tmp_path: Path) -> None:
    schedule = solve_schedule("1f1b", load_sample("v-shape-4"), 5).solution
    assert schedule is not None
    file = tmp_path / "mine.run.json"
    file.write_text(run_text(run_file(as_measured(schedule))), encoding="utf-8")
    page.goto(address)
    page.set_input_files("input[type=file]", file)
    page.wait_for_url("**/run**")
    page.locator(DRAWN).first.wait_for()
    headings = page.locator(".timeline .heading")
    assert [headings.nth(i).inner_text().split()[0] for i in range(3)] == ["Measured", "Predicted", "Planned,"]
    lanes = page.locator(DRAWN).first.bounding_box()
    page.mouse.click(lanes["x"] + lanes["width"] * 0.5, lanes["y"] + lanes["height"] * 0.45)
    page.get_by_text("than predicted.").first.wait_for()
    page.reload()  # check here: on a busy machine, the page comes too late to count as caused by input
    page.locator(DRAWN).first.wait_for()
    looks_right(page, "Run")
    press(page, "Search again with measured durations")
    page.get_by_text("Makespan proved optimal").wait_for()
    assert page.get_by_text("measured run of v-shape-4").is_visible()
