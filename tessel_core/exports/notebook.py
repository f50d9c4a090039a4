"""Display plans, schedules, placements, graphs and reports in notebooks: a sentence, key figures and a timeline.

The timeline is in its own frame, which needs no network and has no access to the notebook.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from functools import singledispatch
from html import escape

from tessel_core.charts.graph.groups import marked, overview
from tessel_core.charts.placement_lanes import placement_data
from tessel_core.charts.thumbnail import graph_thumbnail
from tessel_core.charts.timeline import Look, timeline_data, timeline_height
from tessel_core.charts.timeline_script import SMALLER, text_of, timeline_function
from tessel_core.charts.trace_timeline import trace_data
from tessel_core.editing.placement import Movable
from tessel_core.model import MicroBatchPlan, OperatorGraph, Placement, PlacementReport, Schedule, ScheduleReport
from tessel_core.scheduling import one_micro_batch, title_of
from tessel_core.simulation import Trace
from tessel_core.strategies.strategy import Simulated
from tessel_core.units import counted, show_flops, show_memory, show_time
from tessel_core.workbench.messages.schedule import key_numbers, verdict

_LOOK = Look(quiet=True)
_MARGIN = 16
"""Margin around the timeline inside its frame, in pixels."""
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data: blob:">
<style>:root {{ color-scheme: light; --st-font: system-ui, sans-serif; --st-text-color: #1b232c;
  --st-background-color: #ffffff; --st-secondary-background-color: #f3f5f8; --st-primary-color: #00639c; }}
html, body {{ height: 100%; margin: 0; background: #ffffff; }} body {{ padding: {margin}px; box-sizing: border-box; }}
{style}</style></head><body><div class="timeline"><p class="waiting">The timeline needs JavaScript.</p></div>
<script>
const begin = {script};
const data = Uint8Array.from(atob({data}), (letter) => letter.charCodeAt(0));
begin({{ data, parentElement: document.body, setStateValue() {{}}, setTriggerValue() {{}} }});
</script></body></html>"""


@singledispatch
def notebook_html(noun: object) -> str:
    """Return the object as HTML for the output of a notebook cell.

    Raises TypeError unless it is a plan, schedule, placement, graph, trace or report.
    """
    raise TypeError(f"cannot draw {type(noun).__name__}")


@notebook_html.register
def _schedule(schedule: Schedule) -> str:
    facts = [
        counted(schedule.micro_batches, "micro-batch"),
        f"makespan {show_time(schedule.makespan, schedule.plan.time_unit)}",
    ]
    return _shown(schedule.plan.name, facts, _timeline(schedule))


@notebook_html.register
def _plan(plan: MicroBatchPlan) -> str:
    facts = [
        counted(len(plan.blocks), "block"),
        counted(len(plan.devices), "device"),
        f"busiest device {show_time(plan.busiest_work, plan.time_unit)} per micro-batch",
    ]
    return _shown(plan.name, facts, _timeline(one_micro_batch(plan)))


@notebook_html.register
def _schedule_report(report: ScheduleReport) -> str:
    drawn = report.drawable
    if drawn is None:
        return _shown(title_of(report.solver), [report.status.label, report.reason], "")
    numbers = [f"{number.label} {number.value}" for number in key_numbers(report)]
    title = f"{drawn.plan.name}, {title_of(report.solver)}"
    return _shown(title, [verdict(report, drawn.plan)], f"{_facts(numbers)}{_timeline(drawn)}")


@notebook_html.register
def _placement(placement: Placement) -> str:
    graph = placement.graph
    facts = [counted(len(graph.operators), "operator"), counted(len(placement.devices), "device")]
    return _shown(graph.name, facts, _lanes(placement))


@notebook_html.register
def _placement_report(report: PlacementReport) -> str:
    placement = report.solution or report.relaxed_solution
    facts = [report.status.label, report.reason]
    if placement is None:
        return _shown(report.solver, facts, "")
    unit = placement.graph.time_unit
    if report.objective is not None:
        facts.append(f"{report.objective_name} {show_time(float(report.objective), unit)}")
    if report.bound is not None:
        facts.append(f"bound {show_time(float(report.bound), unit)}")
    return _shown(f"{placement.graph.name}, {report.solver}", facts, _lanes(placement))


@notebook_html.register
def _graph(graph: OperatorGraph) -> str:
    facts = [counted(len(graph.operators), "operator"), counted(len(graph.edges), "edge")]
    flops, weights = (
        sum(amount or 0 for amount in amounts)
        for amounts in (
            (operator.flops for operator in graph.operators),
            (operator.weight_bytes for operator in graph.operators),
        )
    )
    facts += [show_flops(flops)] if flops else []
    facts += [f"weights {show_memory(weights, 'B')}"] if weights else []
    picture = f'<div style="width:480px;max-width:100%">{graph_thumbnail(graph)}</div>'
    note = "Cost from input to output: forward above the line, backward below it."
    return _shown(graph.name, facts, f"{picture}{_facts([note])}")


@notebook_html.register
def _trace(trace: Trace, *facts: str) -> str:
    facts = (show_time(trace.latency, "s"), counted(trace.events, "event"), *facts)
    return _shown(trace.program.name, facts, _frame(trace_data(trace, look=_LOOK)) if trace.devices else "")


@notebook_html.register
def _simulated(found: Simulated) -> str:
    return _trace(found.trace, f"does not fit: {found.shortage}" if found.shortage else "")


def _timeline(schedule: Schedule) -> str:
    return _frame(timeline_data([("", schedule)], look=_LOOK))


def _lanes(placement: Placement) -> str:
    marks = marked(placement.graph, overview(placement.graph), placement)
    return _frame(placement_data(Movable(placement), marks, look=_LOOK, fixed=True))


def _frame(data: bytes) -> str:
    """Return an HTML frame with the timeline of the app, its script and its data."""
    encoded = json.dumps(b64encode(data).decode())
    script = timeline_function().replace("</", "<\\/")
    page = _PAGE.format(margin=_MARGIN, style=text_of("timeline.css") + SMALLER, script=script, data=encoded)
    height = timeline_height(data, tools=False) + 2 * _MARGIN
    return (
        f'<iframe title="Timeline" sandbox="allow-scripts" srcdoc="{escape(page)}" '
        f'style="width:100%;height:{height}px;border:0"></iframe>'
    )


def _shown(title: str, facts: Iterable[str], picture: str) -> str:
    return f"<div><strong>{escape(title)}</strong>{_facts(facts)}{picture}</div>"


def _facts(facts: Iterable[str]) -> str:
    return f'<div style="opacity:0.75">{escape(" · ".join(filter(None, facts)))}</div>'
