"""Pictures: their data, that they are drawn with the extra, and the reason if they are not."""

from __future__ import annotations

import importlib.util
import os
import struct
import zlib
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tessel_core.charts.gantt import SHARES_CAPTION, gantt
from tessel_core.errors import InputError
from tessel_core.exports import EXPORTS, export_schedule
from tessel_core.exports.pictures import titled, why_no_pictures
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.workbench.messages.schedule import verdict

PICTURES = ("png", "svg")


@cache
def answered(micro_batches: int = 6) -> tuple[Schedule, ScheduleReport]:
    report = solve_schedule("1f1b", load_sample("v-shape-4"), micro_batches)
    assert report.solution is not None
    return report.solution, report


def test_the_title_says_what_a_reader_of_the_picture_alone_must_know() -> None:
    schedule, report = answered()
    title = titled(schedule, report).layout.title.text
    assert title == f"<b>v-shape-4</b> · 1F1B · 6 micro-batches<br>{verdict(report, schedule.plan)}"
    long, judged = answered(1_000)
    assert titled(long, judged).layout.title.text.endswith(SHARES_CAPTION)


def test_the_title_takes_nothing_from_the_figure() -> None:
    schedule, report = answered()
    plain, with_title = gantt(schedule), titled(schedule, report)
    room = with_title.layout.height - plain.layout.height
    assert room > 0
    assert with_title.layout.margin.t - plain.layout.margin.t == room
    assert with_title.layout.margin.b == plain.layout.margin.b
    assert with_title.layout.legend.y * with_title.layout.height == pytest.approx(plain.layout.height)
    assert with_title.data == plain.data


def test_without_kaleido_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "kaleido" else find(name))
    for kind in PICTURES:
        with pytest.raises(InputError) as raised:
            export_schedule(kind, *answered())
        assert str(raised.value).startswith(
            f"export {kind}: needs kaleido and a Chromium: pip install 'tessel-explorer["
        )
        assert "\n" not in str(raised.value)


def test_the_rest_of_the_table_does_not_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessel_core.exports.pictures.why_no_pictures", lambda: "nothing is installed")
    refused = {name for name, export in EXPORTS.items() if export.objection(answered()[0])}
    assert refused == {*PICTURES, "megatron"}, "whose layers the plan does not name"


@pytest.fixture
def kaleido() -> None:
    """Skip the test with a reason if kaleido is missing. Fail instead if the environment requires it."""
    missing = why_no_pictures()
    if missing and os.environ.get("TESSEL_REQUIRE_EXTRAS") != "1":
        pytest.skip(f"{missing}; TESSEL_REQUIRE_EXTRAS=1 makes this a failure")
    assert not missing


@pytest.mark.extras
@pytest.mark.usefixtures("kaleido")
def test_a_png_is_as_large_as_its_layout_says_and_not_empty() -> None:
    schedule, report = answered()
    layout = titled(schedule, report).layout
    width, height, rows = read_png(export_schedule("png", schedule, report))
    assert (width, height) == (2 * layout.width, 2 * layout.height)
    assert width >= 1600
    assert len(set(rows)) > 100, "lines differ where something is drawn"


@pytest.mark.extras
@pytest.mark.usefixtures("kaleido")
def test_an_svg_says_title_devices_and_micro_batches_and_fetches_nothing() -> None:
    schedule, report = answered()
    picture = ElementTree.fromstring(export_schedule("svg", schedule, report))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    words = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any("v-shape-4 · 1F1B · 6 micro-batches" in text for text in words)
    assert {device.name for device in schedule.plan.devices} <= set(words)
    assert {str(m) for m in range(6)} <= set(words)
    links = [value for each in picture.iter() for name, value in each.attrib.items() if name.endswith("href")]
    assert all(link.startswith(("#", "data:")) for link in links)


@pytest.mark.extras
@pytest.mark.usefixtures("kaleido")
@pytest.mark.parametrize(
    ("program", "why"),
    [(None, "which is not a file; install chromium"), ("#!/bin/sh\nexit 3\n", "could not draw it: ")],
)
def test_a_browser_that_is_not_there_or_does_not_work_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, why: str
) -> None:
    browser = tmp_path / "browser"
    if program is not None:
        browser.write_text(program)
        browser.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(browser))
    with pytest.raises(InputError) as raised:
        export_schedule("png", *answered())
    assert str(raised.value).startswith("export png: ")
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def read_png(data: bytes) -> tuple[int, int, list[bytes]]:
    """Return width, height and rows of a PNG: signature, chunks with checksums, one zlib stream."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + size
    assert (chunks[0][0], chunks[-1][0]) == (b"IHDR", b"IEND")
    width, height = struct.unpack(">II", chunks[0][1][:8])
    pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    step = len(pixels) // height
    return width, height, [pixels[i : i + step] for i in range(0, len(pixels), step)]
