"""Tessel Explorer's core library: placements, schedules and their costs, without a user interface.

Five functions cover the common tasks.  `Strategy` describes how a network is spread over devices:

>>> import tessel_core as tessel
>>> graph, mesh = tessel.load("gpt2-small-inference"), tessel.load("h200-4")
>>> placed = tessel.place(graph, mesh)
>>> placed.status.label
'proved optimal'
>>> report = tessel.schedule(placed, micro_batches=8, scheduler="gpipe")
>>> report.solution.micro_batches
8
>>> step = tessel.simulate("mlp", mesh, tessel.Strategy(pipeline=4, micro_batches=8))
>>> step.shortage  # empty: the step fits into memory
''
>>> tessel.export(report, "schedule.html")  # doctest: +SKIP

Notebooks draw plans, schedules, placements, graphs and reports.  `tessel_core.api` documents the functions.
Submodules are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tessel_core import shown
from tessel_core.version import __version__

if TYPE_CHECKING:
    from tessel_core.api import Strategy, export, load, place, schedule, simulate

__all__ = ["Strategy", "__version__", "export", "load", "place", "schedule", "simulate"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("tessel_core.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _draw(noun: object) -> str:
    html: str = import_module("tessel_core.exports.notebook").notebook_html(noun)
    return html


shown.draw = _draw
