"""Write a schedule as one HTML page that needs no other file: the problem, the result, bounds, pictures and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from html import escape
from importlib import metadata, resources
from platform import python_version
from string import Template

import plotly.graph_objects as go

from tessel_core.charts.device_bars import cause_chart, idle_chart
from tessel_core.charts.gantt import EVERYTHING, SHARES_CAPTION, Detail, TimeAxis, detail_of, gantt
from tessel_core.charts.palette import FAINT
from tessel_core.charts.progress import gap_curve
from tessel_core.inspection import CAUSES, IdleSplit, idle_causes
from tessel_core.model import MemoryProfile, MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.options import options_of
from tessel_core.scheduling import SCHEDULERS, title_of
from tessel_core.units import counted, show_gap, show_memory, show_time
from tessel_core.version import __version__
from tessel_core.workbench.messages.idle import BY_CAUSE, meanings, percent
from tessel_core.workbench.messages.schedule import key_numbers, verdict

_LIBRARIES = ("ortools", "numpy", "plotly")
_BAR = {"showSendToCloud": False, "displaylogo": False, "responsive": True}
_STILL = {"displayModeBar": False, "responsive": True}
_AXIS = {"automargin": True, "gridcolor": FAINT, "zerolinecolor": FAINT}
_TEMPLATE = go.layout.Template(layout={"font": {"family": "system-ui, sans-serif"}, "xaxis": _AXIS, "yaxis": _AXIS})
"""Template whose grid lines are visible on light and dark backgrounds. Plotly's own grid lines are white."""


def html_report(schedule: Schedule, report: ScheduleReport) -> str:
    """Return the page. About 5 MB of it is the plotting library. The same report always gives the same page."""
    plan = schedule.plan
    parts = (
        _opening(schedule, report),
        _timeline(schedule),
        _where_time_goes(schedule, report),
        section("Devices", _devices(schedule), note(BY_CAUSE)),
        section("Question and bounds", columns(_question(schedule, report), _proofs(report, plan))),
        section("The plan of one micro-batch", columns(_blocks(plan), _dependencies(plan))),
        _versions(),
    )
    page = resources.files("tessel_core.exports").joinpath("report.html").read_text(encoding="utf-8")
    return Template(page).substitute(
        generator=f"Tessel Explorer {__version__}",
        title=escape(f"{plan.name}, {report.solver}"),
        body="\n".join(parts),
    )


def _opening(schedule: Schedule, report: ScheduleReport) -> Html:
    """Return the title, the verdict and the key figures."""
    plan = schedule.plan
    amounts = (schedule.micro_batches, "micro-batch"), (len(plan.devices), "device"), (len(plan.blocks), "block")
    scale = " · ".join(counted(*each) for each in amounts)
    proved = report.status is Status.PROVED_OPTIMAL
    numbers = "".join(
        f'<div title="{escape(number.help)}"><dt>{escape(number.label)}</dt><dd class="value">{escape(number.value)}'
        f'</dd><dd class="beside">{escape(number.beside)}</dd></div>'
        for number in key_numbers(report)
    )
    return Html(
        f"<header><p>Tessel Explorer · schedule</p><h1>{escape(plan.name)}</h1>"
        f"<p>{escape(title_of(report.solver))} · {scale}</p></header>"
        f'<p class="verdict{" proved" if proved else ""}">{escape(verdict(report, plan))}</p>'
        f'<dl class="numbers">{numbers}</dl>'
    )


def _timeline(schedule: Schedule) -> Html:
    """Return the timeline and the memory on one time axis. If the schedule is long, add a close-up of each phase."""
    caption = "One row per device. Each block shows its micro-batch number. Memory per device is below. Drag to zoom."
    windows = TimeAxis.of([schedule]).windows
    whole = _figure(gantt(schedule), "timeline", first=True)
    if detail_of([schedule], windows[EVERYTHING]) is not Detail.SHARES:
        return section("Timeline and memory", whole, note(caption))
    close = [
        titled(name, _figure(gantt(schedule, window=window), f"timeline-{name.lower()}"))
        for name, window in windows.items()
        if name != EVERYTHING
    ]
    return section("Timeline and memory", whole, note(SHARES_CAPTION), *close, note(caption))


def _where_time_goes(schedule: Schedule, report: ScheduleReport) -> Html:
    """Return charts of idle time by remedy and by cause, and of the progress of the search."""
    whole, steady = IdleSplit.of_report(report)
    splits = [(name, each) for name, each in (("whole schedule", whole), ("steady state", steady)) if each is not None]
    idle = (
        titled("Idle time by remedy", _figure(idle_chart(splits), "idle"), note(meanings())),
        titled("Idle time by cause", _figure(cause_chart(idle_causes(schedule), schedule.plan), "causes")),
    )
    known = [news for news in report.history if news.objective is not None or news.bound is not None]
    if not known:
        return section("Where the time goes", columns(*idle))
    curve = _figure(gap_curve(known, schedule.plan.time_unit, report.wall_s), "history")
    return section("Where the time goes", columns(*idle), titled("Search progress", curve))


def _figure(figure: go.Figure, name: str, *, first: bool = False) -> Html:
    """Return the HTML of a figure. The first figure of a page includes the plotting library."""
    config = _BAR if first else _STILL
    figure.update_layout(template=_TEMPLATE)
    drawn = figure.to_html(full_html=False, include_plotlyjs=first, div_id=name, config=config)
    return Html(f"<figure>{drawn}</figure>")


