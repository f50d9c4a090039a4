"""The order of a pipeline timed for many configurations at once: a longest path, run by run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.pipeline import stage_runs
from tessel_core.model import BlockKind
from tessel_core.strategies.orders import LOOP, stage_form, stage_order

Column = NDArray[np.float64]

_PHASES = {BlockKind.FORWARD: 0, BlockKind.BACKWARD: 1, BlockKind.WEIGHT: 2}
ADDING = 3
"""The place of adding up gradients among the seconds of a stage, behind its phases."""
COPY = 2 / 3
"""Time of a copy beside that of a sum of two: it moves two thirds of the bytes."""
_FEW = (1, 2, 3)
"""How often few micro-batches fill the pipeline, besides once for each stage of a device."""


@dataclass(frozen=True)
class Moment:
    """What a device holds when a stage runs: finished forwards of its stages, the running one left out."""

    stage: int
    phase: int
    held: tuple[tuple[int, int], ...]
    """Pairs of a stage and a number of micro-batches."""


@dataclass(frozen=True)
class Order:
    """The runs of a pipeline, each after those that it waits for."""

    stages: int
    devices: int
    stage: tuple[int, ...]
    phase: tuple[int, ...]
    adds: tuple[float, ...]
    """Per run that makes gradients, 1 to add them to those before, less to copy the first; 0 for other runs."""
    before: tuple[int, ...]
    """Per run, the one before it on its device; -1 for none."""
    after: tuple[int, ...]
    """Per run, the one that makes what it takes; -1 for none."""
    device_of: tuple[int, ...]
    """Per stage."""
    last: tuple[int, ...]
    """Per stage, its last run."""
    moments: tuple[tuple[Moment, ...], ...]
    """Per device, the moments at which it may hold most."""

    def ends(self, seconds: Column, lag: Column) -> Column:
        """Per stage and configuration, seconds until its last run is over.

        Parameters
        ----------
        seconds
            By stage, phase (forward, backward, gradients of weights, adding them up) and configuration.
        lag
            Seconds from a stage to the next, by stage and configuration; back from the next it takes as long.
        """
        count = seconds.shape[-1]
        ends = np.empty((len(self.stage) + 1, count))
        ends[-1] = 0.0
        runs = zip(self.stage, self.phase, self.adds, self.before, self.after, strict=True)
        for run, (stage, phase, adds, before, after) in enumerate(runs):
            ready = ends[before]
            if after >= 0:
                other = self.stage[after]
                arrives = ends[after] if other == stage else ends[after] + lag[min(stage, other)]
                ready = np.maximum(ready, arrives)
            np.add(ready, seconds[stage, phase], out=ends[run])
            if adds:
                ends[run] += adds * seconds[stage, ADDING]
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


@lru_cache(maxsize=1024)
def order_of(schedule: str, devices: int, micro_batches: int, stages_per_device: int) -> Order:
    """The order of a scheduler for training; raises InputError where it finds none."""
    found = stage_order(schedule, devices, micro_batches, True, stages_per_device)
    form = stage_form(schedule, devices, micro_batches, stages_per_device) or LOOP
    stages = devices * stages_per_device
    device_of = tuple(form.device_of(stage, devices) for stage in range(stages))
    rows, number = list[tuple[int, int, int, int]](), dict[tuple[int, int, int], int]()
    latest, last = dict[int, int](), [0] * stages
    for _, stage, kind, micro_batch in stage_runs(found):
        phase = _PHASES[kind]
        wanted = {0: (stage - 1, 0), 1: (stage + 1, 1), 2: (stage, 1)}[phase]
        if phase == 1 and stage == stages - 1:
            wanted = stage, 0
        after = number.get((*wanted, micro_batch), -1)
        rows.append((stage, phase, latest.get(device_of[stage], -1), after))
        number[stage, phase, micro_batch] = latest[device_of[stage]] = last[stage] = len(rows) - 1
    stage_of, phase_of, before, after_of = map(tuple, zip(*rows, strict=True))
    making = [stage if phase == 1 + form.split else -1 for stage, phase in zip(stage_of, phase_of, strict=True)]
    firsts = {making.index(stage) for stage in range(stages)}
    adds = tuple((COPY if run in firsts else 1.0) if stage >= 0 else 0.0 for run, stage in enumerate(making))
    moments = tuple(_moments([row[:2] for row in rows if device_of[row[0]] == d], form.split) for d in range(devices))
    return Order(stages, devices, stage_of, phase_of, adds, before, after_of, device_of, tuple(last), moments)


def _moments(runs: list[tuple[int, int]], split: bool) -> tuple[Moment, ...]:
    """Moments of a device that no other one of the same stage and phase holds at least as much at."""
    held: dict[int, int] = {}
    found: dict[tuple[int, int], list[dict[int, int]]] = {}
    for stage, phase in runs:
        if phase:
            held[stage] = held.get(stage, 0) - (phase == 1 + split)
        others = {**held, stage: held.get(stage, 0) - (split and phase == 1)}
        known = found.setdefault((stage, phase), [])
        if not any(all(each.get(s, 0) >= n for s, n in others.items()) for each in known):
            known[:] = [each for each in known if not all(others.get(s, 0) >= n for s, n in each.items())]
            known.append(others)
        if not phase:
            held[stage] = held.get(stage, 0) + 1
    return tuple(
        Moment(stage, phase, tuple(sorted((s, n) for s, n in each.items() if n > 0)))
        for (stage, phase), every in found.items()
        for each in every
    )


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
