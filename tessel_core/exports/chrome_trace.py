"""Write a schedule in the Trace Event Format, for Perfetto (ui.perfetto.dev) and chrome://tracing.

Each device becomes a process of the trace. Processes are numbered from 1, because Perfetto reserves 0 for the idle task
of Linux. Viewers read events in order and attach an arrow to the slice that is open at the arrow's time. So the file
lists runs before arrows. An arrow starts one nanosecond before its run ends, while the run's slice is still open.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import numpy as np

from tessel_core.model import Block, BlockKind, MemoryProfile, MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.model.schedule import IntColumn
from tessel_core.units import TICKS_PER_SECOND, many
from tessel_core.version import __version__
from tessel_core.workbench.messages.schedule import verdict

COLOURS = {
    BlockKind.FORWARD: "thread_state_runnable",
    BlockKind.BACKWARD: "thread_state_iowait",
    BlockKind.WEIGHT: "thread_state_running",
    BlockKind.OTHER: "thread_state_uninterruptible",
}
"""Names of colours in chrome://tracing. They are blue, orange, green and mauve, as in our own pictures."""

MAX_TRACE_NS = 2**63 - 1


def _ns_per_tick(plan: MicroBatchPlan) -> int:
    """Return the number of nanoseconds per tick. If a tick has no real duration, it is drawn as one microsecond."""
    return round(1e9 / TICKS_PER_SECOND.get(plan.time_unit, 1e6))


def microseconds(ns: IntColumn) -> list[str]:
    """Return times in nanoseconds as JSON numbers in microseconds, which is the unit of the format.

    Nothing is rounded.
    """
    whole, rest = np.divmod(ns, 1000)
    pairs = zip(whole.tolist(), rest.tolist(), strict=True)
    return [f"{us}.{ns:03d}" if ns else str(us) for us, ns in pairs]


def too_long_for_a_trace(schedule: Schedule) -> str:
    """Return why the times of the schedule do not fit into the format, in one sentence. Empty if they fit."""
    if schedule.makespan * _ns_per_tick(schedule.plan) <= MAX_TRACE_NS:
        return ""
    return "the schedule lasts more than 292 years, the longest time that trace viewers can count in nanoseconds"


def chrome_trace(schedule: Schedule, report: ScheduleReport) -> bytes:
    """Return the trace: one slice per run and device, one memory counter per device, and one arrow per transfer."""
    plan, profile, tick = schedule.plan, MemoryProfile.of(schedule), _ns_per_tick(schedule.plan)
    parts = _slices(schedule, profile, tick), _counters(profile, tick), _arrows(schedule, tick)
    return trace_file(_about(schedule, report), _names(plan), *parts)


def trace_file(about: dict[str, object], names: Iterator[str], *others: Iterator[str]) -> bytes:
    """Return the trace file with these events. The names of processes and threads come first.

    Events are written one by one, so only the file itself is in memory.
    """
    file = io.BytesIO()
    text = io.TextIOWrapper(file, encoding="ascii")
    text.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n')
    text.write(",\n".join(names))
    for part in others:
        text.writelines(f",\n{event}" for event in part)
    text.write("\n]}\n")
    text.detach()
    return file.getvalue()


def _about(schedule: Schedule, report: ScheduleReport) -> dict[str, object]:
    unit = schedule.plan.time_unit
    return {
        "plan": schedule.plan.name,
        "scheduler": report.solver,
        "micro_batches": schedule.micro_batches,
        "verdict": verdict(report, schedule.plan),
        "time": "real" if unit in TICKS_PER_SECOND else f"1 {unit or 'tick'} is drawn as 1 microsecond",
        "made_by": f"Tessel Explorer {__version__}",
    }


def _names(plan: MicroBatchPlan) -> Iterator[str]:
    """Yield the names of the processes and of their single threads, in the order of the plan."""
    for d, device in enumerate(plan.devices):
        yield from track_names({"pid": d + 1, "tid": d + 1}, "process", device.name, d)
        yield from track_names({"pid": d + 1, "tid": d + 1}, "thread", "runs", d)


def track_names(track: dict[str, int], what: str, name: str, place: int) -> Iterator[str]:
    """Yield the events that set the name and the position of a process or thread."""
    for key, arguments in ((f"{what}_name", {"name": name}), (f"{what}_sort_index", {"sort_index": place})):
        yield json.dumps({"ph": "M", **track, "name": key, "args": arguments})


def _slices(schedule: Schedule, profile: MemoryProfile, tick: int) -> Iterator[str]:
    """Yield one slice per run and device."""
    starts, durations = microseconds(schedule.start * tick), microseconds(schedule.duration * tick)
    blocks, micro_batches = schedule.block.tolist(), schedule.micro_batch.tolist()
    phases = schedule.phase if schedule.repetend else ("nothing repeats",) * len(blocks)
    heads, tails = zip(*(_fixed_parts(block) for block in schedule.plan.blocks), strict=True)
    for d in range(len(schedule.plan.devices)):
        head = f'{{"ph":"X",{_track_text(d)}'
        held = profile.after_runs(schedule, d).tolist()
        for row, after in zip(schedule.runs_on(d).tolist(), held, strict=True):
            m, b = micro_batches[row], blocks[row]
            yield (
                f'{head},"ts":{starts[row]},"dur":{durations[row]},{heads[b]} #{m}",{tails[b]},'
                f'"micro_batch":{m},"phase":"{phases[row]}","memory_after":{after}}}}}'
            )


def _fixed_parts(block: Block) -> tuple[str, str]:
    """Return the two parts of the text that are equal for all runs of a block.

    The first ends inside the name, before the number of the micro-batch. The second has the fields after the name.
    """
    name = json.dumps(block.name)
    tail = f'"cat":"{block.kind}","cname":"{COLOURS[block.kind]}","args":{{"block":{name},"memory":{block.memory}'
    return f'"name":{name[:-1]}', tail


def _counters(profile: MemoryProfile, tick: int) -> Iterator[str]:
    """Yield the memory of each device at each time at which it changes."""
    unit = json.dumps(many(profile.plan.memory_unit or "unit"))
    for d, (times, levels) in enumerate(zip(profile.times, profile.levels, strict=True)):
        for time, level in zip(microseconds(times * tick), levels.tolist(), strict=True):
            yield f'{{"ph":"C",{_track_text(d)},"ts":{time},"name":"memory","args":{{{unit}:{level}}}}}'


def _arrows(schedule: Schedule, tick: int) -> Iterator[str]:
    """Yield two events per dependency between runs on different devices: the start and the end of an arrow.

    Each pair has its own id.
    """
    flow = 0
    blocks = schedule.plan.blocks
    for before, after, _ in schedule.plan.arcs:
        sender = blocks[before].devices[0]
        fixed = f'"cat":"dependency","name":{json.dumps(f"{blocks[before].name} to {blocks[after].name}")}'
        leaves = microseconds((schedule.starts[:, before] + blocks[before].duration) * tick - 1)
        arrives = microseconds(schedule.starts[:, after] * tick)
        for receiver in [d for d in blocks[after].devices if d not in blocks[before].devices]:
            for leave, arrive in zip(leaves, arrives, strict=True):
                flow += 1
                yield f'{{"ph":"s",{_track_text(sender)},"ts":{leave},"id":{flow},{fixed}}}'
                yield f'{{"ph":"f","bp":"e",{_track_text(receiver)},"ts":{arrive},"id":{flow},{fixed}}}'


def _track_text(device: int) -> str:
    return f'"pid":{device + 1},"tid":{device + 1}'
