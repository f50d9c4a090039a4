"""The main road in a real Chromium: open, search, see, cancel, download, check."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.app_server import serve
from helpers.trace_rules import broken_trace_rules, read_trace

from tessel_core.exports import export_schedule
from tessel_core.formats import WorkspaceFile, read_plan, read_schedule, read_workspace
from tessel_core.rules import check_schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule

PATIENCE_MS = 30_000
ROW_PIXELS = 35


def press(page, label: str) -> None:
    page.locator(f'[data-testid^="stBaseButton"]:has-text("{label}")').first.click()


def open_menu(page) -> None:
    """The menu of files to take away."""
    page.get_by_test_id("stPopover").filter(has_text="Export").locator("button").first.click()


def search(page) -> None:
    page.get_by_test_id("stBaseButton-primary").filter(has_text="Search").click()


def bars(page) -> int:
    """Blocks drawn in the pictures of the page."""
    return page.locator(".js-plotly-plot .bars .point path").count()


def test_the_very_first_request_may_be_for_a_page(page, address: str) -> None:
    """Streamlit would run the page without the app around it; this must stay the first test of the file."""
    page.goto(f"{address}/schedule?sample=v-shape-4&n=3")
    page.get_by_test_id("stDataFrame").first.wait_for()
    assert page.get_by_label("Micro-batches").input_value() == "3"
    assert page.get_by_test_id("stTopNavLink").count() == 8
    assert page.get_by_test_id("stSidebarNavLink").count() == 0


def test_the_first_screen_compares_within_seconds_and_fits(page, address: str) -> None:
    began = time.monotonic()
    page.goto(address)
    page.locator(".js-plotly-plot .bars .point path").first.wait_for()
    assert time.monotonic() - began < 12, "6 s are promised on an idle machine"
    page.get_by_text("faster").wait_for()
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .bars .point path').length > 200")
    for text in ("1F1B, V-shaped placement", "Searched, M-shaped placement", "Open a sample", "Start from a shape"):
        assert page.get_by_text(text).first.bounding_box()["y"] < 800
    main = page.get_by_test_id("stMain")
    assert main.evaluate("e => e.scrollHeight - e.clientHeight") <= 40, "one screen, nothing to scroll for"


def test_open_search_see_and_download(page, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/schedule?sample=m-shape-4&n=12")
    page.get_by_test_id("stDataFrame").first.wait_for()
    began = time.monotonic()
    search(page)
    page.get_by_text("Makespan proved optimal").wait_for()
    page.locator(".js-plotly-plot .bars .point path").first.wait_for()
    assert time.monotonic() - began < 8, "2.5 s are promised on an idle machine"
    assert page.get_by_text("The period is proved optimal too.").count()
    assert bars(page) >= 12 * 10

    files = {}
    open_menu(page)
    for label in ("Plan JSON", "Schedule JSON", "CSV", "HTML report", "Chrome trace"):
        with page.expect_download() as found:
            press(page, label)
        files[label] = tmp_path / found.value.suggested_filename
        found.value.save_as(files[label])
    assert read_plan(files["Plan JSON"].read_bytes()) == load_sample("m-shape-4")
    kept = read_schedule(files["Schedule JSON"].read_bytes())
    assert check_schedule(kept.schedule) == []
    assert kept.schedule.micro_batches == 12
    assert files["CSV"].read_text().startswith("device,block,kind,micro_batch,start,end,phase,memory_after\n")
    assert files["HTML report"].read_text().startswith("<!doctype html>")
    assert broken_trace_rules(read_trace(files["Chrome trace"].read_bytes())) == set()


def test_the_switch_leads_to_the_steady_schedule_its_link_and_its_file(page, address: str, tmp_path: Path) -> None:
    """Two micro-batches of a K, of which no schedule that repeats is as short as the shortest."""
    page.goto(f"{address}/schedule?sample=k-shape-4&n=2")
    search(page)
    page.get_by_text("Makespan proved optimal").wait_for()
    page.get_by_text("Steady", exact=True).click()
    page.get_by_text("Period proved optimal: no schedule at any unroll is faster than 6 steps").wait_for()
    page.wait_for_url("**objective=period**")
    page.reload()
    page.get_by_text("longer than the shortest.").wait_for()
    open_menu(page)
    with page.expect_download() as found:
        press(page, "Schedule JSON")
    found.value.save_as(tmp_path / "steady.json")
    kept = read_schedule((tmp_path / "steady.json").read_bytes())
    assert check_schedule(kept.schedule) == []
    assert kept.report is not None
    assert (kept.report.objective_name, kept.report.objective) == ("period", 6)
    assert kept.schedule.repetend is not None
    page.get_by_text("Shortest", exact=True).click()
    page.get_by_text("Makespan proved optimal").wait_for()


def test_a_long_search_is_cancelled_within_a_second_and_keeps_its_best(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=mt5-nn-8&n=64&scheduler=time-optimal")
    search(page)
    page.get_by_text("Elapsed").wait_for()
    page.wait_for_timeout(1_500)
    assert page.get_by_role("button", name="Cancel").is_enabled()
    began = time.monotonic()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled").first.wait_for()
    assert time.monotonic() - began < 2.5, "the search stops within a second, the page follows"
    page.get_by_text("Elapsed").wait_for(state="detached")


def test_a_reload_finds_edits_and_answer(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6")
    page.get_by_label("Micro-batches").fill("7")
    page.get_by_label("Micro-batches").press("Enter")
    page.wait_for_url("**n=7**")
    search(page)
    page.get_by_text("Makespan", exact=True).wait_for()
    page.reload()
    page.get_by_text("Makespan", exact=True).wait_for()
    assert page.get_by_label("Micro-batches").input_value() == "7"


def type_into_first_block(page, column: float, text: str) -> None:
    """Overwrite a cell of the first row of the blocks table, at a share of its width, at the pace of a person.

    The table opens no cell while it is still being set up, or at the first double click after a menu was closed, and
    forgets what is typed and entered within a few milliseconds.
    """
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()
    open_cell = page.locator("#portal :is(input, textarea)")
    until = time.monotonic() + PATIENCE_MS / 1000
    while not open_cell.count():
        assert time.monotonic() < until, "the cell does not open"
        box = table.bounding_box()
        page.mouse.dblclick(box["x"] + column * box["width"], box["y"] + 1.5 * ROW_PIXELS)
        page.wait_for_timeout(800)
    page.keyboard.type(text, delay=60)
    page.wait_for_timeout(200)


def test_an_edit_in_the_table_reaches_the_plan(page, address: str, tmp_path: Path) -> None:
    """Even when Search is pressed with the cell still open."""
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6")
    type_into_first_block(page, 0.66, "5")
    search(page)
    page.get_by_text("Makespan", exact=True).wait_for()
    open_menu(page)
    with page.expect_download() as found:
        press(page, "Plan JSON")
    found.value.save_as(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["blocks"][0]["duration"] == 5


def test_an_invalid_edit_says_so_and_keeps_the_picture(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6")
    type_into_first_block(page, 0.9, "2")
    page.keyboard.press("Enter")
    page.get_by_text("device gpu0: the memory of one micro-batch's blocks must sum to 0, it sums to 1").last.wait_for()
    page.get_by_text("The last valid plan").wait_for()
    assert bars(page) >= 8


def test_a_bad_upload_says_one_sentence(page, address: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": "tessel-plan", "version": 9}')
    page.goto(address)
    page.locator('input[type="file"]').set_input_files(bad)
    page.get_by_text("bad.json: version: tessel-plan version 9 is not known").wait_for()


@pytest.fixture(scope="module")
def report_page(tmp_path_factory) -> Path:
    """A report whose plan has an attack for a name, as a file."""
    plan = replace(load_sample("m-shape-4"), name="<script>alert(1)</script>")
    report = solve_schedule("tessel", plan, 6)
    assert report.solution is not None
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_bytes(export_schedule("html", report.solution, report))
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_opens_offline_on_both_grounds(browser, report_page: Path, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme, offline=True)
    tab = context.new_page()
    asked: list[str] = []
    troubles: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("dialog", lambda dialog: troubles.append(dialog.message))
    tab.goto(report_page.as_uri())
    tab.wait_for_function("document.querySelectorAll('#history .scatterlayer .trace').length > 0")
    assert tab.get_by_role("heading", name="<script>alert(1)</script>").count() == 1
    assert tab.locator("#timeline .bars .point path").count() >= 6 * 10
    widths = tab.evaluate("[...document.querySelectorAll('.plot-container')].map(e => e.closest('figure').clientWidth)")
    drawn = tab.evaluate("[...document.querySelectorAll('.main-svg:first-child')].map(e => e.clientWidth)")
    assert max(abs(one - other) for one, other in zip(widths, drawn, strict=True)) <= 1, "figures fill their columns"
    assert tab.evaluate("document.documentElement.scrollWidth") == 1280, "nothing sticks out"
    for part in ("h1", ".note", "#timeline .xtick text, #timeline .x2tick text", "td"):
        assert contrast(tab, part) >= 4.5, f"{part} on {scheme} ground [WCAG 2.2, 1.4.3]"
    assert asked == [report_page.as_uri()]
    assert troubles == []
    context.close()


def contrast(tab, part: str) -> float:
    """Contrast of the first such element's ink with the page's ground."""
    colours = tab.locator(part).first.evaluate(
        "e => [getComputedStyle(e)[e instanceof SVGElement ? 'fill' : 'color'],"
        " getComputedStyle(document.body).backgroundColor]"
    )
    lighter, darker = sorted((luminance(colour) for colour in colours), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of "rgb(r, g, b)" [WCAG 2.2]."""
    channels = (int(value) / 255 for value in re.findall(r"\d+", colour)[:3])
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def exported(page, folder: Path) -> WorkspaceFile:
    """The workspace as the menu hands it out."""
    menu = page.get_by_test_id("stPopover").filter(has_text="Workspace").get_by_role("button").first
    menu.click()
    with page.expect_download() as found:
        press(page, "Export")
    found.value.save_as(folder / "work.json")
    menu.click()
    page.get_by_text("Duplicate").wait_for(state="hidden")
    return read_workspace((folder / "work.json").read_bytes())


