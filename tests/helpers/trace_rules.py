"""Check the rules of the Trace Event Format, as viewers read it, on the bytes of a file.

Sources: Google's "Trace Event Format" document (phases, required keys, binding of flows) and what Perfetto's importer
does with it.  Events are read in order of time, and at the same time in the order of the file.  A flow event belongs to
the slice that is open on its track at that time, and is dropped if there is none.  Slices on one track must nest.  Flow
ids are numbers.  Process 0 is the idle task.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any, NoReturn

Event = dict[str, Any]

REQUIRED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid"},
}
METADATA: dict[str, tuple[str, type]] = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", Decimal),
    "thread_sort_index": ("sort_index", Decimal),
}


def read_trace(data: bytes) -> list[Event]:
    """Return the events of a trace file, with numbers as exact decimals.

    Raises if it is not JSON or has no list of events.
    """
    document = json.loads(data.decode(), parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
    assert document.get("displayTimeUnit", "ms") in ("ms", "ns")
    events: list[Event] = document["traceEvents"]
    return events


def broken_trace_rules(events: list[Event]) -> set[str]:
    """Return the names of broken rules; empty for a correct trace."""
    if any(each.get("ph") not in REQUIRED or REQUIRED[each["ph"]] - each.keys() for each in events):
        return {"keys"}
    if not all(_numbers(events)):
        return {"numbers"}
    return {name for name, rule in RULES.items() if not all(rule(events))}


def of(events: list[Event], *phases: str) -> list[Event]:
    return [each for each in events if each["ph"] in phases]


def _numbers(events: list[Event]) -> Iterator[bool]:
    for each in events:
        yield all(isinstance(each[key], Decimal) for key in ("ts", "dur", "pid", "tid", "id") if key in each)
        yield all(each[key] >= 0 for key in ("ts", "dur") if key in each)
        yield all(0 < each[key] < 2**32 and each[key] == int(each[key]) for key in ("pid", "tid") if key in each)


def _metadata(events: list[Event]) -> Iterator[bool]:
    named: set[Decimal] = set()
    for each in of(events, "M"):
        key, kind = METADATA.get(each["name"], ("", ()))
        yield isinstance(each["args"].get(key), kind)
        if each["name"] == "process_name":
            yield each["pid"] not in named
            named.add(each["pid"])
    yield {each["pid"] for each in events} <= named


def _nesting(events: list[Event]) -> Iterator[bool]:
    """Yield for each slice whether it ends within the slice that encloses its start."""
    for slices in _tracks(events).values():
        open_until: list[Decimal] = []
        for begin, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            yield not open_until or end <= open_until[-1]
            open_until.append(end)


def _tracks(events: list[Event]) -> dict[tuple[int, int], list[tuple[Decimal, Decimal]]]:
    found = defaultdict(list)
    for each in of(events, "X"):
        found[each["pid"], each["tid"]].append((each["ts"], each["ts"] + each["dur"]))
    return found


def _counters(events: list[Event]) -> Iterator[bool]:
    """Yield for each counter whether its times increase and its values are numbers."""
    found = defaultdict(list)
    for each in of(events, "C"):
        found[each["pid"], each["name"]].append(each["ts"])
        yield bool(each["args"]) and all(isinstance(value, Decimal) for value in each["args"].values())
    for times in found.values():
        yield all(before < after for before, after in pairwise(times))


def _flows(events: list[Event]) -> Iterator[bool]:
    """Yield for each flow whether it leads from one slice that has ended to a later slice."""
    flows = defaultdict(list)
    for each, enclosing in open_slices(events):
        flows[each["cat"], each["name"], each["id"]].append((each, enclosing))
        yield enclosing is not None
    for ends in flows.values():
        yield [each["ph"] for each, _ in ends] == ["s", "f"]
        (_, left), (arrival, entered) = ends[0], ends[-1]
        yield arrival.get("bp") == "e"
        yield left is not None and entered is not None and left["ts"] + left["dur"] <= entered["ts"]


def open_slices(events: list[Event]) -> Iterator[tuple[Event, Event | None]]:
    """Yield every flow event with the slice that is open at its time."""
    now: dict[tuple[int, int], Event] = {}
    for each in sorted((each for each in events if "ts" in each), key=lambda each: each["ts"]):
        track = each["pid"], each.get("tid")
        if each["ph"] == "X":
            now[track] = each
        elif each["ph"] in "sf":
            found = now.get(track)
            yield each, found if found and each["ts"] < found["ts"] + found["dur"] else None


RULES: dict[str, Callable[[list[Event]], Iterator[bool]]] = {
    "metadata": _metadata,
    "nesting": _nesting,
    "counters": _counters,
    "flows": _flows,
}


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
