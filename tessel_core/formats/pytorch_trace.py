"""Traces of PyTorch's profiler, as far as they show a pipeline: spans named PP:2F0 by stage, action and micro-batch.

The document is a Chrome trace: complete events (X), or begin and end (B, E), in microseconds.
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

MEASURED = "durations are medians of each block's spans without waiting, starts as measured or as soon as those allow"
"""What a schedule says that is read from traces."""

_PREFIX = "PP:"
_ON_GPU = "gpu_user_annotation"
_WITH_NEXT = ("SEND_F", "WAIT_SEND_F", "RECV_B")
"""What a stage does together with the next one; the rest it does with the one before."""


class Span(NamedTuple):
    """One time that a stage computes, in nanoseconds."""

    where: str
    action: StageAction
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PipelineTrace:
    """The spans of a file by rank: of all, or of the one that the file is of."""

    ranks: tuple[tuple[Span, ...], ...]
    rank: int | None
    """The one that the file says it is of."""
    neighbours: frozenset[int] = frozenset()
    """Stages that those of the file send to or receive from."""


def looks_like_trace(fields: Fields) -> bool:
    """True for a document with a Chrome trace's events."""
    return fields.has("traceEvents")


def trace_from(fields: Fields) -> PipelineTrace:
    """The pipeline spans in a parsed trace; those of the GPUs where there are any.

    Raises InputError naming the event that is damaged, or where there are no such spans.
    """
    base = fields.get("baseTimeNanoseconds", 0)
    if isinstance(base, bool) or not isinstance(base, int):
        raise InputError("baseTimeNanoseconds", f"must be an integer, got {base!r}")
    found, neighbours = defaultdict[bool, dict[object, list[Span]]](lambda: defaultdict(list)), set[int]()
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
            found[event.get("cat") == _ON_GPU][str(event.get("pid"))].append(span)
        elif action.micro_batch is not None:
            neighbours.add(action.stage + (1 if action.kind in _WITH_NEXT else -1))
    if not found:
        raise InputError(
            "traceEvents", "has no span of a pipeline's computing, named PP:0F0 by stage, action, micro-batch"
        )
    ranks = tuple(tuple(spans) for spans in found[max(found)].values())
    about = fields.get("distributedInfo", None)
    rank = about.get("rank") if isinstance(about, dict) else None
    return PipelineTrace(ranks, rank if isinstance(rank, int) and len(ranks) == 1 else None, frozenset(neighbours))


def trace_schedule(traces: Sequence[PipelineTrace]) -> Schedule:
    """The last step that the files show together, on one clock, each rank in the order of its spans.

    A block lasts as long as the median of its spans, less what they wait for a neighbouring stage.  A run starts as
    measured, or later where a median is longer than what was measured before it.

    Raises InputError where stages or actions are missing, are shown on two ranks, or not equally often.
    """
    ranks = _by_rank(traces)
    rank_of = _places(ranks, {each for trace in traces for each in trace.neighbours})
    times = _times(ranks)
    began = {
        span: _without_waiting(span, step, times, rank_of)
        for spans in times.values()
        for step, span in enumerate(spans)
    }
    taken = defaultdict[tuple[int, str], list[int]](list)
    for span, start in began.items():
        taken[span.action.stage, span.action.kind].append(span.end - start)
    last = [[span for span in spans if span is times[span.action][-1]] for spans in ranks]
    first = min(began[span] for spans in last for span in spans)
    rows = [[Work(span.where, span.action, began[span] - first) for span in spans] for spans in last]
    return chain_schedule("pytorch-trace", rows, lambda *block: max(1, round(median(taken[block]))), "ns")


def _places(ranks: Sequence[Sequence[Span]], neighbours: Collection[int]) -> dict[int, int]:
    """Per stage, its rank; all stages must be there, and those that others talk with."""
    rank_of = dict[int, int]()
    for rank, spans in enumerate(ranks):
        for span in spans:
            if rank_of.setdefault(span.action.stage, rank) != rank:
                raise InputError(span.where, f"stage {span.action.stage} computes on two ranks")
    missing = next((stage for stage in chain(range(max(rank_of)), sorted(neighbours)) if stage not in rank_of), None)
    if missing is not None:
        why = "is in none of the traces: give those of all ranks together, or merged in one file"
        raise InputError(f"stage {missing}", why)
    return rank_of


def _times(ranks: Sequence[Sequence[Span]]) -> dict[StageAction, list[Span]]:
    """Per action its spans, one a step."""
    found, first = defaultdict[StageAction, list[Span]](list), min(spans[0].start for spans in ranks)
    for spans in ranks:
        for span in spans:
            if not span.start <= span.end <= first + MAGNITUDE:
                why = (
                    "ends before it begins"
                    if span.end < span.start
                    else "ends more than 2^53 ns after the first begins"
                )
                raise InputError(span.where, why)
            found[span.action].append(span)
    usual, steps = next(iter(found)), len(next(iter(found.values())))
    for action, each in found.items():
        if len(each) != steps:
            why = f"is there {len(each)} times and PP:{usual} {steps} times, so that some step is not whole"
            raise InputError(f"span PP:{action}", why)
    return found


def _timed(fields: Fields) -> Iterator[tuple[str, dict[str, Any], int, int]]:
    """The pipeline's events, each with its place, start and end in nanoseconds, in their order in the file."""
    begun = defaultdict[tuple[str, str], list[tuple[str, dict[str, Any], float]]](list)
    for event, where in fields.items("traceEvents"):
        if not isinstance(event, dict):
            raise InputError(where, "must be an object")
        phase, name = event.get("ph"), event.get("name")
        ours = isinstance(name, str) and name.startswith(_PREFIX)
        if phase == "X" and ours:
            start = as_number(event.get("ts"), f"{where}.ts")
            yield where, event, _ns(start), _ns(start + as_amount(event.get("dur"), f"{where}.dur"))
        elif phase in ("B", "E") and (stack := begun[str(event.get("pid")), str(event.get("tid"))]) is not None:
            moment = as_number(event.get("ts"), f"{where}.ts")
            if phase == "B":
                stack.append((where, event if ours else {}, moment))
                continue
            if not stack:
                raise InputError(where, "ends what has not begun")
            place, opened, start = stack.pop()
            if opened:
                yield place, opened, _ns(start), _ns(moment)


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def _by_rank(traces: Sequence[PipelineTrace]) -> list[list[Span]]:
    """Per rank, its spans by their start: in the order of the ranks that files name, else of the first stages."""
    found = [(trace.rank, sorted(spans, key=lambda span: span.start)) for trace in traces for spans in trace.ranks]
    named = [rank for rank, _ in found if rank is not None]
    if len(set(named)) < len(found):
        return sorted((spans for _, spans in found), key=lambda spans: min(span.action.stage for span in spans))
    return [spans for _, spans in sorted(found, key=lambda each: each[0] or 0)]


def _without_waiting(
    span: Span, step: int, times: Mapping[StageAction, Sequence[Span]], rank_of: Mapping[int, int]
) -> int:
    """When a span has what it takes from another rank: PyTorch waits for that inside the span."""
    stage, kind, m = span.action
    if kind == "W":
        return span.start
    before = [StageAction(stage - 1, "F", m)] if kind == "F" else [StageAction(stage + 1, each, m) for each in "BI"]
    ends = [times[each][step].end for each in before if each in times and rank_of[each.stage] != rank_of[stage]]
    return max([span.start, *(end for end in ends if end < span.end)])
