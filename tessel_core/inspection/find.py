"""Find a run, an idle interval or a memory peak of a schedule by a short text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessel_core.errors import InputError
from tessel_core.inspection.holes import Hole, Holes
from tessel_core.model import MemoryProfile, Schedule

_WHERE = "find"
_MAX_TEXT_LETTERS = 400
"""Longest accepted text in characters: the patterns are slow on much longer texts."""
_MAX_QUOTED_LETTERS = 60
_RUN = re.compile(r"(?P<block>.*?\S)(?:\s+of)?\s+(?P<micro_batch>[0-9]{1,18})", re.IGNORECASE | re.DOTALL)
_HOLE = re.compile(r"longest\s+(?:idle\s+time|hole)\s+(?:on|of)\s+(?P<device>.+)", re.IGNORECASE | re.DOTALL)
_PEAK = re.compile(r"peak\s+(?:of|on)\s+(?P<device>.+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run, as a row of the schedule."""

    row: int


@dataclass(frozen=True, slots=True)
class FoundHole:
    """A device's idle time from one run to the next."""

    hole: Hole


@dataclass(frozen=True, slots=True)
class FoundPeak:
    """The first moment at which a device holds most memory, including static memory."""

    device: int
    moment: int
    memory: int


Found = FoundRun | FoundHole | FoundPeak


def find(schedule: Schedule, text: str, holes: Holes | None = None) -> Found:
    """Find a run ("B3 of 17"), an idle time ("longest idle time on gpu2") or a peak ("peak of gpu5") by its text.

    Names of blocks and devices match exactly, or else without regard to case and with "-" for "–", if only one name
    matches in this way. Pass `holes` of the schedule to save time if they are known. Raises InputError with examples of
    valid texts.
    """
    asked = text.strip()
    if len(asked) > _MAX_TEXT_LETTERS:
        raise InputError(_WHERE, f"{_shown(asked)} is not understood; {_examples(schedule)}")
    if run := _RUN.fullmatch(asked):
        block = _position([block.name for block in schedule.plan.blocks], run["block"])
        if block is not None:
            return _run(schedule, block, int(run["micro_batch"]))
    for pattern in (_HOLE, _PEAK):
        if match := pattern.fullmatch(asked):
            device = _position([device.name for device in schedule.plan.devices], match["device"])
            if device is None:
                raise InputError(_WHERE, f"there is no device {_shown(match['device'])}; {_examples(schedule)}")
            return _hole(schedule, device, holes) if pattern is _HOLE else _peak(schedule, device)
    if run:
        raise InputError(_WHERE, f"there is no block {_shown(run['block'])}; {_examples(schedule)}")
    raise InputError(_WHERE, f"{_shown(asked)} is not understood; {_examples(schedule)}")


def _run(schedule: Schedule, block: int, micro_batch: int) -> FoundRun:
    rows = np.flatnonzero((schedule.block == block) & (schedule.micro_batch == micro_batch))
    if not len(rows):
        last = schedule.micro_batches - 1
        raise InputError(_WHERE, f"there is no micro-batch {micro_batch}, the schedule has 0 to {last}")
    return FoundRun(int(rows[0]))


def _hole(schedule: Schedule, device: int, holes: Holes | None) -> FoundHole:
    hole = (holes or Holes.of(schedule)).longest(device)
    if hole is None:
        raise InputError(_WHERE, f"{schedule.plan.devices[device].name} is never idle")
    return FoundHole(hole)


def _peak(schedule: Schedule, device: int) -> FoundPeak:
    memory = MemoryProfile.of(schedule)
    place = int(memory.levels[device].argmax())
    return FoundPeak(device, int(memory.times[device][place]), int(memory.levels[device][place]))


def _position(names: Sequence[str], wanted: str) -> int | None:
    """Return the position of a name that matches exactly, or the only one that matches in another case or with "-"."""
    if wanted in names:
        return names.index(wanted)
    alike = [i for i, name in enumerate(names) if _typed(name) == _typed(wanted)]
    return alike[0] if len(alike) == 1 else None


def _typed(name: str) -> str:
    return name.casefold().replace("–", "-")


def _examples(schedule: Schedule) -> str:
    block, device = schedule.plan.blocks[0].name, schedule.plan.devices[0].name
    return f'ask for "{block} of 0", "longest idle time on {device}" or "peak of {device}"'


def _shown(text: str) -> str:
    line = "".join(letter if letter.isprintable() else " " for letter in text[:_MAX_QUOTED_LETTERS])
    return f'"{line}"' if len(text) <= _MAX_QUOTED_LETTERS else f'"{line}…"'
