"""Describe the difference of two schedules, in sentences and as a table of both critical paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tessel_core.inspection import Difference, Element, Turned
from tessel_core.model import MemoryProfile, MicroBatchPlan, Schedule
from tessel_core.units import counted, many, show_time, time_scale
from tessel_core.workbench.messages.comparison import Column

_MAX_NAMED = 3
"""Number of blocks, or pairs of blocks, that a sentence names. Further ones are only counted."""

_ELEMENTS = {
    Element.DATA: "work whose output the next run needs",
    Element.MEMORY: "work whose memory the next run needs",
    Element.DEVICE: "work before the next run on its device",
    Element.PARTNERS: "work before the next run on another device of its group",
    Element.LAST: "work of the last run",
    Element.COMMUNICATION: "waiting for communication",
    Element.LATE: "waiting although it could start",
}
ALONG_THE_PATHS = (
    "The critical path leads from the run that ends last to the run that it waits for, and so on, back to time 0. If a "
    "run waits for several reasons, the path follows the first of data, communication, memory, device and partners."
)


def difference_sentences(found: Difference, before: str, after: str) -> tuple[str, ...]:
    """Return sentences on how the schedule named `after` differs from the one named `before`, largest effect first."""
    sentences = (*_misfits((found.before, before), (found.after, after)), *_makespans(found, before, after))
    if not found.shift.size:
        return (*sentences, "They have no run in common, so orders and start times cannot be compared.")
    return (*sentences, *_turned(found), *_shifts(found), *_blocks(found, before, after))


def _misfits(*named: tuple[Schedule, str]) -> Iterator[str]:
    """Yield one sentence for each of the two schedules that exceeds the memory of a device."""
    for schedule, name in named:
        if over := [d for d, excess in enumerate(MemoryProfile.of(schedule).excess) if excess]:
            on = _listed([schedule.plan.devices[d].name for d in over])
            yield f"{name} does not fit in the memory of {on}. Its times assume that there is enough."


def difference_columns(found: Difference) -> tuple[Column, ...]:
    """Return a table of the time that both critical paths spend on each kind of element, such as work or waits.

    Rows are in order of difference, largest first. The last row is the sum.
    """
    before, after = found.paths
    longest = max(found.before.makespan, found.after.makespan)
    divisor, unit = time_scale(longest, found.after.plan.time_unit)
    shown = [each for each in _by_effect(found) if before.runs[each] or after.runs[each]]
    names = (*(_capital(_ELEMENTS[each]) for each in shown), "Makespan")

    def times(title: str, ticks: Sequence[int], text: str, spec: str = ".4g") -> Column:
        values = tuple(each / divisor for each in (*ticks, sum(ticks)))
        return Column(f"{title} ({many(unit)})", text, values, spec)

    def counts(title: str, amounts: Sequence[int]) -> Column:
        return Column(title, "Number of runs or waits on the path.", (*map(float, amounts), float(sum(amounts))), ".0f")

    return (
        Column("Along the critical path", ALONG_THE_PATHS, names),
        times("Before", [before.ticks[each] for each in shown], "On the critical path of the first schedule."),
        times("After", [after.ticks[each] for each in shown], "On the critical path of the second schedule."),
        times("Difference", [found.elements[each] for each in shown], "After minus before.", "+.4g"),
        counts("Number before", [before.runs[each] for each in shown]),
        counts("Number after", [after.runs[each] for each in shown]),
    )


def _by_effect(found: Difference) -> list[Element]:
    return sorted(Element, key=lambda each: -abs(found.elements[each]))


def _makespans(found: Difference, before: str, after: str) -> Iterator[str]:
    unit = found.after.plan.time_unit
    ends = [show_time(each.makespan, unit) for each in (found.before, found.after)]
    if found.makespan:
        yield f"{after} ends {_moved_by(found.makespan, unit)} than {before}: {ends[0]} → {ends[1]}."
    else:
        yield f"{after} and {before} end at the same time: {ends[1]}."
    effects = [
        f"{show_time(abs(ticks), unit)} {'more' if ticks > 0 else 'less'} {_ELEMENTS[each]}"
        for each in _by_effect(found)
        if (ticks := found.elements[each])
    ]
    yield f"The critical path of {after} has {', '.join(effects) or 'the same parts'}."


def _turned(found: Difference) -> Iterator[str]:
    if not found.turned:
        yield "Every device runs its blocks in the same order."
        return
    pairs, critical = sum(each.pairs for each in found.turned), sum(each.critical for each in found.turned)
    on = counted(len({each.device for each in found.turned}), "device")
    named, rest = [_pair(found.after, each) for each in found.turned[:_MAX_NAMED]], len(found.turned) - _MAX_NAMED
    more = f"; {counted(rest, 'more pair')} of blocks" if rest > 0 else ""
    yield (
        f"{counted(pairs, 'pair')} of neighbouring runs on {on} changed order, {critical:,} on the critical path: "
        f"{'; '.join(named)}{more}."
    )


def _pair(after: Schedule, turned: Turned) -> str:
    first, second = (_run(after, row) for row in turned.example)
    more = f" (and {turned.pairs - 1:,} more)" if turned.pairs > 1 else ""
    return f"on {after.plan.devices[turned.device].name}, {first} now runs before {second}{more}"


def _shifts(found: Difference) -> Iterator[str]:
    shift, unit = found.shift, found.after.plan.time_unit
    if not shift.any():
        yield "Every run starts at the same time."
        return
    most = int(np.abs(shift).argmax())
    run, by = _run(found.after, int(found.rows[1][most])), int(shift[most])
    earlier, later = int((shift < 0).sum()), int((shift > 0).sum())
    alone = [len(each.start) - len(shift) for each in (found.before, found.after)]
    both = f"the {counted(len(shift), 'run')} in both schedules" if any(alone) else counted(len(shift), "run")
    yield (
        f"{run} moves the furthest: it starts {_moved_by(by, unit)}. Of {both}, {earlier:,} start earlier and "
        f"{later:,} later."
    )


def _moved_by(ticks: int, unit: str) -> str:
    return f"{show_time(abs(ticks), unit)} {'later' if ticks > 0 else 'earlier'}"


def _blocks(found: Difference, before: str, after: str) -> Iterator[str]:
    one, other = found.before.plan, found.after.plan
    if found.moved:
        places = [f"{other.blocks[b].name} from {_devices(one, a)} to {_devices(other, b)}" for a, b in found.moved]
        yield f"Blocks on other devices: {_listed(places)}."
    for plan, blocks, title in ((one, found.only_before, before), (other, found.only_after, after)):
        if blocks:
            yield f"Blocks only in {title}: {_listed([plan.blocks[b].name for b in blocks])}."


def _devices(plan: MicroBatchPlan, block: int) -> str:
    return "+".join(plan.devices[d].name for d in plan.blocks[block].devices)


def _listed(texts: Sequence[str]) -> str:
    rest = len(texts) - _MAX_NAMED
    return f"{', '.join(texts[:_MAX_NAMED])}{f' and {rest} more' if rest > 0 else ''}"


def _run(schedule: Schedule, row: int) -> str:
    return f"{schedule.plan.blocks[schedule.block[row]].name} of {schedule.micro_batch[row]}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