def undo(page) -> None:
    page.get_by_role("button", name="Undo").click()


def test_undo_takes_an_edit_back_in_the_table_even_after_a_reload(page, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6&view=plan")
    type_into_first_block(page, 0.66, "5")
    page.keyboard.press("Enter")
    page.wait_for_url("**work=**")
    page.get_by_label("Micro-batches").fill("7")
    page.get_by_label("Micro-batches").press("Enter")
    page.wait_for_url("**n=7**")
    page.reload()
    page.get_by_test_id("stDataFrame").first.wait_for()
    assert exported(page, tmp_path).draft.blocks[0]["duration"] == 5
    undo(page)
    page.wait_for_url("**n=6**")
    undo(page)
    page.get_by_role("button", name="Undo").and_(page.locator(":disabled")).wait_for()
    assert page.get_by_label("Micro-batches").input_value() == "6"
    assert exported(page, tmp_path).plan == load_sample("v-shape-4")
    type_into_first_block(page, 0.66, "3")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo").and_(page.locator(":enabled")).wait_for()
    assert exported(page, tmp_path).draft.blocks[0]["duration"] == 3, "the table goes on from what undo brought back"


def test_a_killed_server_loses_nothing_and_its_links_open_again(page, tmp_path: Path) -> None:
    with serve(tmp_path) as (url, server):
        page.goto(f"{url}/schedule?sample=m-shape-4&n=12&max-unroll=3")
        page.get_by_label("Micro-batches").fill("9")
        page.get_by_label("Micro-batches").press("Enter")
        page.wait_for_url("**n=9**")
        search(page)
        page.get_by_text("period is proved optimal").wait_for()
        link = page.url
        server.kill()
    assert {"max-unroll=3", "view=schedule", "sample=m-shape-4"} <= set(link.partition("?")[2].split("&"))
    with serve(tmp_path) as (url, _):
        page.goto(f"{url}/schedule?{link.partition('?')[2]}")
        page.get_by_text("period is proved optimal").wait_for()
        assert page.get_by_label("Micro-batches").input_value() == "9"
        undo(page)
        page.wait_for_url("**n=12**")


def test_two_tabs_on_one_workspace_lose_nothing(page, address: str) -> None:
    page.goto(f"{address}/schedule?sample=v-shape-4&n=6&view=plan")
    page.get_by_label("Micro-batches").fill("7")
    page.get_by_label("Micro-batches").press("Enter")
    page.wait_for_url("**work=**")
    second = page.context.new_page()
    second.goto(page.url)
    for tab, number in ((second, "8"), (page, "9")):
        tab.get_by_label("Micro-batches").fill(number)
        tab.get_by_label("Micro-batches").press("Enter")
        tab.wait_for_url(f"**n={number}**")
    page.get_by_text("Another tab has changed").wait_for()
    press(page, "Open the other")
    page.wait_for_url("**n=8**")
    page.get_by_text("Another tab has changed").wait_for(state="detached")


def test_the_comparison_road(page, address: str) -> None:
    """Add what is looked at, add others, see them on one axis, zoom to a phase, choose a reference, reload."""
    page.goto(f"{address}/schedule?sample=v-shape-4&scheduler=sequential&n=8")
    press(page, "Add to Compare")
    page.get_by_text("Added. 1 on the Compare page.").wait_for()
    page.get_by_test_id("stTopNavLink").filter(has_text="Compare").click()
    page.get_by_test_id("stBaseButton-primary").filter(has_text="Add").click()
    pictures = "n => document.querySelectorAll('.js-plotly-plot .cartesianlayer .subplot').length == n"
    page.wait_for_function(pictures, arg=6)  # sequential, and the proposed 1F1B, GPipe, PipeDream, lists and Tessel
    assert bars(page) >= 6 * 8 * 8
    ends = page.evaluate("[...document.querySelectorAll('.js-plotly-plot')[0].layout.annotations].map(a => a.text)")
    assert {"<b>44 steps</b>", "<b>128 steps</b>"} <= set(ends)
    one_axis = "() => new Set([1, 2, 3, 4, 5, 6].map(i => document.querySelector('.js-plotly-plot')"
    one_axis += "._fullLayout['xaxis' + (i == 1 ? '' : i)].range.join())).size"
    assert page.evaluate(one_axis) == 1
    page.get_by_text("Repetend", exact=True).click()
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.layout?.xaxis.range[1] < 128")
    assert page.evaluate(one_axis) == 1
    table = page.get_by_test_id("stDataFrame").first.bounding_box()
    page.mouse.click(table["x"] + 17, table["y"] + 1.5 * ROW_PIXELS)  # the box before the first row
    press(page, "Use as reference")
    page.wait_for_timeout(1_000)
    page.reload()
    page.wait_for_function(pictures, arg=6)
    assert "compare=timelines" in page.url
    assert page.get_by_text("GPipe, v-shape-4: does not fit").count() == 1
