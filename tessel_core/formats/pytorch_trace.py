"""Read spans of pipeline actions from PyTorch profiler traces. A name such as PP:2F0 gives stage, action and
micro-batch.

The document is a Chrome trace with complete events (X), or begin and end events (B, E), in microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any, NamedTuple

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_amount, as_number
from tessel_core.formats.pytorch_csv import COMPUTING, StageAction, read_action
from tessel_core.formats.pytorch_schedule import Work, chain_schedule
from tessel_core.model import Schedule
from tessel_core.units import MAGNITUDE

MEASURED = (
    "durations are medians over the spans of each block, without waiting; runs start as measured, or later if needed"
)
"""Note on schedules that were read from traces."""

_PREFIX = "PP:"
_ON_GPU = "gpu_user_annotation"
_WITH_NEXT = ("SEND_F", "WAIT_SEND_F", "RECV_B")
"""Communication with the next stage.  All other kinds communicate with the stage before."""


class Span(NamedTuple):
    """One computing action of a stage, in nanoseconds."""

    where: str
    """Place in the file, for messages."""
    action: StageAction
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PipelineTrace:
    """Spans of a trace file, which contains one rank or all ranks."""

    ranks: tuple[tuple[Span, ...], ...]
    """Spans of each rank in the file."""
    rank: int | None
    """Number of the rank, if the file contains a single one and names it."""
    neighbours: frozenset[int] = frozenset()
    """Stages to which the stages of the file send, or from which they receive."""


def looks_like_trace(fields: Fields) -> bool:
    """Return whether a document has the events of a Chrome trace."""
    return fields.has("traceEvents")


def trace_from(fields: Fields) -> PipelineTrace:
    """Read the pipeline spans in a parsed trace. If there are spans of GPUs, other spans are left out.

    Raises InputError with the event if one is damaged, or if there are no pipeline spans.
    """
    base = fields.get("baseTimeNanoseconds", 0)
    if isinstance(base, bool) or not isinstance(base, int):
        raise InputError("baseTimeNanoseconds", f"must be an integer, got {base!r}")
    spans_of, neighbours = defaultdict[bool, dict[object, list[Span]]](lambda: defaultdict(list)), set[int]()
    for where, event, start, end in _timed(fields):
        text = event["name"].removeprefix(_PREFIX)
        try:
            action = read_action(text)
        except ValueError as error:
            overlaps = text.endswith("OVERLAP_F_B")
            why = "overlaps two actions, which are not timed one by one" if overlaps else str(error)
            raise InputError(where, f"span {event['name'][:40]!r} {why}") from None
        if action.kind in COMPUTING:
            span = Span(f"{where}: span {event['name']!r}", action, base + start, base + end)
            spans_of[event.get("cat") == _ON_GPU][str(event.get("pid"))].append(span)
        elif action.micro_batch is not None:
            neighbours.add(action.stage + (1 if action.kind in _WITH_NEXT else -1))
    if not spans_of:
        raise InputError("traceEvents", "has no pipeline span named like PP:0F0 (stage, action, micro-batch)")
    ranks = tuple(tuple(spans) for spans in spans_of[max(spans_of)].values())
    about = fields.get("distributedInfo", None)
    rank = about.get("rank") if isinstance(about, dict) else None
    return PipelineTrace(ranks, rank if isinstance(rank, int) and len(ranks) == 1 else None, frozenset(neighbours))


def trace_schedule(traces: Sequence[PipelineTrace]) -> Schedule:
    """Build the schedule of the last step in the traces, with each rank in the order of its spans.

    The duration of a block is the median of its spans, without the time for which they wait for a neighbouring stage.
    A run starts as measured, or later if the median durations before it are longer than measured.

    Raises InputError if stages or actions are missing, appear on two ranks, or do not all appear equally often.
    """
    ranks = _by_rank(traces)
    rank_of = _places(ranks, {each for trace in traces for each in trace.neighbours})
    times = _times(ranks)
    began = {
        span: _without_waiting(span, step, times, rank_of)
        for spans in times.values()
        for step, span in enumerate(spans)
    }
    durations = defaultdict[tuple[int, str], list[int]](list)
    for span, start in began.items():
        durations[span.action.stage, span.action.kind].append(span.end - start)
    last = [[span for span in spans if span is times[span.action][-1]] for spans in ranks]
    first = min(began[span] for spans in last for span in spans)
    rows = [[Work(span.where, span.action, began[span] - first) for span in spans] for spans in last]
    return chain_schedule("pytorch-trace", rows, lambda *block: max(1, round(median(durations[block]))), "ns")


def _places(ranks: Sequence[Sequence[Span]], neighbours: Collection[int]) -> dict[int, int]:
    """Return the rank of each stage.  Raises InputError if a stage is missing or on two ranks."""
    rank_of = dict[int, int]()
    for rank, spans in enumerate(ranks):
        for span in spans:
            if rank_of.setdefault(span.action.stage, rank) != rank:
                raise InputError(span.where, f"stage {span.action.stage} computes on two ranks")
    missing = next((stage for stage in chain(range(max(rank_of)), sorted(neighbours)) if stage not in rank_of), None)
    if missing is not None:
        why = "is missing in the traces: open those of all ranks together, or merge them into one file"
        raise InputError(f"stage {missing}", why)
    return rank_of


def _times(ranks: Sequence[Sequence[Span]]) -> dict[StageAction, list[Span]]:
    """Return the spans of each action, one per step.  Raises InputError if a step is incomplete."""
    times, first = defaultdict[StageAction, list[Span]](list), min(spans[0].start for spans in ranks)
    for spans in ranks:
        for span in spans:
            if not span.start <= span.end <= first + MAGNITUDE:
                why = (
                    "ends before it begins"
                    if span.end < span.start
                    else "ends more than 2^53 ns after the first begins"
                )
                raise InputError(span.where, why)
            times[span.action].append(span)
    reference, steps = next(iter(times)), len(next(iter(times.values())))
    for action, each in times.items():
        if len(each) != steps:
            why = f"appears {len(each)} times but PP:{reference} {steps} times, so a step is incomplete"
            raise InputError(f"span PP:{action}", why)
    return times


def _timed(fields: Fields) -> Iterator[tuple[str, dict[str, Any], int, int]]:
    """Yield the pipeline events in the order of the file: place, event, start and end in nanoseconds."""
    begun = defaultdict[tuple[str, str], list[tuple[str, dict[str, Any], float]]](list)
    for event, where in fields.items("traceEvents"):
        if not isinstance(event, dict):
            raise InputError(where, "must be an object")
        phase, name = event.get("ph"), event.get("name")
        in_pipeline = isinstance(name, str) and name.startswith(_PREFIX)
        if phase == "X" and in_pipeline:
            start = as_number(event.get("ts"), f"{where}.ts")
            yield where, event, _ns(start), _ns(start + as_amount(event.get("dur"), f"{where}.dur"))
        elif phase in ("B", "E") and (stack := begun[str(event.get("pid")), str(event.get("tid"))]) is not None:
            moment = as_number(event.get("ts"), f"{where}.ts")
            if phase == "B":
                stack.append((where, event if in_pipeline else {}, moment))
                continue
            if not stack:
                raise InputError(where, "ends an event that has not begun")
            place, opened, start = stack.pop()
            if opened:
                yield place, opened, _ns(start), _ns(moment)


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def _by_rank(traces: Sequence[PipelineTrace]) -> list[list[Span]]:
    """Return the spans of each rank, sorted by start.

    Ranks are in the order of the numbers in the files, or, if some are missing, of their first stages.
    """
    ranks = [(trace.rank, sorted(spans, key=lambda span: span.start)) for trace in traces for spans in trace.ranks]
    named = [rank for rank, _ in ranks if rank is not None]
    if len(set(named)) < len(ranks):
        return sorted((spans for _, spans in ranks), key=lambda spans: min(span.action.stage for span in spans))
    return [spans for _, spans in sorted(ranks, key=lambda each: each[0] or 0)]


def _without_waiting(
    span: Span, step: int, times: Mapping[StageAction, Sequence[Span]], rank_of: Mapping[int, int]
) -> int:
    """Return the time at which the input from another rank has arrived. PyTorch waits for it inside the span."""
    stage, kind, m = span.action
    if kind == "W":
        return span.start
    before = [StageAction(stage - 1, "F", m)] if kind == "F" else [StageAction(stage + 1, each, m) for each in "BI"]
    ends = [times[each][step].end for each in before if each in times and rank_of[each.stage] != rank_of[stage]]
    return max([span.start, *(end for end in ends if end < span.end)])
