"""How long a browser takes to draw schedules: a table, with a bar a block as the peer in the same run.

    python tests/benchmarks/pictures.py            # a minute; needs chromium
    python tests/benchmarks/pictures.py --app      # the Compare page of a running app too: six schedules, and a window

Seconds are medians over `--runs` draws in a headless Chromium, from the call of `Plotly.newPlot` until the picture
stands, with the time in which Python builds the figure beside it.  They are shown and never judged; the exit status is
1 where a figure's JSON is above two megabytes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import plotly
import plotly.graph_objects as go
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

from tessel_core.charts.bars import bar_traces
from tessel_core.charts.gantt import gantt
from tessel_core.model import Schedule
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.scheduling import solve_schedule

ROOT = Path(__file__).resolve().parents[2]
BLOCKS_A_MICRO_BATCH = 16
SIZES = (1_000, 4_000, 10_000, 50_000, 200_000)
PEER_UP_TO = 10_000
MOST_JSON = 2_000_000
DRAW = (
    "([how, figure]) => new Promise(done => { const begin = performance.now();"
    " Plotly[how]('place', figure.data, figure.layout).then(() =>"
    " requestAnimationFrame(() => setTimeout(() => done((performance.now() - begin) / 1000), 0))); })"
)
PORT = 8641


def schedule_of(blocks: int) -> Schedule:
    """1F1B on eight devices, of about so many blocks."""
    plan = build_shape("v-shape", ShapeParameters(devices=8, capacity=8))
    found = solve_schedule("1f1b", plan, blocks // BLOCKS_A_MICRO_BATCH).solution
    assert found is not None
    return found


def bar_a_block(schedule: Schedule) -> go.Figure:
    """The peer: every block a bar, whatever their number."""
    return go.Figure(bar_traces(schedule, 1.0, (0, schedule.makespan)), layout={"barmode": "overlay", "height": 600})


def drawn(page: Page, figure: go.Figure, runs: int, how: str = "newPlot") -> float:
    """Median seconds of a draw."""
    document = figure.to_plotly_json()
    return median(page.evaluate(DRAW, [how, _plain(document)]) for _ in range(runs))


def _plain(document: object) -> object:
    import json

    from plotly.io.json import to_json_plotly

    return json.loads(to_json_plotly(document))


def blank(browser) -> Page:
    """A page that has plotly and nothing else."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_content("<div id=place style='width:1130px'></div>")
    page.add_script_tag(path=str(Path(plotly.__file__).parent / "package_data" / "plotly.min.js"))
    return page


def sizes(browser, runs: int) -> tuple[Table, bool]:
    """A row a size: build, draw and JSON of the whole, of a window, and the peer."""
    table = Table("blocks", "build, s", "draw, s", "JSON, MB", "window: build", "draw", "a bar a block: draw", "ratio")
    small = True
    page = blank(browser)
    for size in SIZES:
        schedule = schedule_of(size)
        figure, build_s = _timed(lambda schedule=schedule: gantt(schedule))
        megabytes = len(figure.to_json()) / 1e6
        small &= megabytes * 1e6 <= MOST_JSON
        whole_s = drawn(page, figure, runs)
        middle = schedule.makespan // 2
        window, window_build_s = _timed(lambda schedule=schedule, at=middle: gantt(schedule, window=(at, at + 100)))
        window_s = drawn(page, window, runs, "react")
        peer_s = drawn(page, bar_a_block(schedule), 1) if size <= PEER_UP_TO else None
        cells = (f"{build_s:.2f}", f"{whole_s:.2f}", f"{megabytes:.2f}", f"{window_build_s:.2f}", f"{window_s:.2f}")
        told = ("", "") if peer_s is None else (f"{peer_s:.2f}", f"{peer_s / whole_s:.1f}x")
        table.add_row(f"{size:,}", *cells, *told)
    return table, small


def _timed(call: Callable[[], go.Figure]) -> tuple[go.Figure, float]:
    begin = time.perf_counter()
    return call(), time.perf_counter() - begin


def compare_page(browser) -> Table:
    """Six schedules of eight devices and 64 micro-batches, all answered, from a click to drawn; then a window."""
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", f"--server.port={PORT}"]
    table = Table("the app", "s")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            time.sleep(5)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(60_000)
            page.goto(f"http://127.0.0.1:{PORT}/compare?sample=v-shape-8&n=64")
            _add_proposed(page, 3)
            page.get_by_test_id("stSelectbox").first.click()
            page.keyboard.type("V, split backward, 8 devices")
            page.keyboard.press("Enter")
            page.wait_for_timeout(1_000)
            _add_proposed(page, 6)
            page.get_by_text("Start", exact=True).click()
            page.get_by_text("faster").first.wait_for()
            begin = time.perf_counter()
            page.get_by_text("Compare", exact=True).click()
            page.wait_for_function(_PICTURES, arg=6)
            took = time.perf_counter() - begin
            table.add_row("six schedules of 8 devices x 64 micro-batches, from a click to drawn", f"{took:.2f}")
            for name in ("Repetend", "Everything"):
                before = page.evaluate(_RANGE)
                begin = time.perf_counter()
                page.get_by_text(name, exact=True).click()
                page.wait_for_function(f"before => ![undefined, before].includes(({_RANGE})())", arg=before)
                table.add_row(f"window: {name}", f"{time.perf_counter() - begin:.2f}")
        finally:
            server.terminate()
    return table


_RANGE = "() => document.querySelector('.js-plotly-plot')?.layout?.xaxis.range.join()"
_PICTURES = "n => document.querySelectorAll('.js-plotly-plot .cartesianlayer .subplot').length >= n"


def _add_proposed(page: Page, pictures: int) -> None:
    page.get_by_test_id("stBaseButton-primary").filter(has_text="Add").click()
    page.wait_for_function(_PICTURES, arg=pictures)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--app", action="store_true")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("error: chromium: is not installed\n")
        return 2
    console = Console(width=130, highlight=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        table, small = sizes(browser, arguments.runs)
        console.print(table)
        if arguments.app:
            console.print(compare_page(browser))
        browser.close()
    return 0 if small else 1


if __name__ == "__main__":
    sys.exit(main())
