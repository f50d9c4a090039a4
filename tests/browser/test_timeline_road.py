"""The timeline in a real Chromium: zoom, pan, select, walk, reload, narrow windows, odd names, and errors."""

from __future__ import annotations

import re
import struct
from xml.etree import ElementTree

import pytest
from helpers.browser import BEGIN, IDLE, at_least, drag, equals, soon
from helpers.looks import looks_right
from helpers.timeline_page import show_other, show_timeline

from tessel_core.charts.timeline import Look, timeline_data, timeline_height
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule

WHOLE = (0.0, 60.0)
"""View of a whole schedule: twelve micro-batches of 1F1B on four devices."""
MARKUP = "<img src=x onerror=alert(1)>"

SAYS = "state => void (document.querySelector('[data-testid=stApp]').dataset.testScriptState = state)"
"""Make the page report that its script is in this state."""
NO_CANVAS = """
const draws = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (...how) {
  if (this.className === 'over') throw Error('no canvas');
  return draws.apply(this, how);
};
void 0;
"""


def timeline(page):
    return page.get_by_test_id("timeline")


def canvas(page):
    return page.locator(".timeline canvas.over")


def view(page) -> tuple[float, float]:
    """Return the ticks in view."""
    begin, end = (timeline(page).get_attribute("data-view") or "nan nan").split()
    return float(begin), float(end)


def lane(page, device: int, share: float) -> tuple[float, float]:
    """Return a point in the lane of a device, at a share of its length."""
    box = canvas(page).bounding_box()
    left = min(118, max(44, 0.16 * box["width"]))
    return box["x"] + left + share * (box["width"] - left - 10), box["y"] + 74 + 30 * (device + 0.5)


def card(page) -> str:
    return page.locator(".timeline .card").inner_text().replace("\u2068", "").replace("\u2069", "")


def told(page, *parts: str) -> None:
    """Wait until the card contains all of these texts."""

    def check() -> None:
        text = card(page)
        assert all(part in text for part in parts), text

    soon(check)


class Line:
    """The connection of a page with its server, which a test can cut and restore. Create it before the page opens."""

    def __init__(self, page) -> None:
        self._cut = False
        self._open: list = []
        page.route_web_socket(re.compile("_stcore/stream"), self._begin)

    def _begin(self, socket) -> None:
        if self._cut:
            socket.close()
            return
        socket.connect_to_server()
        self._open.append(socket)

    def cut(self) -> None:
        self._cut = True
        for socket in self._open:
            socket.close()
        self._open.clear()

    def mend(self) -> None:
        self._cut = False


def connected(page) -> bool:
    """Return whether the page believes that it is connected."""
    return page.get_by_test_id("stApp").get_attribute("data-test-connection-state") == "CONNECTED"


@pytest.fixture
def line(page) -> Line:
    return Line(page)


@pytest.fixture
def answered(page, address: str):
    """Open 1F1B with twelve micro-batches, and wait until it is drawn."""
    page.goto(f"{address}/schedule?sample=v-shape-4&n=12&scheduler=1f1b&view=schedule")
    page.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()
    canvas(page).wait_for()
    equals(lambda: view(page), WHOLE)
    page.wait_for_function(IDLE)
    canvas(page).scroll_into_view_if_needed()
    return page


def test_one_visit_zooms_pans_searches_and_asks(answered) -> None:
    zoom_and_pan_by_wheel_drag_and_keys(answered)
    answered.get_by_role("button", name="Full range").click()
    equals(lambda: view(answered), WHOLE)
    the_critical_path_and_what_is_asked_for_are_found(answered)
    answered.get_by_text("Critical path").click()
    a_block_a_hole_and_a_range_tell_about_themselves(answered)


