"""Draw a schedule as PNG or SVG with kaleido and a local Chromium (the optional extra `pictures`)."""

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
"""Width of the picture in pixels, when letters are 12 pixels high. A PNG has `_SCALE` times as many pixels."""
_MARGIN, _LINE, _LETTERS = 22, 20, 140
"""Margin around the title and height of a line, in pixels, and largest number of letters per line."""
_INK = "#1b232c"


def why_no_pictures() -> str:
    """Return why this machine cannot draw pictures, in one sentence without a full stop. Empty if it can."""
    if importlib.util.find_spec("kaleido") is None:
        return "needs kaleido and a Chromium: pip install 'tessel-explorer[pictures]', and install chromium"
    from choreographer.browsers.chromium import Chromium

    found = Chromium.find_browser(skip_local=False)
    if found and Path(found).is_file():
        return ""
    named = os.environ.get("BROWSER_PATH")
    missing = f"BROWSER_PATH names {named}, which is not a file" if named else "there is no Chromium or Chrome"
    return f"{missing}; install chromium, or set BROWSER_PATH to the program of a browser"


def picture(schedule: Schedule, report: ScheduleReport, kind: str) -> bytes:
    """Return the timeline and the memory under a title, as "png" or "svg".

    It takes some seconds, because a browser starts and ends. `why_no_pictures` must return an empty text. Raises
    InputError if the browser does not work.
    """
    import kaleido
    from kaleido.errors import BrowserClosedError, BrowserFailedError

    # When the browser closes, its last message may be joined to another one, and would be logged as an error.
    logging.getLogger("choreographer").setLevel(logging.CRITICAL)
    figure = titled(schedule, report)
    wanted = {"format": kind, "width": _WIDTH, "height": figure.layout.height, "scale": _SCALE if kind == "png" else 1}
    try:
        # MathJax would be downloaded from the internet.
        drawn: bytes = kaleido.calc_fig_sync(figure, opts=wanted, kopts={"mathjax": False})
    except (BrowserClosedError, BrowserFailedError, TimeoutError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"export {kind}", f"the browser could not draw it: {reason}") from None
    return drawn


def titled(schedule: Schedule, report: ScheduleReport) -> go.Figure:
    """Return the timeline on a white background, under a title with the plan, the scheduler and the verdict."""
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
    """Return the lines of the title: plan, scheduler and micro-batches, the verdict, and how to read fractions."""
    plan = schedule.plan
    maker = plain(title_of(report.solver), 30)
    lines = [f"<b>{plain(plan.name, 90)}</b> · {maker} · {counted(schedule.micro_batches, 'micro-batch')}"]
    lines += [plain(line, _LETTERS) for line in wrap(verdict(report, plan), _LETTERS)]
    if detail_of([schedule], (0, schedule.makespan)) is Detail.SHARES:
        lines.append(SHARES_CAPTION)
    return lines
