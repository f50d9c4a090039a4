"""How soon the Strategies page answers to a changed range, in a real Chromium: a table.

    python tests/benchmarks/strategies_page.py            # a minute; needs chromium

About 1,000 configurations are asked for on two nodes of eight H200s, and a size is changed so that every one of them is
new.  Seconds go from Enter until the first picture shows other points: the least, the median and the most of
`--changes`.  They are shown and never judged.  The peer is the sweep alone, without a page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.app_server import CHROMIUM, QUIET, serve

from tessel_core.strategies.families import find_family
from tessel_core.strategies.form import asked_by, mesh_named
from tessel_core.strategies.grid import evaluate_grid

NETWORKS = {
    "mlp": ({"batch": "1024,2048,4096,8192,16384"}, "Width", [str(4096 + 256 * i) for i in range(20)]),
    "gpt": ({"batch": "64,128,256,512,1024"}, "Sequence", [str(512 + 32 * i) for i in range(20)]),
}
"""By family: batches, the size that is changed, and its values."""
POINTS = """() => document.querySelector('.js-plotly-plot')._fullData
    .map(each => Array.from(each.y || []).slice(0, 50).join()).join()"""


def alone(family: str, changes: int) -> list[float]:
    """Seconds of the sweep without a page."""
    sizes, label, values = NETWORKS[family]
    found = []
    for value in values[1 : 1 + changes]:
        answers = {"family": family, f"{family}-{label.lower()}": value, f"{family}-batch": sizes["batch"]}
        asked = asked_by(answers)
        begin = time.perf_counter()
        swept = evaluate_grid(find_family(family), asked.grid, mesh_named(asked.mesh), asked.semantics)
        found.append(time.perf_counter() - begin)
        assert len(swept) > 900, f"there are {len(swept)} configurations"
    return found


def on_the_page(page: Page, url: str, family: str, changes: int) -> list[float]:
    """Seconds until other points are drawn."""
    sizes, label, values = NETWORKS[family]
    page.goto(f"{url}/strategies")
    page.locator(".js-plotly-plot").first.wait_for()
    if family == "gpt":
        page.get_by_label("Network").click()
        page.keyboard.type("GPT")
        page.keyboard.press("Enter")
        page.get_by_role("textbox", name="Sequence").wait_for()
    _write(page, "Batch", sizes["batch"])
    _write(page, label, values[0])
    page.wait_for_timeout(6_000)
    found = []
    for value in values[1 : 1 + changes]:
        before = page.evaluate(POINTS)
        begin = _write(page, label, value)
        page.wait_for_function(f"before => ({POINTS})() !== before", arg=before)
        found.append(time.perf_counter() - begin)
        page.wait_for_timeout(4_000)
    return found


def _write(page: Page, label: str, words: str) -> float:
    field = page.get_by_role("textbox", name=label, exact=True)
    field.fill(words)
    field.press("Enter")
    return time.perf_counter()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=6)
    changes = parser.parse_args(arguments).changes
    table = Table("another size", "least, s", "median, s", "most, s", title="1,050 configurations, all new")
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as (url, _), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        for family in NETWORKS:
            page = chromium.new_page(viewport={"width": 1280, "height": 800})
            for what, found in (
                (f"{family}: the sweep alone", alone(family, changes)),
                (f"{family}: on the page, other points", on_the_page(page, url, family, changes)),
            ):
                table.add_row(what, *(f"{each(found):.2f}" for each in (min, median, max)))
            page.close()
        chromium.close()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