def _devices(schedule: Schedule) -> Html:
    """Return a table with one row per device: its work, its idle time by cause, and its memory."""
    plan, causes, peaks = schedule.plan, idle_causes(schedule), MemoryProfile.of(schedule).peaks
    seen = [cause for i, cause in enumerate(CAUSES) if causes.table[:, i].any()]
    rows = []
    for d, device in enumerate(plan.devices):
        ticks = causes.ticks(d)
        idle = sum(ticks.values())
        spans = (schedule.makespan - idle, *(ticks[cause] for cause in seen))
        row = [device.name, *(show_time(each, plan.time_unit) for each in spans)]
        row.append(percent(Fraction(idle, max(1, schedule.makespan))))
        row += [show_memory(each, plan.memory_unit) for each in (device.static_memory, peaks[d])]
        rows.append([*row, _capacity(device.memory_capacity, peaks[d], plan.memory_unit)])
    names = ("device", "work", *(f"idle: {cause}" for cause in seen), "idle", "static", "peak", "capacity")
    return table(names, rows, numbers=range(1, len(names)))


def _capacity(capacity: int | None, peak: int, unit: str) -> str:
    if capacity is None:
        return "unlimited"
    return filled(show_memory(capacity, unit), peak / capacity if capacity else 0.0)


def _question(schedule: Schedule, report: ScheduleReport) -> Html:
    """Return all inputs of the solver, so that the run can be repeated."""
    known = SCHEDULERS.get(report.solver)
    asked = [
        ("Scheduler", f"{known.title} ({known.name})" if known else report.solver),
        ("Source", known.source if known else "unknown, because the schedule comes from another program"),
        ("Micro-batches", f"{schedule.micro_batches:,}"),
    ]
    if report.config is None:
        asked.append(("Options", "unknown, because the schedule was read from a file (its rules were checked again)"))
    else:
        options = options_of(report.config).values()
        asked += [(shown.label, f"{value} {shown.unit}".strip()) for shown, value in options]
    return titled("The question", table((), asked))


def _proofs(report: ScheduleReport, plan: MicroBatchPlan) -> Html:
    """Return a table of the objectives, each with its value and its proved bound."""
    found = (
        ("period per micro-batch", report.period_per_micro_batch, report.period_bound),
        ("makespan", report.makespan, Fraction(report.makespan_bound)),
    )
    rows = [
        (
            name,
            "none" if value is None else show_time(float(value), plan.time_unit),
            show_time(float(bound), plan.time_unit),
            "" if value is None else "0" if value == bound else show_gap(float(1 - bound / value)),
        )
        for name, value, bound in found
    ]
    bounds = table(("objective", "found", "proved bound", "gap"), rows, numbers=(1, 2, 3))
    caption = (
        "No schedule of this plan, with this memory and number of micro-batches, is below a bound. Gap 0 means optimal."
    )
    return titled("The bounds", bounds, note(caption))


def _blocks(plan: MicroBatchPlan) -> Html:
    rows = [
        (
            block.name,
            str(block.kind),
            ", ".join(plan.devices[d].name for d in block.devices),
            show_time(block.duration, plan.time_unit),
            show_memory(block.memory, plan.memory_unit),
        )
        for block in plan.blocks
    ]
    return titled("Blocks", table(("block", "kind", "devices", "duration", "memory"), rows, numbers=(3, 4)))


def _dependencies(plan: MicroBatchPlan) -> Html:
    rows = [
        (each.predecessor, each.successor, show_time(each.lag, plan.time_unit) if each.lag else "0")
        for each in plan.dependencies
    ]
    return titled("Dependencies", table(("from", "to", "lag"), rows, numbers=(2,)))


def _versions() -> Html:
    used = [("Tessel Explorer", __version__), ("Python", python_version())]
    used += [(name, metadata.version(name)) for name in _LIBRARIES]
    return Html(f"<footer>{note(' · '.join(f'{name} {version}' for name, version in used))}</footer>")


class Html(str):
    """Text that is HTML already, written by this package and not read from a file."""

    __slots__ = ()


def section(title: str, *parts: Html) -> Html:
    """Return a section with a heading."""
    return Html(f"<section><h2>{escape(title)}</h2>\n{''.join(parts)}</section>")


def titled(title: str, *parts: Html) -> Html:
    """Return parts under a heading of the second level."""
    return Html(f"<h3>{escape(title)}</h3>{''.join(parts)}")


def columns(*parts: Html) -> Html:
    """Return parts that are placed side by side if there is room."""
    return Html(f'<div class="columns">{"".join(f"<div>{part}</div>" for part in parts)}</div>')


def note(text: str) -> Html:
    """Return a remark in small letters."""
    return Html(f'<p class="note">{escape(text)}</p>')


def table(names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> Html:
    """Return a table.

    `names` are the headings of the columns, or empty. Columns in `numbers` are aligned to the right.
    """
    head = f"<thead>{_row('th', names, numbers)}</thead>" if names else ""
    body = "\n".join(_row("td", row, numbers) for row in rows)
    return Html(f'<div class="scroll"><table>{head}<tbody>\n{body}\n</tbody></table></div>')


def filled(text: str, share: float) -> Html:
    """Return `text` with a small bar, of which the fraction `share` is filled."""
    return Html(f'{escape(text)}<span class="fill"><i style="width:{share:.1%}"></i></span>')


def _row(tag: str, cells: Sequence[str], numbers: Collection[int]) -> str:
    kinds = [' class="number"' if i in numbers else "" for i in range(len(cells))]
    texts = [cell if isinstance(cell, Html) else escape(cell) for cell in cells]
    return f"<tr>{''.join(f'<{tag}{kind}>{text}</{tag}>' for kind, text in zip(kinds, texts, strict=True))}</tr>"