def zoom_and_pan_by_wheel_drag_and_keys(page) -> None:
    page.mouse.move(*lane(page, 1, 0.5))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    soon(lambda: in_order(0, view(page)[0], 30, view(page)[1], 60))
    near = view(page)
    page.mouse.wheel(0, 60)
    equals(lambda: view(page), near)  # a wheel without modifier keys scrolls the page
    canvas(page).scroll_into_view_if_needed()
    page.keyboard.down("Shift")
    page.mouse.move(*lane(page, 1, 0.6))
    page.mouse.down()
    page.mouse.move(*lane(page, 1, 0.4), steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    soon(lambda: in_order(near[0], view(page)[0], near[1], view(page)[1]))
    assert view(page)[1] - view(page)[0] == pytest.approx(near[1] - near[0])
    page.keyboard.press("0")
    equals(lambda: view(page), WHOLE)
    page.keyboard.press("w")
    soon(lambda: in_order(-1, view(page)[0], view(page)[1], 60))
    page.get_by_role("button", name="Full range").click()
    equals(lambda: view(page), WHOLE)
    page.get_by_role("button", name="Repetend").click()
    soon(lambda: in_order(1, view(page)[0], view(page)[1], 59))


def in_order(*numbers: float) -> None:
    """Assert that the numbers increase."""
    assert list(numbers) == sorted(set(numbers)), numbers


def a_block_a_hole_and_a_range_tell_about_themselves(page) -> None:
    page.mouse.click(*lane(page, 0, 0.5 / 60))
    told(page, "F0", "forward, micro-batch 0", "0 – 1 steps", "0 slots → 1 slot", "F1 at once")
    page.get_by_text("It starts at time 0.").wait_for()
    page.keyboard.press("]")
    told(page, "F1", "1 – 2 steps")
    page.keyboard.press("[")
    told(page, "F0", "0 – 1 steps")
    page.keyboard.press("ArrowRight")
    told(page, "F0", "micro-batch 1")
    page.keyboard.press("f")
    soon(lambda: in_order(-0.1, view(page)[0], view(page)[1], 5))
    page.keyboard.press("0")
    page.mouse.click(*lane(page, 3, 1.5 / 60))
    told(page, "Idle on gpu3", "3 steps", "0 – 3 steps", "the beginning and F3 · 0")
    page.get_by_text("Warmup, 3 steps: the device has not started its first run.").wait_for()
    page.mouse.move(*lane(page, 1, 20 / 60))
    page.mouse.down()
    page.mouse.move(*lane(page, 1, 40 / 60), steps=4)
    page.mouse.up()
    told(page, "Range", "20 – 40 steps", "100.0% / 0.0%", "4 slots on gpu0")
    page.keyboard.press("Escape")
    told(page, "Click a block")
    page.keyboard.press("?")
    page.get_by_text("previous, next along a dependency").wait_for()


def the_critical_path_and_what_is_asked_for_are_found(page) -> None:
    page.get_by_text("Critical path").click()
    told(page, "B0", "micro-batch 11", "nothing")
    page.get_by_text("back to time 0").wait_for()
    page.get_by_role("button", name="B1 of 11").click()
    told(page, "B1", "micro-batch 11")
    page.get_by_label("Find a block").fill("longest hole on gpu2")
    page.keyboard.press("Enter")
    told(page, "Idle on gpu2")
    page.wait_for_url(re.compile(r"at=g2\.\d+"))
    page.get_by_label("Find a block").fill("B9 of 2")
    page.keyboard.press("Enter")
    page.get_by_text('There is no block "B9"').wait_for()
    told(page, "Idle on gpu2")
    page.mouse.click(*lane(page, 0, 0.5 / 60))
    told(page, "F0", "micro-batch 0")
    equals(page.locator(".timeline .complaint").inner_text, "")


def test_what_is_seen_survives_a_reload_and_leaves_no_steps(answered) -> None:
    page = answered
    steps = page.evaluate("history.length")
    page.mouse.click(*lane(page, 0, 0.5 / 60))
    page.keyboard.press("f")
    page.locator(".timeline .choices select").nth(0).select_option("block")
    page.locator(".timeline .choices select").nth(1).select_option("held")
    page.wait_for_url(re.compile(r"time=0-\d+&at=0\.0&colour=block&lanes=held"))
    canvas(page).focus()
    page.keyboard.press("m")
    page.wait_for_url(re.compile(r"lanes=held&marks=0-1$"))
    near = view(page)
    page.wait_for_function(IDLE)
    assert page.evaluate("history.length") == steps
    page.reload()
    told(page, "F0", "micro-batch 0")
    soon(lambda: in_order(near[0] - 1, view(page)[0], view(page)[1], near[1] + 1))
    equals(lambda: page.locator(".timeline .choices select").nth(0).input_value(), "block")
    equals(lambda: page.locator(".timeline .choices select").nth(1).input_value(), "held")
    page.wait_for_url(re.compile(r"at=0\.0&colour=block&lanes=held&marks=0-1$"))
    canvas(page).focus()
    page.keyboard.press("m")  # the mark is there, so this removes it
    page.wait_for_url(re.compile("lanes=held$"))
    looks_right(page, "Schedule")


def test_a_range_may_be_dragged_while_the_connection_is_lost(line: Line, answered) -> None:
    page = answered
    page.mouse.move(*lane(page, 1, 20 / 60))
    page.mouse.down()
    page.mouse.move(*lane(page, 1, 30 / 60), steps=3)
    line.cut()
    equals(lambda: connected(page), False)
    page.evaluate(SAYS, "running")  # as if the connection was lost before the end of the run
    page.mouse.move(*lane(page, 1, 40 / 60), steps=3)
    page.mouse.up()
    told(page, "Range", "20 – 40 steps")
    page.wait_for_url(re.compile("at=r20-40"))
    page.evaluate(SAYS, "notRunning")
    line.mend()
    equals(lambda: connected(page), True)
    page.wait_for_function(IDLE)
    told(page, "Range", "20 – 40 steps")
    assert view(page) == WHOLE
    page.mouse.click(*lane(page, 0, 0.5 / 60))
    page.get_by_text("It starts at time 0.").wait_for()


def test_what_was_selected_of_another_schedule_leaves_the_address(answered) -> None:
    """No other test uses this number of micro-batches, so its answer cannot be stored already."""
    page = answered
    page.mouse.click(*lane(page, 0, 0.5 / 60))
    page.wait_for_url(re.compile(r"at=0\.0"))
    page.wait_for_function(IDLE)
    page.get_by_label("Micro-batches").fill("9")
    page.get_by_label("Micro-batches").press("Enter")
    page.get_by_text("Plan, scheduler or options have changed since this search").wait_for()
    page.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()
    equals(lambda: view(page), (0.0, 48.0))
    told(page, "Click a block")
    page.wait_for_url(lambda url: "at=" not in url)


def shown(context, schedule: Schedule, width: int = 1280, theme: str = "light", setup: str = ""):
    """Show the timeline on a page of its own, which loads nothing and opens no dialog."""
    tab = context.new_page()
    tab.set_viewport_size({"width": width, "height": 900})
    tab.troubles = []
    tab.on("pageerror", lambda error: tab.troubles.append(str(error)))
    tab.on("dialog", lambda dialog: tab.troubles.append(dialog.message))
    tab.on("request", lambda request: request.url.startswith("blob:") or tab.troubles.append(request.url))
    if setup:
        tab.evaluate(setup)
    data = timeline_data([("", schedule)])
    show_timeline(tab, data, timeline_height(data), theme)
    return tab


def odd(name: str) -> Schedule:
    """Return a schedule of two blocks on a device of this name."""
    blocks = tuple(Block(f"{name}{i}", kind, (0,), 2, 1 - 2 * i) for i, kind in enumerate(list(BlockKind)[:2]))
    plan = MicroBatchPlan("odd", (PlanDevice(name, 1),), blocks, (Dependency(f"{name}0", f"{name}1"),))
    found = solve_schedule("sequential", plan, 3).drawable
    assert found is not None
    return found


@pytest.mark.parametrize("name", [MARKUP, "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "n" * 199, "\U0001f600"])
@pytest.mark.parametrize("width", [320, 1280])
def test_odd_names_are_text_and_nothing_is_wider_than_the_window(context, name: str, width: int) -> None:
    tab = shown(context, odd(name), width)
    tab.mouse.click(*lane(tab, 0, 0.05))
    told(tab, f"{name}0", "micro-batch 0")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("img").count() == 0
    assert tab.troubles == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("scheduler", ["gpipe", "1f1b"])
def test_every_colour_and_scale_draws_on_both_grounds(context, theme: str, scheduler: str) -> None:
    found = solve_schedule(scheduler, load_sample("v-shape-4"), 12).drawable
    assert found is not None
    tab = shown(context, found, 800, theme)
    equals(lambda: timeline(tab).get_attribute("data-theme"), theme)
    assert tab.get_by_text("does not fit").is_visible() == (scheduler == "gpipe")
    for place, choices in enumerate((("micro-batch", "block", "chunk", "kind"), ("held", "capacity"))):
        for choice in choices:
            tab.locator(".timeline .choices select").nth(place).select_option(choice)
    tab.mouse.move(*lane(tab, 2, 0.3))
    assert tab.troubles == []


@pytest.mark.parametrize("width", [330, 760, 900, 1050])
def test_nothing_of_the_bar_is_cut_off(context, width: int) -> None:
    found = solve_schedule("1f1b", load_sample("v-shape-4"), 12).drawable
    assert found is not None
    tab = shown(context, found, width)
    bar = tab.locator(".timeline .bar").bounding_box()
    for each in tab.locator(".timeline .bar :is(button, input, select):visible").all():
        box = each.bounding_box()
        assert bar["x"] <= box["x"]
        assert box["x"] + box["width"] <= bar["x"] + bar["width"]
        assert box["y"] + box["height"] <= bar["y"] + bar["height"]


def test_the_picture_is_handed_out_as_it_is_seen(context) -> None:
    tab = shown(context, alone(load_sample("v-shape-4")), 900)
    with tab.expect_download() as found:
        tab.get_by_role("button", name="PNG").click()
    picture = found.value.path().read_bytes()
    assert found.value.suggested_filename == "timeline.png"
    assert picture.startswith(b"\x89PNG")
    size = canvas(tab).evaluate("(canvas) => [canvas.width, canvas.height]")
    assert list(struct.unpack(">II", picture[16:24])) == size
    with tab.expect_download() as found:
        tab.get_by_role("button", name="SVG").click()
    drawn = ElementTree.fromstring(found.value.path().read_bytes())
    texts = {each.text.strip("\u2068\u2069") for each in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"gpu0", "gpu3"} <= texts
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}rect")) > 8


def test_one_run_of_a_long_time_and_one_tick_are_seen(context) -> None:
    for duration in (1, 2**40):
        block = Block("only", BlockKind.OTHER, (0, 2), duration)
        plan = MicroBatchPlan("one", tuple(PlanDevice(f"d{i}") for i in range(3)), (block,), time_unit="ns")
        tab = shown(context, alone(plan))
        equals(lambda tab=tab: view(tab), (0.0, float(duration)))
        tab.mouse.click(*lane(tab, 0, 0.5))
        told(tab, "only", "other, micro-batch 0")
        tab.mouse.click(*lane(tab, 1, 0.5))
        told(tab, "Idle on d1", "100.0% of all idle time")


def alone(plan: MicroBatchPlan) -> Schedule:
    found = solve_schedule("sequential", plan, 1).drawable
    assert found is not None
    return found


def test_another_schedule_begins_anew_and_the_same_one_stays(context) -> None:
    few, many = (solve_schedule("1f1b", load_sample(f"v-shape-{n}"), 12).drawable for n in (4, 8))
    assert few is not None
    assert many is not None
    tab = shown(context, few)
    tab.mouse.click(*lane(tab, 0, 0.5 / 60))
    tab.keyboard.press("f")
    told(tab, "F0", "micro-batch 0")
    soon(lambda: in_order(-1, view(tab)[1], 5))
    near = view(tab)
    show_other(tab, timeline_data([("", few)]))
    assert view(tab) == near
    assert "micro-batch 0" in card(tab)
    height = canvas(tab).bounding_box()["height"]
    show_other(tab, timeline_data([("", many)]))
    equals(lambda: view(tab), (0.0, float(many.makespan)))
    assert canvas(tab).bounding_box()["height"] == height + 4 * (30 + 24)
    told(tab, "Click a block")
    tab.mouse.click(*lane(tab, 7, 0.99))
    told(tab, "Idle on gpu7")
    assert tab.troubles == []


def test_what_a_hand_holds_stays_in_it_until_another_schedule_comes(context) -> None:
    few, many = (solve_schedule("sequential", load_sample(f"v-shape-{n}"), 1).drawable for n in (4, 8))
    assert few is not None
    assert many is not None
    tab, look = shown(context, few), Look(stages=tuple(min(b, 7 - b) for b in range(8)))
    tip = tab.locator(".timeline .tip:visible")
    show_other(tab, timeline_data([("", few)], look=look))
    drag(tab, lane(tab, 1, 1.5 / 16), lane(tab, 2, 1.5 / 16), drop=False)
    equals(tip.inner_text, "F1, B1 to gpu2")
    show_other(tab, timeline_data([("", few)], look=look))  # as every rerun of the page does
    tab.mouse.move(*lane(tab, 3, 1.5 / 16))
    equals(tip.inner_text, "F1, B1 to gpu3")
    show_other(tab, timeline_data([("", many)]))
    tab.mouse.move(*lane(tab, 1, 0.5))
    equals(lambda: [" to gpu" in each for each in tip.all_inner_texts()], [False])  # of the block under the pointer
    tab.mouse.up()
    assert tab.troubles == []


def test_a_schedule_plays_step_by_step_and_by_itself(context) -> None:
    found = solve_schedule("1f1b", load_sample("v-shape-4"), 8).drawable
    assert found is not None
    tab = shown(context, found)
    canvas(tab).focus()
    tab.keyboard.press(".")
    told(tab, "gpu0 runs F0 of 1", "gpu1 runs F1 of 0")
    played = tab.locator(".timeline .played")
    assert "at 1 step" in played.inner_text()
    tab.keyboard.press(".")
    tab.keyboard.press(",")
    told(tab, "gpu2 waits for F2 of 0: F1 of 0 has not ended on gpu1")
    tab.get_by_label("Speed").select_option("4×")
    tab.get_by_role("button", name="Play", exact=True).first.click()
    told(tab, "gpu3 has ended its last run", "gpu0 runs B0 of 7")
    tab.get_by_role("button", name="Play", exact=True).first.wait_for()
    canvas(tab).focus()
    tab.keyboard.press("Escape")
    told(tab, "Click a block")
    assert not played.is_visible()
    assert tab.troubles == []


def test_a_browser_that_cannot_draw_says_so_once(context) -> None:
    tab = shown(context, odd("d"), setup=NO_CANVAS)
    assert tab.evaluate("window.told") == [["failed", "no canvas"]]


def test_the_page_shows_the_picture_where_the_timeline_cannot_be_drawn(page, address: str) -> None:
    page.add_init_script(NO_CANVAS)
    page.goto(f"{address}/schedule?sample=v-shape-4&n=12&scheduler=1f1b&view=schedule")
    page.get_by_test_id("stBaseButton-primary").filter(has_text=BEGIN).click()
    page.get_by_text("This browser cannot draw the timeline, so a picture is shown. no canvas").wait_for()
    at_least(page.locator(".js-plotly-plot .bars .point path").count, 12 * 8)


def test_schedules_under_each_other_are_seen_at_one_time(page, address: str) -> None:
    page.goto(f"{address}/compare?sample=m-shape-4&n=12")
    page.get_by_role("button", name="Add", exact=True).click()
    at_least(canvas(page).count, 4)
    equals(page.locator(".timeline .heading .over-capacity:visible").count, 1)  # of GPipe
    end = view(page)[1]
    canvas(page).nth(2).scroll_into_view_if_needed()
    third = canvas(page).nth(2).bounding_box()
    page.mouse.click(third["x"] + 122, third["y"] + 44 + 10)
    told(page, "forward, micro-batch 0", "1F1B+")
    page.wait_for_url(re.compile(r"at=0\.0&on=3"))
    page.mouse.move(third["x"] + 300, third["y"] + 60)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    soon(lambda: in_order(-1, view(page)[0], view(page)[1], end))
    near = view(page)
    page.wait_for_function(IDLE)
    page.wait_for_url(re.compile(r"time=\d+-\d+&at=0\.0&on=3"))
    page.get_by_text("Memory lanes").click()
    soon(lambda: in_order(third["height"], canvas(page).nth(2).bounding_box()["height"]))
    assert view(page) == near, "the same is seen"
    page.reload()
    told(page, "forward, micro-batch 0", "1F1B+")
    soon(lambda: in_order(near[0] - 1, view(page)[0], view(page)[1], near[1] + 1))


def touch(tab, kind: str, *points: tuple[float, float]) -> None:
    """Send the events of a touch screen."""
    tab.session.send(
        "Input.dispatchTouchEvent",
        {"type": kind, "touchPoints": [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]},
    )


def test_a_finger_pans_and_selects_and_two_zoom(context) -> None:
    tab = shown(context, solve_schedule("1f1b", load_sample("v-shape-4"), 12).drawable)
    tab.session = tab.context.new_cdp_session(tab)
    (left, y), (middle, _), (right, _) = (lane(tab, 1, share) for share in (0.3, 0.5, 0.7))
    touch(tab, "touchStart", (left, y))
    touch(tab, "touchStart", (left, y), (right, y))
    for wider in (10, 40, 90):
        touch(tab, "touchMove", (left - wider, y), (right + wider, y))
    touch(tab, "touchEnd")
    soon(lambda: in_order(0, view(tab)[0], view(tab)[1], 60))
    tab.wait_for_timeout(300)  # every move has been painted
    near = view(tab)
    touch(tab, "touchStart", (middle, y))
    for further in (20, 60, 120):
        touch(tab, "touchMove", (middle - further, y))
    touch(tab, "touchEnd")
    soon(lambda: in_order(near[0], view(tab)[0], near[1], view(tab)[1]))
    touch(tab, "touchStart", (middle, y))
    touch(tab, "touchEnd")
    equals(lambda: timeline(tab).get_attribute("data-selected"), "run")
    assert tab.troubles == []
