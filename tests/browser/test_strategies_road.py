"""From ranges to a schedule in a real Chromium: ask, click a point, open its program, schedule its pipeline."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.browser import BEGIN, IDLE, LANE, at, canvas, download, enter, equals, go, no_wider_than_the_screen, press
from helpers.looks import looks_right

from tessel_core.ir import read_program

POINT = """index => {
    const picture = document.querySelectorAll('.js-plotly-plot')[0], layout = picture._fullLayout;
    const points = picture.data.find(each => each.name === 'on the front');
    const ground = picture.querySelector('.nsewdrag').getBoundingClientRect();
    return {x: ground.x + layout.xaxis.d2p(points.x[index]), y: ground.y + layout.yaxis.d2p(points.y[index]),
            number: points.customdata[index][0], strategy: points.customdata[index][1]};
}"""
"""Screen position of a point of the first picture, and the number of its configuration."""


def write(page, label: str, text: str, count: str) -> None:
    """Enter text into a field, and wait until this many configurations have been timed."""
    enter(page, label, text)
    page.get_by_text(f"{count} configurations on").wait_for()


def wait_for_strategy(page, strategy: str) -> None:
    """Wait until the details are those of this strategy."""
    shown = "text => [...document.querySelectorAll('[role=combobox]')].some(e => e.value?.startsWith(text))"
    page.wait_for_function(shown, arg=f"D/H/P/K {strategy}")


def wait_for_program(page, strategy: str) -> None:
    """Wait until the whole program of the strategy is shown."""
    page.get_by_text(re.compile(rf"D/H/P/K {re.escape(strategy)}")).first.wait_for()
    page.get_by_text("Time and its formula").wait_for()
    page.get_by_text(re.compile("÷")).first.wait_for()


def counted(page) -> str:
    return page.get_by_text(re.compile(" configurations on ")).inner_text()


def rows_of_degrees(page) -> int:
    """Return the number of rows in which the fields of the degrees stand."""
    labels = ("Replicas D", "Tensor H", "Stages P", "Micro-batches K")
    boxes = [page.get_by_role("textbox", name=label, exact=True).bounding_box() for label in labels]
    return len({box["y"] for box in boxes})


def test_the_road_from_ranges_to_a_schedule(page, address: str) -> None:
    page.goto(f"{address}/strategies")
    page.get_by_text("420 configurations on").wait_for()
    write(page, "Stages P", "2,4", "192")
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot').length >= 3")
    page.locator(".timeline canvas.over").wait_for()
    page.get_by_text(re.compile("waits [0-9]+% of the time")).first.wait_for()
    asked = counted(page)
    point = page.evaluate(POINT, 0)
    page.mouse.click(point["x"], point["y"])
    page.wait_for_url(f"**strategy={point['number']}*")
    wait_for_strategy(page, point["strategy"])
    page.reload()
    wait_for_strategy(page, point["strategy"])
    equals(lambda: counted(page), asked)

    press(page, "Program")
    wait_for_program(page, point["strategy"])
    page.reload()
    wait_for_program(page, point["strategy"])

    def ask_the_first() -> None:
        """Ask the first question. Wait until the page is still and scrolled to the top, so that clicks hit."""
        page.wait_for_function(IDLE)
        canvas(page).scroll_into_view_if_needed()
        x, y = at(page, 0, 0, 1)
        page.mouse.click(x + 2, y - 0.3 * LANE)  # lanes are lower if there are many devices
        page.locator(".timeline[data-selected=run]").wait_for(timeout=5000)

    ask_the_first()
    page.locator(".timeline .said").get_by_text("starts at time 0.").wait_for()
    row = page.locator(".timeline .card dd").last.inner_text()
    page.get_by_text(f"Operation {row}", exact=True).wait_for()
    looks_right(page, "Program")
    page.keyboard.press("]")
    equals(lambda: page.locator(".timeline .card dd").last.inner_text() == row, False)
    later = page.locator(".timeline .card dd").last.inner_text()
    page.get_by_text(f"Operation {later}", exact=True).wait_for()
    go(page, "Strategies")
    page.get_by_text(asked).wait_for()

    press(page, "Open in Schedule")
    page.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()
    page.get_by_text("Makespan", exact=True).wait_for()
    page.locator(".js-plotly-plot .bars .point path").first.wait_for()
    go(page, "Strategies")
    page.get_by_text(asked).wait_for()


def test_a_program_goes_out_and_comes_back(page, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/strategies")
    page.get_by_text("420 configurations on").wait_for()
    canvas(page).wait_for()
    looks_right(page, "Strategies")
    for width, height in ((1920, 1080), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        no_wider_than_the_screen(page)
        equals(lambda: rows_of_degrees(page), 1)
    file = tmp_path / "mine.txt"
    download(page, "Text").save_as(file)
    operations = len(read_program(file.read_text(), "mine.txt").ops)
    go(page, "Program")
    page.get_by_text("File", exact=True).click()
    page.locator("input[type=file]").set_input_files(str(file))
    page.get_by_text(f"{operations:,} operations").wait_for()
    bad = tmp_path / "bad.txt"
    bad.write_text("program bad\n%y: fp32[4]@1 = relu(%x)\nreturn %y")
    page.locator("input[type=file]").set_input_files(str(bad))
    page.get_by_text("bad.txt: ").first.wait_for()
    page.get_by_text(f"{operations:,} operations").wait_for()  # the earlier points stay
