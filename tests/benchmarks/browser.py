"""How fast the timeline is in a real Chromium that draws in software: a table beside the figures to reach.

    python tests/benchmarks/browser.py             # a minute; needs chromium

Milliseconds.  *Painted* is from the data's arrival in the browser until its first picture stands; frames are medians
and the slowest of twenty, while the view zooms in and out round one point, and while it pans; *click* is from a press
on a block until its micro-batch's path is lit.  They are shown and never judged; the exit status is 1 where the data
of 200,000 blocks is above four megabytes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.app_server import CHROMIUM, QUIET  # noqa: E402
from helpers.timeline_page import show_timeline  # noqa: E402

from tessel_core.charts.timeline import timeline_data, timeline_height  # noqa: E402
from tessel_core.model import Schedule  # noqa: E402
from tessel_core.networks import ShapeParameters, build_shape  # noqa: E402
from tessel_core.scheduling import solve_schedule  # noqa: E402

BLOCKS_A_MICRO_BATCH = 16
REACH = {1_000: (100, 50, 100), 200_000: (600, 50, 100), 1_000_000: (3_500, 50, 100)}
"""Painted, a frame, and a click at so many blocks."""
MOST_DATA = 4_000_000
FRAMES = """async (kind) => {
  const root = document.getElementById('host').shadowRoot;
  const over = root.querySelector('canvas.over');
  const box = over.getBoundingClientRect();
  const took = [];
  for (let i = 0; i < 20; i++) {
    const wheel = { zoom: { deltaY: i < 10 ? -60 : 60, ctrlKey: true }, pan: { deltaX: 30 } }[kind];
    const at = performance.now();
    over.dispatchEvent(new WheelEvent('wheel', {
      ...wheel, clientX: box.left + 600, clientY: box.top + 100, bubbles: true, cancelable: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    took.push(performance.now() - at);
  }
  return took;
}"""
CLICK = """async (x) => {
  const root = document.getElementById('host').shadowRoot;
  const over = root.querySelector('canvas.over');
  const box = over.getBoundingClientRect();
  const at = performance.now();
  for (const type of ['pointerdown', 'pointerup']) {
    over.dispatchEvent(new PointerEvent(type, {
      clientX: box.left + x, clientY: box.top + 120, pointerId: 1, bubbles: true }));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  if (root.querySelector('.timeline').dataset.selected !== 'run') throw Error('no block was hit');
  return performance.now() - at;
}"""


def schedule_of(blocks: int) -> Schedule:
    """1F1B on eight devices, of about so many blocks."""
    plan = build_shape("v-shape", ShapeParameters(devices=8, capacity=8))
    found = solve_schedule("1f1b", plan, blocks // BLOCKS_A_MICRO_BATCH).solution
    assert found is not None
    return found


def row(page: Page, blocks: int) -> tuple[list[str], int]:
    """The figures at so many blocks, each with what to reach, and the bytes of data."""
    schedule = schedule_of(blocks)
    begin = time.perf_counter()
    data = timeline_data([("", schedule)])
    built = time.perf_counter() - begin
    painted = show_timeline(page, data, timeline_height(data))
    frames = {kind: page.evaluate(FRAMES, kind) for kind in ("zoom", "pan")}
    clicks = [page.evaluate(CLICK, x) for x in (500, 520, 700)]
    reach = REACH[blocks]
    cells = [f"{blocks:,}", f"{len(data) / 1e6:.2f}", f"{built * 1000:.0f}", f"{painted:.0f} / {reach[0]:,}"]
    cells += [f"{median(took):.0f} ({max(took):.0f}) / {reach[1]}" for took in frames.values()]
    return [*cells, f"{max(clicks):.0f} / {reach[2]}"], len(data)


def main() -> int:
    if CHROMIUM is None:
        print("no chromium on this machine")
        return 2
    table = Table("blocks", "data, MB", "built", "painted / reach", "zoom / reach", "pan / reach", "click / reach")
    sizes, rows = {}, {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        for blocks in (min(REACH), *REACH):  # the first one warms the browser up, as the app's own page would have
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            cells, sizes[blocks] = row(page, blocks)
            rows[blocks] = cells
            page.close()
        browser.close()
    for cells in rows.values():
        table.add_row(*cells)
    Console().print(table)
    return int(sizes[200_000] > MOST_DATA)


if __name__ == "__main__":
    sys.exit(main())
