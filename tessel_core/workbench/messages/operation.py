"""Text about the selected operation of a simulated program."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tessel_core.ir.text import op_text
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace
from tessel_core.simulation.costs import costs_on, formula
from tessel_core.simulation.waiting import Neighbour, came_after, waited_for
from tessel_core.workbench.messages.timeline import PLACE, About, Line, Part, Run

_MAX_NAMED, _MAX_DRAWN = 4, 500
"""Number of operations of a chain of waits that are named, and number that are drawn."""
_MAX_FOLLOWED = 100_000
"""Number of operations of the largest program in which the operations after the selected one are shown.

In a larger program this is too slow.
"""
_MAX_TEXT = 300
"""Largest number of characters of an operation's text."""


def operation_at(place: str) -> int | None:
    """Return the operation at a place in the format of `PLACE`: 3.1 is operation 3 on the program's second device."""
    match = re.fullmatch(PLACE, place)
    return None if match is None or match["block"] is None else int(match["block"])


def about_operation(trace: Trace, place: str, priced: DeviceMesh | None = None) -> About:
    """Explain the duration of an operation, and the chain of operations that it waited for, back to the start.

    Empty if the place is not an operation. `priced` is the mesh whose cost model gives the times.
    """
    number = operation_at(place)
    if number is None or number >= len(trace.program.ops):
        return About()
    op, costs = trace.program.ops[number], None if priced is None else costs_on(priced, trace.program)
    chain = _chain(trace, number)
    text = op_text(trace.program, op)
    lines: tuple[Line, ...] = (
        ("Operation", (text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…",)),
        ("Why so long", (formula(trace.program, op, costs),)),
        ("Why not earlier", _why(trace, number, chain)),
    )
    runs = [_run(trace, each) for each in (number, *(each.op for each in chain))]
    few = len(trace.program.ops) <= _MAX_FOLLOWED
    after = [_run(trace, each.op) for each in came_after(trace, number)] if few else []
    return About(lines, _drawn(runs), _drawn(after))


def _drawn(runs: Sequence[Part]) -> tuple[Run, ...]:
    """Return the runs with a positive duration. Runs of zero duration are not drawn."""
    return tuple(run for run in runs if not isinstance(run, str))


def place_of(trace: Trace, number: int) -> str:
    """Return the place of an operation on its first device, which `operation_at` accepts.

    Empty if the operation takes no time.
    """
    run = _run(trace, number)
    return "" if isinstance(run, str) else f"{run[0]}.{run[1]}"


def _chain(trace: Trace, number: int) -> list[Neighbour]:
    """Return the chain of delays.

    It has the operation that delayed the given one, the operation that delayed that one, and so on.
    """
    chain = list[Neighbour]()
    while len(chain) < _MAX_DRAWN:
        before = next(iter(waited_for(trace, number)), None)
        if before is None or before.gap > 0 or before.op >= number:
            break
        chain.append(before)
        number = before.op
    return chain


def _why(trace: Trace, number: int, chain: list[Neighbour]) -> tuple[Part, ...]:
    parts = list[Part]()
    for each in chain[:_MAX_NAMED]:
        value = each.why.startswith("%")
        text = f"takes {each.why} from " if value else f"comes {each.why} after "
        parts += [f"{', which' if parts else 'It'} {text}", _run(trace, each.op)]
    rest = len(chain) - _MAX_NAMED
    last = chain[-1].op if chain else number
    if rest > 0:
        parts.append(f", and so on through {rest:,} more" if len(chain) < _MAX_DRAWN else ", and so on")
    if len(chain) == _MAX_DRAWN:
        return (*parts, ".")
    begins = trace.start_of(last) <= 0
    end = "starts at time 0" if begins else "waits for nothing that ends just then"
    return (*parts, f"{', the last of which' if rest > 0 else ', which' if chain else 'It'} {end}.")


def _run(trace: Trace, number: int) -> Part:
    """Return the run of an operation on the first device that it keeps busy. Return its kind if it takes no time."""
    for event in trace.events_of(number):
        if trace.seconds[event] > 0 and int(trace.device[event]) in trace.devices:
            return number, trace.devices.index(int(trace.device[event]))
    return trace.program.ops[number].kind
