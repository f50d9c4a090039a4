"""A schedule as a PNG or SVG picture, drawn by kaleido in a local Chromium: the optional extra `pictures`."""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from textwrap import wrap

import plotly.graph_objects as go

from tessel_core.charts.figure import plain
from tessel_core.charts.gantt import SHARES_CAPTION, Detail, detail_of, gantt
from tessel_core.errors import InputError
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.scheduling import title_of
from tessel_core.units import counted
from tessel_core.workbench.messages.schedule import verdict

_WIDTH, _SCALE = 1200, 2
"""Of the layout, in which letters are 12 pixels high; a PNG has `_SCALE` times as many pixels."""
_MARGIN, _LINE, _LETTERS = 22, 20, 140
"""Pixels around the title and of one of its lines; letters of a line."""
_INK = "#1b232c"


def why_no_pictures() -> str:
    """Why no picture can be drawn on this machine, in one sentence without its full stop; empty where one can."""
    if importlib.util.find_spec("kaleido") is None:
        return "needs kaleido and a Chromium: pip install 'tessel-explorer[pictures]', and install chromium"
    from choreographer.browsers.chromium import Chromium

    found = Chromium.find_browser(skip_local=False)
    if found and Path(found).is_file():
        return ""
    named = os.environ.get("BROWSER_PATH")
    missing = f"BROWSER_PATH names {named}, which is no file" if named else "there is no Chromium or Chrome"
    return f"{missing}; install chromium, or set BROWSER_PATH to a browser's program"


def picture(schedule: Schedule, report: ScheduleReport, kind: str) -> bytes:
    """Timeline and memory under a title, as "png" or "svg"; takes some seconds, in which a browser starts and ends.

    There must be no objection of `why_no_pictures`.  Raises InputError where the browser that is there does not work.
    """
    import kaleido
    from kaleido.errors import BrowserClosedError, BrowserFailedError

    # The farewell of a browser that closes may come glued to a message, and is then logged as an error.
    logging.getLogger("choreographer").setLevel(logging.CRITICAL)
    figure = titled(schedule, report)
    wanted = {"format": kind, "width": _WIDTH, "height": figure.layout.height, "scale": _SCALE if kind == "png" else 1}
    try:
        # MathJax would be fetched from the internet.
        drawn: bytes = kaleido.calc_fig_sync(figure, opts=wanted, kopts={"mathjax": False})
    except (BrowserClosedError, BrowserFailedError, TimeoutError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"export {kind}", f"the browser did not draw it: {reason}") from None
    return drawn


def titled(schedule: Schedule, report: ScheduleReport) -> go.Figure:
    """The timeline on white ground, with room above for what a reader of the picture alone must know."""
    figure = gantt(schedule)
    lines = _title(schedule, report)
    room = _MARGIN + _LINE * len(lines)
    height = figure.layout.height + room
    figure.update_layout(
        width=_WIDTH,
        height=height,
        margin={"t": figure.layout.margin.t + room, "r": 24},
        legend={"y": 1 - room / height},
        paper_bgcolor="#ffffff",
        font={"color": _INK, "family": "system-ui, sans-serif"},
        title={
            "text": "<br>".join(lines),
            "font": {"size": 15},
            "x": _MARGIN / _WIDTH,
            "xanchor": "left",
            "y": 1 - _MARGIN / height,
            "yanchor": "top",
        },
    )
    return figure


def _title(schedule: Schedule, report: ScheduleReport) -> list[str]:
    """Plan, scheduler and micro-batches; the verdict under it, and how to read shares."""
    plan = schedule.plan
    maker = plain(title_of(report.solver), 30)
    lines = [f"<b>{plain(plan.name, 90)}</b> · {maker} · {counted(schedule.micro_batches, 'micro-batch')}"]
    lines += [plain(line, _LETTERS) for line in wrap(verdict(report, plan), _LETTERS)]
    if detail_of([schedule], (0, schedule.makespan)) is Detail.SHARES:
        lines.append(SHARES_CAPTION)
    return lines
