"""From a network to its schedule in a real Chromium: upload, place, move a selection, undo, schedule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.browser import (
    IDLE,
    at,
    canvas,
    download,
    drag,
    enter,
    equals,
    go,
    no_wider_than_the_screen,
    press,
    soon,
)
from helpers.looks import assert_no_layout_shift, looks_right

from tessel_core.formats import graph_text, read_mesh
from tessel_core.samples import load_graph

DRAWING = '[class*="st-key-placed-"] .js-plotly-plot'
NUMBER = '[data-testid="stMetricValue"]'


def largest_load(page) -> str:
    return page.locator(NUMBER).first.inner_text()


def wait_for_another(page, load: str) -> None:
    page.wait_for_function(f"before => document.querySelector('{NUMBER}').innerText !== before", arg=load)


def drag_in_the_lanes(page, best: str) -> None:
    """Drag in the lanes: a refusal before the drop, a move with an immediate answer, a move by keys, and undo."""
    tip, verdict = page.locator(".timeline .tip:visible"), page.locator(".timeline .verdict")
    page.wait_for_function(IDLE)
    canvas(page).scroll_into_view_if_needed()
    drag(page, at(page, 10, 0, 131), at(page, 10, 2, 131), drop=False)
    equals(tip.inner_text, "tensors would flow in a circle between gpu2 and gpu0")
    page.mouse.up()
    drag(page, at(page, 30, 6, 131), at(page, 30, 7, 131), drop=False)
    equals(tip.inner_text, "layer6/relu, layer6/relu/backward to gpu7")
    page.mouse.up()
    wait_for_another(page, best)
    soon(lambda: told(verdict.inner_text(), r"^Largest load .* µs · \+.* µs · gap .*%$"))
    page.wait_for_function(IDLE)
    moved = largest_load(page)
    page.keyboard.press("Alt+ArrowUp")
    equals(lambda: largest_load(page), best)
    page.wait_for_function(IDLE)
    page.keyboard.press("Control+z")
    equals(lambda: largest_load(page), moved)
    press(page, "Undo")
    page.get_by_text("proved optimal").wait_for()


def fill_the_table(page, best: str) -> None:
    """Fill the table by keyboard, up to the proved load, then up to the cost of contiguity."""
    page.get_by_text("Step by step", exact=True).click()
    table, line = page.locator(".filling"), page.locator(".filling .line")
    table.get_by_role("button", name="Step").focus()
    for key, filled in (("Enter", 1), ("ArrowRight", 2), ("PageDown", 19), ("ArrowLeft", 18), ("End", 144)):
        page.keyboard.press(key)
        equals(lambda: table.get_attribute("data-filled"), str(filled))
    told(line.inner_text(), rf"^The whole graph takes {best} on 8 devices, and every cut was tried\.")
    known = page.locator(".filling section").nth(1)  # another test may have asked already
    page.get_by_role("button", name="Break contiguity").or_(known).first.click()
    table.get_by_text("Any sets", exact=True).wait_for()
    equals(lambda: table.get_attribute("data-filled"), "144")
    looks_right(page, "Placement", came=False)
    page.get_by_text("Operators", exact=True).click()


def told(text: str, pattern: str) -> None:
    assert re.search(pattern, text), text


def click_mark(page) -> None:
    """Click a mark in the middle of the window. Links cover the top, and the background takes clicks on marks."""
    mark = page.locator(f"{DRAWING} .scatterlayer .point").first
    mark.evaluate("element => element.scrollIntoView({block: 'center'})")
    mark.click(force=True)


def drag_box(page) -> None:
    """Drag a box over the whole drawing."""
    picture = page.locator(f"{DRAWING} .nsewdrag").first
    picture.scroll_into_view_if_needed()
    picture.hover()
    page.locator(f'{DRAWING} .modebar-btn[data-title="Box Select"]').first.click()
    picture.hover()
    box = picture.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4, steps=5)
    page.mouse.up()


def test_the_road_from_a_network_to_its_schedule(page, address: str, tmp_path: Path) -> None:
    graph = load_graph("mlp-8-training")
    file = tmp_path / "mine.json"
    file.write_text(graph_text(graph))
    page.goto(f"{address}/graph")
    page.locator("input[type=file]").first.set_input_files(str(file))
    page.locator(".scatterlayer .point").first.wait_for()
    equals(page.locator(NUMBER).first.inner_text, str(len(graph.operators)))
    looks_right(page, "Operator graph")
    go(page, "Placement")
    page.get_by_text("Press Place").wait_for()
    press(page, "Place")
    page.get_by_text("proved optimal").wait_for()
    best = largest_load(page)
    page.locator(f"{DRAWING} .scatterlayer .point").first.wait_for()
    assert_no_layout_shift(page, "Placement")
    drag_in_the_lanes(page, best)
    fill_the_table(page, best)
    click_mark(page)
    page.get_by_text(re.compile(r"^[12] selected")).wait_for()  # an operator and its backward one
    drag_box(page)
    page.get_by_text(f"{len(graph.operators)} selected").wait_for()
    press(page, "Move")
    wait_for_another(page, best)
    page.get_by_text("by hand").wait_for()
    press(page, "Undo")
    page.get_by_text("proved optimal").wait_for()
    equals(lambda: largest_load(page), best)
    page.reload()
    page.get_by_text("proved optimal").wait_for()
    equals(lambda: largest_load(page), best)
    press(page, "Schedule this")
    page.get_by_text("placement of mlp-8-training on h200-8").wait_for()
    looks_right(page, "Plan of a placement")
    press(page, "Search")
    page.get_by_text("period is proved optimal").wait_for()
    page.wait_for_function(IDLE)
    page.get_by_label("Find a block").fill("b layer0 of 3")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="B layer1 of 3").first.wait_for()
    soon(lambda: told(page.locator(".timeline .card").inner_text(), r"^B layer0\nbackward, micro-batch 3"))


def test_an_edited_mesh_is_what_its_file_says(page, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/mesh")
    enter(page, "In a node, GB/s", "100")
    page.wait_for_url("**work=*")
    looks_right(page, "Device mesh")
    mesh = read_mesh(Path(download(page, "Export").path()).read_bytes()).mesh
    assert mesh.same_node_link is not None
    assert mesh.same_node_link.bandwidth == 1e11


@pytest.mark.more  # in smaller networks this is one of the rules of looks_right
@pytest.mark.parametrize("name", ["graph", "mesh", "placement"])
def test_nothing_is_wider_than_the_screen(page, address: str, name: str) -> None:
    page.goto(f"{address}/{name}?graph=gpt2-small-inference")
    page.get_by_test_id("stPopover").first.wait_for()
    for width, height in ((1280, 800), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        no_wider_than_the_screen(page)
