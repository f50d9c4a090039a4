"""How fast timeline and app are in a real Chromium that draws in software: tables beside the figures to reach.

    python tests/benchmarks/browser.py             # four minutes; needs chromium

The timeline alone, in milliseconds.  *Painted* is from the data's arrival in the browser until its first picture
stands; frames are medians and the slowest of twenty, while the view zooms in and out round one point, and while it
pans; *click* is from a press on a block until its micro-batch's path is lit; *play* is the script's own time for
a frame while the cursor sweeps over all blocks.

The app in a process of its own, in seconds; the least, the median and the most.  *Search* is from the press, in a new
tab with a new workspace and a question never asked before, until the answer is painted.  *Start* is from the first
visit of a server that has just begun until the first picture is painted.  *Plan* is from the drop of a stage on
another device until the schedule of the changed plan is painted beside it, *Schedule* from the drop of a run until
the referee's verdict stands over the timeline.  *What if* is from the step of a slider until all timelines are
painted anew, of one model under all published schedules on four devices.  *Curve* is from the
press, all pairs of a sample answered, until its first points are drawn.  *Learn* is from the first visit of a server
that has just begun until a run may be placed, and from a press on a run of a board of 400 until that is placed.

Figures are shown and never judged; the exit status is 1 where the data of 200,000 blocks is above four megabytes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.app_server import CHROMIUM, QUIET, serve  # noqa: E402
from helpers.browser import BEGIN, IDLE  # noqa: E402
from helpers.stores import small_work  # noqa: E402
from helpers.timeline_page import show_timeline  # noqa: E402

from tessel_core.charts.timeline import timeline_data, timeline_frames, timeline_height  # noqa: E402
from tessel_core.model import Schedule  # noqa: E402
from tessel_core.networks import ShapeParameters, build_shape  # noqa: E402
from tessel_core.networks.forms import Terms  # noqa: E402
from tessel_core.scheduling import BASELINES, SCHEDULERS, solve_schedule  # noqa: E402
from tessel_core.scheduling.forms import line_up  # noqa: E402
from tessel_core.workbench.store.store import open_store  # noqa: E402
from tessel_core.workbench.workspace import workspace_file  # noqa: E402

BLOCKS_A_MICRO_BATCH = 16
REACH = {1_000: (100, 50, 100), 2_000: (100, 50, 100), 200_000: (600, 50, 100), 1_000_000: (3_500, 50, 100)}
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

PLAY_REACH = 8
"""Milliseconds a frame, at 2,000 blocks that are all in view."""
PLAYED = """async () => {
  const over = document.getElementById('host').shadowRoot.querySelector('canvas.over');
  const took = [], later = window.requestAnimationFrame;
  window.requestAnimationFrame = (call) => later((now) => {
    const at = performance.now();
    call(now);
    took.push(performance.now() - at);
  });
  const press = (key) => over.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  press(' ');
  await new Promise((done) => setTimeout(done, 1500));
  press('Escape');
  window.requestAnimationFrame = later;
  return took;
}"""

SEARCH_REACH = {1_000: 1, 200_000: 2}
"""Seconds at so many blocks."""
START_REACH = 3
VISITS = 5
PRESS = """async (button, digest) => {
  const hosts = () => [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')];
  const timelines = () => hosts().map((host) => host.shadowRoot?.querySelector('.timeline'));
  const at = performance.now();
  button.click();
  while (!timelines().some((each) => each?.dataset.digest === digest && each.dataset.painted)) {
    if (performance.now() - at > 60000) throw Error('the answer was not painted');
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  }
  return performance.now() - at;
}"""
DROPS_REACH = {"Plan": 0.6, "Schedule": 0.3}
"""Seconds, of four devices, and of 5,000 runs."""
CHANGED = """async ([which, key]) => {
  const hosts = () => [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')];
  const timelines = () => hosts().map((host) => host.shadowRoot?.querySelector('.timeline')).filter(Boolean);
  const verdict = () => timelines()[0].querySelector('.verdict')?.textContent ?? '';
  const read = () => (which ? timelines()[which].dataset.digest : verdict() + timelines()[0].dataset.digest);
  const before = read();
  const over = timelines()[0].querySelector('canvas.over');
  const at = performance.now();
  const how = { key, altKey: true, bubbles: true, composed: true, cancelable: true };
  over.dispatchEvent(new KeyboardEvent('keydown', how));
  while (read() === before || !(which || verdict())) {
    if (performance.now() - at > 20000) throw Error('nothing changed');
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  }
  return performance.now() - at;
}"""
SLIDER_REACH = 0.3
STEPS = 12
SLID = """async () => {
  const hosts = () => [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')];
  const timeline = () => hosts().map((host) => host.shadowRoot?.querySelector('.timeline')).find(Boolean);
  const slider = hosts().map((host) => host.shadowRoot?.querySelector('[data-field=backward]')).find(Boolean);
  const before = timeline().dataset.digest;
  const at = performance.now();
  slider.stepUp();
  slider.dispatchEvent(new Event('input', { bubbles: true }));
  while (timeline()?.dataset.digest === before || !timeline()?.dataset.painted) {
    if (performance.now() - at > 20000) throw Error('nothing was drawn anew');
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  }
  return performance.now() - at;
}"""
CURVE_REACH = 1
CURVES = [(sample, view) for sample in ("m-shape-4", "gpt-6.7b-v-8") for view in ("micro-batches", "memory")]
FIRST_POINTS = """async (button) => {
  const at = performance.now();
  button.click();
  while (!document.querySelector('.js-plotly-plot .scatterlayer .point')) {
    if (performance.now() - at > 60000) throw Error('there were no points');
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  }
  return performance.now() - at;
}"""
FIRST_MOVE_REACH, MOVE_REACH = 3, 0.1
MOVES = 20
FIRST_MOVE = """async () => {
  const hosts = () => [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')];
  while (!hosts().some((host) => host.shadowRoot?.querySelector('.board .chip.lit'))) {
    if (performance.now() > 60000) throw Error('no run may be placed');
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  }
  return performance.now();
}"""
MOVE = """async () => {
  const hosts = [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')];
  const board = hosts.map((host) => host.shadowRoot?.querySelector('.board')).find(Boolean);
  const before = board.dataset.placed;
  const at = performance.now();
  board.querySelector('.chip.lit').click();
  if (board.dataset.placed === before) throw Error('nothing was placed');
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - at;
}"""
FIRST_PICTURE = """async () => {
  const hosts = () => [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')];
  while (!hosts().some((host) => host.shadowRoot?.querySelector('.timeline')?.dataset.painted)) {
    if (performance.now() > 60000) throw Error('there was no picture');
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  }
  return performance.now();  // since the page was asked for
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
    played = page.evaluate(PLAYED)
    reach = REACH[blocks]
    cells = [f"{blocks:,}", f"{len(data) / 1e6:.2f}", f"{built * 1000:.0f}", f"{painted:.0f} / {reach[0]:,}"]
    cells += [f"{median(took):.0f} ({max(took):.0f}) / {reach[1]}" for took in frames.values()]
    cells += [f"{max(clicks):.0f} / {reach[2]}", f"{median(played):.1f} ({max(played):.1f}) / {PLAY_REACH}"]
    return cells, len(data)


def searched(browser: Browser, url: str, blocks: int) -> list[float]:
    """Seconds from the press on Build until the answer is painted, each of another question in a new tab."""
    found = []
    for more in range(VISITS):
        schedule = schedule_of(blocks + more * BLOCKS_A_MICRO_BATCH)
        (header, _), *_ = timeline_frames(timeline_data([("", schedule)]))
        tab = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        tab.goto(f"{url}/schedule?sample=v-shape-8&scheduler=1f1b&n={schedule.micro_batches}&view=plan")
        press = tab.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN)
        press.wait_for()
        tab.wait_for_function(IDLE)
        tab.wait_for_timeout(2_000)  # what the page does before is not what is measured
        found.append(press.evaluate(PRESS, header["digest"]) / 1000)
        tab.wait_for_function(IDLE)
        tab.context.close()
    return found


def started(browser: Browser) -> list[float]:
    """Seconds from the first visit of a server until its first picture."""
    found = []
    for _ in range(VISITS):
        with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as (url, _):
            tab = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
            tab.goto(url, wait_until="commit")
            found.append(tab.evaluate(FIRST_PICTURE) / 1000)
            tab.context.close()
    return found


def dropped(browser: Browser, url: str) -> dict[str, list[float]]:
    """Seconds from a change by hand until its schedule, or its verdict, is there; keys drop as the mouse does."""
    found = dict[str, list[float]]()
    runs = 5_000 // 8
    for view, of, which, keys in (
        ("Plan", "n=8", 1, ("ArrowDown", "ArrowUp") * VISITS),
        ("Schedule", f"n={runs}&scheduler=1f1b", 0, ("ArrowRight", "ArrowLeft") * VISITS),
    ):
        tab = browser.new_context(viewport={"width": 1400, "height": 1200}).new_page()
        tab.goto(f"{url}/schedule?sample=v-shape-4&{of}&view=schedule")
        tab.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()
        tab.locator(".timeline canvas.over").first.wait_for()
        tab.wait_for_function(IDLE)
        if view == "Plan":
            tab.get_by_test_id("stMain").get_by_text("Plan", exact=True).click()
            tab.locator(".timeline canvas.over").nth(1).wait_for()
        else:
            tab.get_by_text("Change by hand").click()
            tab.get_by_role("button", name="Push left").wait_for()
        tab.wait_for_function(IDLE)
        tab.locator(".timeline canvas.over").first.press("ArrowRight")  # selects the first block
        found[view] = []
        for key in keys:
            tab.wait_for_timeout(1_500)
            tab.wait_for_function(IDLE)
            found[view].append(tab.evaluate(CHANGED, [which, key]) / 1000)
        tab.context.close()
    return found


def slid(browser: Browser) -> list[float]:
    """Seconds from a step of a slider until the published schedules are painted anew, each step from rest."""
    filled = line_up("gpt-6.7b", Terms(devices=4), 16, lambda name: SCHEDULERS[name].config()).comparison
    published = filled.only([i for i, pair in enumerate(filled.pairs) if pair.scheduler in BASELINES])
    work = replace(small_work(published.pairs[0].plan), comparison=published)
    with tempfile.TemporaryDirectory() as folder:
        open_store(Path(folder)).workspaces.create(workspace_file(work), work.token)
        with serve(Path(folder)) as (url, _):
            tab = browser.new_context(viewport={"width": 1400, "height": 1200}).new_page()
            tab.goto(f"{url}/compare?work={work.token}&compare=what-if")
            tab.locator(".what-if input").first.wait_for()
            tab.locator(".timeline[data-painted]").first.wait_for()
            found = []
            for _ in range(STEPS):
                tab.wait_for_timeout(1_500)
                tab.wait_for_function(IDLE)
                found.append(tab.evaluate(SLID) / 1000)
            tab.context.close()
    return found


def curved(browser: Browser, sample: str, view: str) -> list[float]:
    """Seconds from the press until the first points of a curve are drawn, each by a new server that knows none."""
    found = []
    for _ in range(VISITS):
        with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as (url, _):
            tab = browser.new_context(viewport={"width": 1400, "height": 1200}).new_page()
            tab.goto(f"{url}/compare?sample={sample}&n=8&compare={view}")
            tab.get_by_role("button", name="Add", exact=True).click()
            press = tab.get_by_role("button", name="Compute the curve")
            press.wait_for()
            tab.wait_for_function(IDLE)
            tab.get_by_role("button", name="Cancel").wait_for(state="detached")  # the table is solved first
            tab.wait_for_function(IDLE)
            tab.wait_for_timeout(2_000)
            found.append(press.evaluate(FIRST_POINTS) / 1000)
            tab.context.close()
    return found


def learned(browser: Browser) -> tuple[list[float], list[float]]:
    """Seconds until a run may be placed, each on a server that has just begun; and until one of 400 is placed."""
    first, moves = [], []
    for _ in range(VISITS):
        with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as (url, _):
            tab = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
            tab.goto(f"{url}/learn", wait_until="commit")
            first.append(tab.evaluate(FIRST_MOVE) / 1000)
            if len(first) == VISITS:
                tab.goto(f"{url}/learn?sample=v-shape-4&n=50&level=own")
                tab.get_by_text("is proved optimal").wait_for()
                for _ in range(MOVES):
                    moves.append(tab.evaluate(MOVE) / 1000)
                    tab.wait_for_timeout(600)
            tab.context.close()
    return first, moves


def in_the_app(browser: Browser) -> Table:
    """What takes a server: a table."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg()[:2])
    table = Table("in the app", "least, s", "median, s", "most, s", "reach", title=f"load {load} of {os.cpu_count()}")
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as (url, _):
        rows = [
            (f"Search, {blocks:,} blocks", searched(browser, url, blocks), reach)
            for blocks, reach in SEARCH_REACH.items()
        ]
        rows += [(f"{view}, drop", found, DROPS_REACH[view]) for view, found in dropped(browser, url).items()]
    rows.append(("What if, a slider's step", slid(browser), SLIDER_REACH))
    rows += [(f"Curve of {sample}, {view}", curved(browser, sample, view), CURVE_REACH) for sample, view in CURVES]
    first, moves = learned(browser)
    rows += [("Learn, until the first move", first, FIRST_MOVE_REACH), ("Learn, a move of 400", moves, MOVE_REACH)]
    for what, found, reach in (*rows, ("Start, first visit", started(browser), START_REACH)):
        table.add_row(what, *(f"{each(found):.2f}" for each in (min, median, max)), str(reach))
    return table


def main() -> int:
    if CHROMIUM is None:
        print("no chromium on this machine")
        return 2
    table = Table(
        "blocks", "data, MB", "built", "painted / reach", "zoom / reach", "pan / reach", "click / reach", "play / reach"
    )
    sizes, rows = {}, {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        for blocks in (min(REACH), *REACH):  # the first one warms the browser up, as the app's own page would have
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            cells, sizes[blocks] = row(page, blocks)
            rows[blocks] = cells
            page.close()
        app = in_the_app(browser)
        browser.close()
    for cells in rows.values():
        table.add_row(*cells)
    Console().print(table, app)
    return int(sizes[200_000] > MOST_DATA)


if __name__ == "__main__":
    sys.exit(main())
