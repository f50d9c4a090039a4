"""How soon the Placement page answers to a move, in a real Chromium: a table.

    python tests/benchmarks/placement_page.py            # a minute; needs chromium

A graph of about 2,000 operators is placed, and a layer of it is moved from device to device.  Seconds go from the click
on *Move* until the page names the device that is the busiest now, and until the drawing shows the new colours: the
least, the median and the most of `--moves`.  They are shown and never judged.  The peer is the work alone, without a
page: loads, rules and numbers of the moved placement.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.app_server import CHROMIUM, QUIET, serve

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.model import PlacementLoads
from tessel_core.samples import load_graph
from tessel_core.workbench.messages.placement import placement_numbers, placement_verdict
from tessel_core.workbench.placing import Placing

GRAPH, MESH, LAYER = "gpt-175b-training", "h200-32", "layer40/"
BUSIEST = '[data-testid="stMetricDelta"]'
"""Stands under the largest load and names its device, so every move changes it."""
COLOURS = "() => [...document.querySelectorAll('.scatterlayer .point')].map(each => each.style.fill).join()"


def alone(moves: int) -> list[float]:
    """Seconds of the work without a page."""
    placing = Placing().opened(GraphFile.of(load_graph(GRAPH)), "a sample").on(MeshFile.of(find_mesh(MESH)), "a preset")
    placing = placing.answered(placing.question.solve(Control()))
    assert placing.graph is not None
    layer = [each.name for each in placing.graph.graph.operators if each.name.startswith(LAYER)]
    found = []
    for move in range(moves):
        begin = time.perf_counter()
        placing = placing.moved(layer, f"gpu{move % 32}")
        placement = placing.placement
        assert placement is not None
        loads = PlacementLoads.of(placement)
        placement_verdict(placing, placement, loads)
        placement_numbers(placing, placement, loads)
        found.append(time.perf_counter() - begin)
    return found


def on_the_page(page: Page, url: str, moves: int) -> tuple[list[float], list[float]]:
    """Seconds until the number and until the drawing show a move."""
    page.goto(f"{url}/mesh?graph={GRAPH}")
    page.get_by_test_id("stPopover").filter(has_text="Open").last.locator("button").first.click()
    page.get_by_label("Preset").click()
    page.keyboard.type("NVIDIA H200 SXM, 4 nodes")
    page.keyboard.press("Enter")
    page.wait_for_timeout(1_000)
    page.get_by_text("Open preset").click()
    page.get_by_text("32 devices").wait_for()
    page.get_by_test_id("stTopNavLink").filter(has_text="Placement").click()
    page.get_by_text("Press Place").wait_for()
    page.get_by_test_id("stBaseButton-primary").filter(has_text="Place").first.click()
    page.get_by_text("proved optimal").wait_for()
    page.get_by_test_id("stTextInputField").first.fill(LAYER)
    page.get_by_test_id("stTextInputField").first.press("Enter")
    page.get_by_text(" selected").first.wait_for()
    numbers, drawings = [], []
    for move in range(moves):
        page.wait_for_timeout(1_500)
        _choose_device(page, f"gpu{move}")
        number, colours = page.locator(BUSIEST).first.inner_text(), page.evaluate(COLOURS)
        begin = time.perf_counter()
        page.get_by_role("button", name="Move").first.click()
        page.wait_for_function(f"before => document.querySelector('{BUSIEST}').innerText !== before", arg=number)
        numbers.append(time.perf_counter() - begin)
        page.wait_for_function(f"before => ({COLOURS})() !== before", arg=colours)
        drawings.append(time.perf_counter() - begin)
    return numbers, drawings


def _choose_device(page: Page, name: str) -> None:
    page.get_by_role("combobox", name="Device").first.click()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.wait_for_timeout(1_000)


def _row(table: Table, what: str, found: list[float]) -> None:
    table.add_row(what, *(f"{each(found):.3f}" for each in (min, median, max)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=8)
    moves = parser.parse_args().moves
    table = Table("a move of a layer", "least, s", "median, s", "most, s", title=f"{GRAPH} on {MESH}")
    _row(table, "loads, rules and numbers alone", alone(moves))
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as (url, _), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(60_000)
        numbers, drawings = on_the_page(page, url, moves)
        chromium.close()
    _row(table, "on the page: the new largest load", numbers)
    _row(table, "on the page: the new colours", drawings)
    Console().print(table)


if __name__ == "__main__":
    main()
