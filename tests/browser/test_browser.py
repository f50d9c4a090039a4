"""The main steps of a user in a real Chromium: open, search, look, cancel, download, check."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.app_server import serve
from helpers.browser import BEGIN, IDLE, ROW_PIXELS, at_least, download, enter, equals, forget, go, press, soon
from helpers.looks import looks_right
from helpers.trace_rules import broken_trace_rules, read_trace

from pages.shared.contents import PAGES
from tessel_core.exports import export_schedule
from tessel_core.formats import read_plan, read_schedule, read_workspace
from tessel_core.rules import check_schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.workbench.workspace import Workspace, workspace_of

FIRST_SCREEN = """() => {
    const ways = document.querySelector('.st-key-ways-on');
    return ways && ways.getBoundingClientRect().top < 680;
}"""
"""Whether the question, the comparison and the first line below them are on the screen."""
FIGURES_FILL_THEIR_COLUMNS = """() => [...document.querySelectorAll('.plot-container')].every(e =>
    Math.abs(e.closest('figure').clientWidth - e.querySelector('.main-svg').clientWidth) <= 1)"""


def open_menu(page) -> None:
    """Open the menu of files to download."""
    page.get_by_test_id("stPopover").filter(has_text="Export").locator("button").first.click()


def search(page) -> None:
    page.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()


def ask_about(page, number: str) -> None:
    """Enter this number of micro-batches, and wait until the link contains it."""
    page.wait_for_function(IDLE)
    enter(page, "Micro-batches", number)
    page.wait_for_url(f"**n={number}**")


def micro_batches(page, number: str) -> None:
    """Wait until the field *Micro-batches* shows this number."""
    fields = page.get_by_label("Micro-batches")
    equals(lambda: fields.evaluate_all("fields => fields.map(field => field.value)"), [number])


def drawn(page, least: int) -> None:
    """Wait until the pictures of the page have at least this many blocks."""
    at_least(page.locator(".js-plotly-plot .bars .point path").count, least)


def test_nothing_that_a_page_keeps_reaches_the_next_test(context, address: str) -> None:
    keep = "localStorage.kept = sessionStorage.kept = document.cookie = 'kept=1'; indexedDB.open('kept'); 1"
    kept = (
        "Promise.all([localStorage.kept, sessionStorage.kept, document.cookie.includes('kept'), indexedDB.databases()])"
    )
    found = []
    for _ in range(2):
        tab = context.new_page()
        tab.goto(f"{address}/_stcore/health")
        found.append(tab.evaluate(kept))
        tab.evaluate(keep)
        forget(context, address)
    assert found == [[None, None, False, []]] * 2


def test_the_first_screen_compares_and_fits_and_a_bad_upload_says_one_sentence(
    page, address: str, tmp_path: Path
) -> None:
    page.goto(address)
    page.get_by_text("faster").wait_for()
    page.get_by_label(re.compile(r"^1F1B, V-shaped placement: .* Timeline of \d+ blocks")).wait_for()
    page.get_by_label(re.compile(r"^Searched, M-shaped placement: GPUs .* Timeline of \d+ blocks")).wait_for()
    for text in ("1F1B, V-shaped placement", "Searched, M-shaped placement", "Open a sample", "Start from a shape"):
        page.get_by_text(text).first.wait_for()
    page.wait_for_function(FIRST_SCREEN)
    looks_right(page, "Start")
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": "tessel-plan", "version": 9}')
    page.locator('input[type="file"]').set_input_files(bad)
    page.get_by_text("bad.json: version: tessel-plan version 9 is not known").wait_for()


def test_open_search_see_and_download(page, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/schedule?sample=m-shape-4&n=12")
    page.get_by_test_id("stDataFrame").first.wait_for()
    search(page)
    page.get_by_text("Makespan proved optimal").wait_for()
    page.get_by_text("The period is proved optimal too.").wait_for()
    page.get_by_label("Timeline of 120 blocks on 4 devices").wait_for()
    page.get_by_text("Picture", exact=True).click()
    drawn(page, 12 * 10)

    files = {}
    open_menu(page)
    for label in ("Plan JSON", "Schedule JSON", "CSV", "HTML report", "Chrome trace"):
        found = download(page, label)
        files[label] = tmp_path / found.suggested_filename
        found.save_as(files[label])
    assert read_plan(files["Plan JSON"].read_bytes()) == load_sample("m-shape-4")
    kept = read_schedule(files["Schedule JSON"].read_bytes())
    assert check_schedule(kept.schedule) == []
    assert kept.schedule.micro_batches == 12
    assert files["CSV"].read_text().startswith("device,block,kind,micro_batch,start,end,phase,memory_after\n")
    assert files["HTML report"].read_text().startswith("<!doctype html>")
    assert broken_trace_rules(read_trace(files["Chrome trace"].read_bytes())) == set()


def test_the_switch_leads_to_the_steady_schedule_its_link_and_its_file(page, address: str) -> None:
    """The plan is a K with four micro-batches. Its shortest schedule is shorter than every schedule that repeats."""
    page.goto(f"{address}/schedule?sample=k-shape-4&n=4")
    search(page)
    page.get_by_text("Makespan proved optimal").wait_for()
    page.get_by_text("Steady", exact=True).click()
    page.get_by_text("Period proved optimal: no schedule of this placement is faster than 6 steps").wait_for()
    page.wait_for_url("**objective=period**")
    page.reload()
    page.get_by_text("longer than the shortest.").wait_for()
    open_menu(page)
    kept = read_schedule(Path(download(page, "Schedule JSON").path()).read_bytes())
    assert check_schedule(kept.schedule) == []
    assert kept.report is not None
    assert (kept.report.objective_name, kept.report.objective) == ("period", 6)
    assert kept.schedule.repetend is not None
    page.get_by_text("Shortest", exact=True).click()
    page.get_by_text("Makespan proved optimal").wait_for()


def test_a_long_search_is_cancelled_and_keeps_its_best(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=mt5-nn-8&n=64&scheduler=time-optimal")
    search(page)
    page.get_by_text("Elapsed").wait_for()
    page.wait_for_timeout(500)
    press(page, "Cancel")
    page.get_by_text("Cancelled").first.wait_for()
    page.get_by_text("Elapsed").wait_for(state="detached")


@pytest.mark.more  # the link of the killed server leads to the same, and so does a reload of the page without a browser
def test_a_reload_finds_edits_and_answer(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6")
    ask_about(page, "7")
    search(page)
    page.get_by_text("Makespan proved optimal").wait_for()
    page.reload()
    page.get_by_text("Makespan", exact=True).wait_for()
    micro_batches(page, "7")


def type_into_first_block(page, column: float, text: str) -> None:
    """Overwrite a cell of the first row of the blocks table, at a share of its width, at the pace of a person.

    The table opens no cell while it is still being set up, or at the first double click after a menu was closed, and
    forgets what is typed and entered within a few milliseconds.
    """
    table = page.get_by_test_id("stDataFrame").first
    editor = page.locator("#portal :is(input, textarea)")

    def open_cell() -> None:
        """Double-click until the editor is open.

        An open editor covers the cell, so a second double click would wait forever.
        """
        if not editor.count():
            table.scroll_into_view_if_needed()
            box = table.bounding_box()
            page.mouse.dblclick(box["x"] + column * box["width"], box["y"] + 1.5 * ROW_PIXELS)
            page.wait_for_timeout(800)
        assert editor.count(), "the cell does not open"

    soon(open_cell)
    page.keyboard.type(text, delay=60)
    page.wait_for_timeout(200)


def test_an_edit_in_the_table_reaches_the_plan(page, address: str) -> None:
    """This also holds if Search is pressed while the cell is still open."""
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6")
    type_into_first_block(page, 0.66, "5")
    search(page)
    page.get_by_text("Makespan", exact=True).wait_for()
    open_menu(page)
    assert json.loads(Path(download(page, "Plan JSON").path()).read_text())["blocks"][0]["duration"] == 5


def test_an_invalid_edit_says_so_and_keeps_the_picture(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6")
    type_into_first_block(page, 0.9, "2")
    page.keyboard.press("Enter")
    page.get_by_text("device gpu0: the memory of one micro-batch's blocks must sum to 0, it sums to 1").last.wait_for()
    page.get_by_text("Last valid plan").wait_for()
    page.locator(".timeline[data-view='0 16'] canvas.over").wait_for()


@pytest.fixture(scope="module")
def report_page(tmp_path_factory) -> Path:
    """Return a report file whose plan has a script as its name."""
    plan = replace(load_sample("m-shape-4"), name="<script>alert(1)</script>")
    report = solve_schedule("tessel", plan, 6)
    assert report.solution is not None
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_bytes(export_schedule("html", report.solution, report))
    return path


def test_a_report_opens_offline_on_both_grounds(context, report_page: Path) -> None:
    tab = context.new_page()
    context.set_offline(True)
    asked: list[str] = []
    troubles: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("dialog", lambda dialog: troubles.append(dialog.message))
    tab.goto(report_page.as_uri())
    tab.wait_for_function("document.querySelectorAll('#history .scatterlayer .trace').length > 0")
    assert tab.get_by_role("heading", name="<script>alert(1)</script>").count() == 1
    at_least(tab.locator("#timeline .bars .point path").count, 6 * 10)
    tab.wait_for_function(FIGURES_FILL_THEIR_COLUMNS)
    equals(lambda: tab.evaluate("document.documentElement.scrollWidth"), 1280)
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        for part in ("h1", ".note", "#timeline .xtick text, #timeline .x2tick text", "td"):
            assert contrast(tab, part) >= 4.5, f"{part} on {scheme} ground [WCAG 2.2, 1.4.3]"
    assert asked == [report_page.as_uri()]
    assert troubles == []


def contrast(tab, part: str) -> float:
    """Return the contrast between the ink of the first such element and the background of the page."""
    colours = tab.locator(part).first.evaluate(
        "e => [getComputedStyle(e)[e instanceof SVGElement ? 'fill' : 'color'],"
        " getComputedStyle(document.body).backgroundColor]"
    )
    lighter, darker = sorted((luminance(colour) for colour in colours), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """Return the relative luminance of "rgb(r, g, b)" [WCAG 2.2]."""
    channels = (int(value) / 255 for value in re.findall(r"\d+", colour)[:3])
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def exported(page) -> Workspace:
    """Return the workspace that the menu downloads."""
    menu = page.get_by_test_id("stPopover").filter(has_text="Workspace").get_by_role("button").first
    menu.click()
    file = Path(download(page, "Export").path())
    menu.click()
    page.get_by_text("Duplicate").wait_for(state="hidden")
    return workspace_of(read_workspace(file.read_bytes()), "token")


def test_undo_takes_an_edit_back_in_the_table_even_after_a_reload(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6&view=plan")
    type_into_first_block(page, 0.66, "5")
    page.keyboard.press("Enter")
    page.wait_for_url("**work=**")
    ask_about(page, "7")
    page.reload()
    page.get_by_test_id("stDataFrame").first.wait_for()
    assert exported(page).draft.blocks[0]["duration"] == 5
    press(page, "Undo")
    page.wait_for_url("**n=6**")
    press(page, "Undo")
    page.get_by_role("button", name="Undo").and_(page.locator(":disabled")).wait_for()
    micro_batches(page, "6")
    assert exported(page).plan == load_sample("v-shape-4")
    type_into_first_block(page, 0.66, "3")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo").and_(page.locator(":enabled")).wait_for()
    assert exported(page).draft.blocks[0]["duration"] == 3, "the table goes on from what undo brought back"


def test_a_killed_server_loses_nothing_and_its_links_open_again(page, tmp_path: Path) -> None:
    """The first request to a server may be for a page. Streamlit would run that page without the app around it."""
    with serve(tmp_path) as (url, server):
        page.goto(f"{url}/schedule?sample=m-shape-4&n=12&max-unroll=3")
        micro_batches(page, "12")
        equals(page.get_by_test_id("stTopNavLink").count, len(PAGES))
        assert page.get_by_test_id("stSidebarNavLink").count() == 0
        ask_about(page, "9")
        search(page)
        page.get_by_text("period is proved optimal").wait_for()
        link = page.url
        server.kill()
    assert {"max-unroll=3", "view=schedule", "sample=m-shape-4"} <= set(link.partition("?")[2].split("&"))
    with serve(tmp_path) as (url, _):
        page.goto(f"{url}/schedule?{link.partition('?')[2]}")
        page.get_by_text("period is proved optimal").wait_for()
        micro_batches(page, "9")
        press(page, "Undo")
        page.wait_for_url("**n=12**")


def test_two_tabs_on_one_workspace_lose_nothing(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6&view=plan")
    enter(page, "Micro-batches", "7")
    page.wait_for_url("**work=**")
    second = page.context.new_page()
    second.goto(page.url)
    for tab, number in ((second, "8"), (page, "9")):
        ask_about(tab, number)
    page.get_by_text("Another tab has also changed").wait_for()
    press(page, "Open the other version")
    page.wait_for_url("**n=8**")
    page.get_by_text("Another tab has also changed").wait_for(state="detached")


def test_the_comparison_road(page, address: str) -> None:
    """Add the open schedule and others, see them on one axis, zoom to a phase, choose a reference, reload."""
    page.goto(f"{address}/schedule?sample=v-shape-4&scheduler=sequential&n=8")
    press(page, "Add to Compare")
    page.get_by_role("button", name="On Compare").wait_for()
    go(page, "Compare")
    page.get_by_test_id("stBaseButton-primary").filter(has_text="Add").click()
    panels = page.locator(".timeline .heading")
    equals(panels.count, 6)  # sequential, and the suggestions 1F1B, GPipe, PipeDream, list scheduling and Tessel
    for end in ("44 steps", "128 steps"):
        panels.filter(has_text=end).first.wait_for()
    page.locator(".timeline[data-view='0 128']").wait_for()
    page.get_by_role("button", name="Repetend").click()
    equals(page.locator(".timeline[data-view='0 128']").count, 0)
    box_before_the_first_row = {"x": 17, "y": 1.5 * ROW_PIXELS}
    page.get_by_test_id("stDataFrame").first.click(position=box_before_the_first_row)
    press(page, "Set as reference")
    page.wait_for_function(IDLE)
    page.reload()
    equals(panels.count, 6)
    page.wait_for_url("**compare=timelines**")
    equals(page.get_by_text("GPipe, v-shape-4: does not fit").count, 1)
