"""What a simulation answers about an operation that somebody points at."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tessel_core.ir.text import op_text
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace
from tessel_core.simulation.costs import costs_on, formula
from tessel_core.simulation.waiting import Neighbour, came_after, waited_for
from tessel_core.workbench.messages.timeline import PLACE, About, Line, Part, Run

_NAMED, _DRAWN = 4, 500
"""How many operations of a chain are named, and how many are drawn."""
_FOLLOWED = 100_000
"""Operations of a program up to which what comes after one of them is found at once."""
_LONGEST = 300
"""Letters of an operation's text."""


def operation_at(place: str) -> int | None:
    """The operation of a place, written as in `PLACE`: 3.1 is operation 3 on the second of the program's devices."""
    match = re.fullmatch(PLACE, place)
    return None if match is None or match["block"] is None else int(match["block"])


def about_operation(trace: Trace, place: str, priced: DeviceMesh | None = None) -> About:
    """Why an operation takes so long, and what it waited for, back to the beginning; nothing where there is none.

    `priced` is the mesh by whose costs its time comes about.
    """
    number = operation_at(place)
    if number is None or number >= len(trace.program.ops):
        return About()
    op, costs = trace.program.ops[number], None if priced is None else costs_on(priced, trace.program)
    chain = _chain(trace, number)
    text = op_text(trace.program, op)
    lines: tuple[Line, ...] = (
        ("Operation", (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…",)),
        ("Why so long", (formula(trace.program, op, costs),)),
        ("Why not earlier", _why(trace, number, chain)),
    )
    runs = [_run(trace, each) for each in (number, *(each.op for each in chain))]
    few = len(trace.program.ops) <= _FOLLOWED
    after = [_run(trace, each.op) for each in came_after(trace, number)] if few else []
    return About(lines, _drawn(runs), _drawn(after))


def _drawn(runs: Sequence[Part]) -> tuple[Run, ...]:
    """Those that take time, so that there is something to draw."""
    return tuple(run for run in runs if not isinstance(run, str))


def place_of(trace: Trace, number: int) -> str:
    """The place of an operation on its first device, for `operation_at`; empty where it takes no time."""
    run = _run(trace, number)
    return "" if isinstance(run, str) else f"{run[0]}.{run[1]}"


def _chain(trace: Trace, number: int) -> list[Neighbour]:
    """What held the operation up, what held that up, and so on."""
    chain = list[Neighbour]()
    while len(chain) < _DRAWN:
        before = next(iter(waited_for(trace, number)), None)
        if before is None or before.gap > 0 or before.op >= number:
            break
        chain.append(before)
        number = before.op
    return chain


def _why(trace: Trace, number: int, chain: list[Neighbour]) -> tuple[Part, ...]:
    parts = list[Part]()
    for each in chain[:_NAMED]:
        value = each.why.startswith("%")
        text = f"takes {each.why} from " if value else f"comes {each.why} after "
        parts += [f"{', which' if parts else 'It'} {text}", _run(trace, each.op)]
    rest = len(chain) - _NAMED
    last = chain[-1].op if chain else number
    if rest > 0:
        parts.append(f", and so on through {rest:,} more" if len(chain) < _DRAWN else ", and so on")
    if len(chain) == _DRAWN:
        return (*parts, ".")
    begins = trace.start_of(last) <= 0
    end = "starts at time 0" if begins else "waits for nothing that ends just then"
    return (*parts, f"{', the last of which' if rest > 0 else ', which' if chain else 'It'} {end}.")


def _run(trace: Trace, number: int) -> Part:
    """The operation on the first device that it keeps busy; by its kind where it takes no time, so is not drawn."""
    for event in trace.events_of(number):
        if trace.seconds[event] > 0 and int(trace.device[event]) in trace.devices:
            return number, trace.devices.index(int(trace.device[event]))
    return trace.program.ops[number].kind
