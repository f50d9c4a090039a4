"""The order of a pipeline timed for many configurations at once: a longest path, run by run."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from operator import le

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.pipeline import stage_runs
from tessel_core.model import BlockKind
from tessel_core.strategies.orders import LOOP, stage_form, stage_order

Column = NDArray[np.float64]

_PHASES = {BlockKind.FORWARD: 0, BlockKind.BACKWARD: 1, BlockKind.WEIGHT: 2}
ADDING, COPYING = 3, 4
"""The places of adding up gradients, and of copying the first ones, among the seconds of a stage."""
_FEW = (1, 2, 3)
"""How often few micro-batches fill the pipeline, besides once for each stage of a device."""


@dataclass(frozen=True)
class Moment:
    """The micro-batches that a device holds when a stage runs, without the running one."""

    stage: int
    phase: int
    held: tuple[tuple[int, int], ...]
    """Pairs of a stage and the number of micro-batches that it has run forward and not backward."""
    kept: tuple[tuple[int, int], ...]
    """Pairs of a stage and the number of micro-batches that wait for their gradients of weights, which are apart."""
    done: tuple[tuple[tuple[int, int], int], ...]
    """Pairs of a direction with a stage, and the number of micro-batches that it has run so."""
    made: tuple[int, ...]
    """Stages that have made gradients before."""


@dataclass(frozen=True)
class StageTimes:
    """Seconds of the stages of several configurations, which are the last axis of each array."""

    seconds: Column
    """By stage and phase: forward, backward, gradients of weights, adding them up, and copying the first."""
    onward: Column
    """By stage and direction, seconds from the end of a run until its outputs are there."""
    sends: Column
    """By stage but the last and direction, seconds to send its outputs to the next stage, or those of that back."""
    leads: Column
    """By stage and direction, seconds of a run before it takes anything from other stages."""
    talks: Column | None = None
    """By stage and phase, seconds from the begin of a run to its first communication with those that share layers."""
    trailing: Column | None = None
    """By stage and phase, seconds by which this communication outlasts a run; None where none does."""
    joining: Column | None = None
    """By stage, direction and number of earlier micro-batches, seconds to join outputs of samples."""


@dataclass(frozen=True)
class Order:
    """The runs of a pipeline, each after those that it waits for."""

    stages: int
    devices: int
    stage: tuple[int, ...]
    phase: tuple[int, ...]
    turn: tuple[int, ...]
    """Micro-batches that the stage has run before in this phase."""
    makes: tuple[bool, ...]
    """Whether the run makes gradients of weights."""
    before: tuple[int, ...]
    """The run before it on its device; -1 for none."""
    after: tuple[int, ...]
    """The run that makes what it takes; -1 for none."""
    onto: tuple[int, ...]
    """The link by which its outputs leave; -1 where they stay on the device or nothing takes them."""
    device_of: tuple[int, ...]
    """Device of each stage."""
    last: tuple[int, ...]
    """Last run of each stage."""
    moments: tuple[tuple[Moment, ...], ...]
    """Moments of each device at which it may hold most."""

    def ends(self, times: StageTimes) -> Column:
        """Return the seconds until the last run of each stage is over, by stage and configuration."""
        count = times.seconds.shape[-1]
        ends = np.empty((len(self.stage) + 1, count))
        ends[-1] = 0.0
        arrives = dict[int, Column]()
        free: dict[int, Column | float] = defaultdict(float)
        seconds, onward, sends, joining = times.seconds, times.onward, times.sends, times.joining
        talks, trailing, talking = times.talks, times.trailing, np.zeros((self.devices, count))
        later = seconds[:, :ADDING].copy()
        for stage, phase in {(s, p) for s, p, makes in zip(self.stage, self.phase, self.makes, strict=True) if makes}:
            later[stage, phase] += seconds[stage, ADDING]
        runs = zip(self.stage, self.phase, self.turn, self.makes, self.before, self.after, self.onto, strict=True)
        for run, (stage, phase, turn, makes, before, after, onto) in enumerate(runs):
            ready = ends[before]
            if after >= 0:
                there = arrives.pop(after, None)
                ready = np.maximum(ready, ends[after] if there is None else there - times.leads[stage, phase])
            end = ends[run]
            if makes and not turn:
                np.add(ready, seconds[stage, phase] + seconds[stage, COPYING], out=end)
            else:
                np.add(ready, later[stage, phase], out=end)
            if joining is not None and phase < 2:
                end += joining[stage, phase, turn]
            late: Column | float = 0.0
            if talks is not None and trailing is not None:
                # The communication of a run waits for that of the run before, and computation for it if it comes later.
                device = self.device_of[stage]
                late = np.maximum(talking[device] - ready - talks[stage, phase], 0.0)
                end += np.where(trailing[stage, phase] > 0, 0.0, late)
                late = np.where(trailing[stage, phase] > 0, late, 0.0)
                talking[device] = end + trailing[stage, phase] + late
            if onto >= 0:
                gone = np.maximum(end + onward[stage, phase] + late, free[onto]) + sends[stage - phase, phase]
                free[onto] = arrives[run] = gone
            elif onto == STAYS:
                arrives[run] = end + onward[stage, phase] + late
        return ends[list(self.last)]

    def busiest(self, seconds: Column) -> Column:
        """Per configuration, seconds of a micro-batch on the device that has most to do; `seconds` as of `ends`."""
        of_stage = seconds[:, : ADDING + 1].sum(axis=1)
        of_device = np.zeros((self.devices, seconds.shape[-1]))
        np.add.at(of_device, list(self.device_of), of_stage)
        return np.asarray(of_device.max(axis=0))


def extrapolated(fewer: Column, more: Column, share: Column, least: Column) -> Column:
    """Ends for many micro-batches, from those for two small numbers of them.

    The difference between these grows with the numbers: at first the slowest of other devices may set the pace, in the
    end none is faster than the busiest device.

    Parameters
    ----------
    fewer, more
        Seconds by stage and configuration.
    share
        Per configuration, how often the difference between the two numbers comes again.
    least
        Per configuration, seconds of the busiest device for this difference.
    """
    return np.asarray(more + share * np.maximum(more - fewer, least))


STAYS, NOWHERE = -1, -2
"""Outputs that the next stage takes on the same device, and runs whose outputs no other stage takes."""


@lru_cache(maxsize=1024)
def order_of(
    schedule: str,
    devices: int,
    micro_batches: int,
    stages_per_device: int,
    *,
    training: bool = True,
    joins: bool = False,
) -> Order:
    """Return the order of a scheduler.  Raises InputError where it finds none.

    `joins` says whether finished runs leave outputs that moments must count.
    """
    found = stage_order(schedule, devices, micro_batches, training, stages_per_device)
    form = (stage_form(schedule, devices, micro_batches, stages_per_device) if training else None) or LOOP
    stages = devices * stages_per_device
    device_of = tuple(form.device_of(stage, devices) for stage in range(stages))
    rows, number = list[tuple[int, int, int, int, int]](), dict[tuple[int, int, int], int]()
    latest, last, ran = dict[int, int](), [0] * stages, Counter[tuple[int, int]]()
    links: dict[tuple[int, int], int] = {}
    for _, stage, kind, micro_batch in stage_runs(found):
        phase = _PHASES[kind]
        wanted = {0: (stage - 1, 0), 1: (stage + 1, 1), 2: (stage, 1)}[phase]
        if phase == 1 and stage == stages - 1:
            wanted = stage, 0
        after = number.get((*wanted, micro_batch), -1)
        takes = {0: stage + 1, 1: stage - 1, 2: -1}[phase]
        onto = NOWHERE
        if 0 <= takes < stages:
            there = device_of[stage], device_of[takes]
            onto = STAYS if there[0] == there[1] else links.setdefault(there, len(links))
        rows.append((stage, phase, latest.get(device_of[stage], -1), after, onto))
        number[stage, phase, micro_batch] = latest[device_of[stage]] = last[stage] = len(rows) - 1
    turns = list[int]()
    for stage, phase, *_ in rows:
        turns.append(ran[stage, phase])
        ran[stage, phase] += 1
    stage_of, phase_of, before, after_of, onto_of = map(tuple, zip(*rows, strict=True))
    makes = tuple(phase == 1 + form.split for phase in phase_of)
    moments = tuple(
        _moments([row[:2] for row in rows if device_of[row[0]] == d], form.split, training, joins)
        for d in range(devices)
    )
    return Order(
        stages,
        devices,
        stage_of,
        phase_of,
        tuple(turns),
        makes,
        before,
        after_of,
        onto_of,
        device_of,
        tuple(last),
        moments,
    )


_HELD, _KEPT, _DONE, _MADE, _COUNTS = 0, 1, 2, 4, 5
"""Places of the counts of a stage: as of `Moment`; `done` has one for each direction."""


def _moments(runs: list[tuple[int, int]], split: bool, training: bool, joins: bool) -> tuple[Moment, ...]:
    """Return the moments of a device at which it may hold most.

    Left out are those that another moment of the same stage and phase equals or exceeds in everything.
    """
    places = {stage: _COUNTS * i for i, stage in enumerate(dict.fromkeys(stage for stage, _ in runs))}
    now, seen = [0] * (_COUNTS * len(places)), set[tuple[int, int, tuple[int, ...]]]()
    found: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for stage, phase in runs:
        at = places[stage]
        if phase:
            now[at + (_HELD if phase == 1 else _KEPT)] -= 1
        counts = tuple(now)
        if (stage, phase, counts) not in seen:
            seen.add((stage, phase, counts))
            known = found.setdefault((stage, phase), [])
            if not any(all(map(le, counts, each)) for each in known):
                known[:] = [each for each in known if not all(map(le, each, counts))]
                known.append(counts)
        now[at + _HELD] += training and not phase
        now[at + _KEPT] += split and phase == 1
        if phase == 1 + split:
            now[at + _MADE] = 1
        if joins and phase < 2:
            now[at + _DONE + phase] += 1
    return tuple(_moment(*key, counts, places) for key, every in found.items() for counts in every)


def _moment(stage: int, phase: int, counts: tuple[int, ...], places: dict[int, int]) -> Moment:
    held, kept = (
        tuple((s, counts[at + how]) for s, at in places.items() if counts[at + how]) for how in (_HELD, _KEPT)
    )
    done = tuple(((way, s), counts[at + _DONE + way]) for s, at in places.items() for way in (0, 1))
    return Moment(stage, phase, held, kept, done, tuple(s for s, at in places.items() if counts[at + _MADE]))


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of micro-batches whose times say the time of another number."""

    few: tuple[int, ...]
    weights: tuple[float, ...]


def counts_for(devices: int, stages_per_device: int, micro_batches: int, *, repeats: bool) -> Counts:
    """Few numbers of micro-batches, and how much of the time of each adds up to that of `micro_batches`.

    An order that repeats once the pipeline is full takes as long for each more filling, so the last two say the rest.
    """
    *_, two, three = (devices * (times + stages_per_device) for times in _FEW)
    if not repeats or micro_batches <= 2 * three:
        return Counts((micro_batches,), (1.0,))
    share = (micro_batches - three) / (three - two)
    return Counts((two, three), (-share, 1.0 + share))
