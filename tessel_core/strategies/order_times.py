"""Compute the times of a pipeline for many configurations at once, as longest paths through the runs of its stages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import le

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.pipeline import stage_runs
from tessel_core.model import BlockKind
from tessel_core.strategies.orders import ADDING, LOOP, NOWHERE, STAYS, stage_form, stage_order

Column = NDArray[np.float64]

_PHASES = {BlockKind.FORWARD: 0, BlockKind.BACKWARD: 1, BlockKind.WEIGHT: 2}
_EXTRA_FILLINGS = (2, 3)
"""Each of the two small numbers of micro-batches is devices x (stages per device + one of these)."""


@dataclass(frozen=True)
class Moment:
    """The micro-batches on a device while a stage runs. The micro-batch that is running does not count."""

    stage: int
    phase: int
    held: tuple[tuple[int, int], ...]
    """For each stage, the number of micro-batches that have finished the forward pass but not the backward pass."""
    kept: tuple[tuple[int, int], ...]
    """For each stage, the number of micro-batches that have finished the backward pass but not the weight gradients."""
    done: tuple[tuple[tuple[int, int], int], ...]
    """For each pair of direction and stage, the number of micro-batches that have finished this direction."""
    made: tuple[int, ...]
    """Stages that have already computed gradients of weights."""


@dataclass(frozen=True)
class StageTimes:
    """Times in seconds of the stages of several configurations. The last axis of each array is the configuration."""

    seconds: Column
    """By stage and phase: forward, backward, gradients of weights, adding gradients, copying the first gradients."""
    onward: Column
    """By stage and direction: seconds from the end of a run until its outputs are ready."""
    sends: Column
    """By stage (except the last) and direction: seconds to send outputs to the next stage, or gradients back."""
    leads: Column
    """By stage and direction: seconds of a run until it uses an input from another stage."""
    talks: Column | None = None
    """By stage and phase: seconds from the start of a run to the first collective among the devices of the stage."""
    trailing: Column | None = None
    """Indexed by stage and phase: seconds by which these collectives outlast a run; None if they never do."""
    exchanging: Column | None = None
    """Matrices of `Exchanging.runs`, indexed by stage before; None if replicas exchange at the end of the step."""
    closing: Column | None = None
    """`Exchanging.closing`, indexed by stage before."""
    joining: Column | None = None
    """By stage, direction and number of earlier micro-batches: seconds to join outputs with a batch axis."""


@dataclass(frozen=True)
class Order:
    """The runs of a pipeline in topological order. All tuples up to `onto` have one element per run."""

    stages: int
    devices: int
    stage: tuple[int, ...]
    phase: tuple[int, ...]
    turn: tuple[int, ...]
    """Number of micro-batches that the stage has processed before in this phase."""
    makes: tuple[bool, ...]
    """Whether the run computes gradients of weights."""
    before: tuple[int, ...]
    """The previous run on the same device, or -1 if there is none."""
    after: tuple[int, ...]
    """The run whose outputs this run needs, or -1 if there is none."""
    onto: tuple[int, ...]
    """The link over which the outputs are sent. `STAYS` and `NOWHERE` mean that they are not sent."""
    device_of: tuple[int, ...]
    """Device of each stage."""
    last: tuple[int, ...]
    """Last run of each stage."""
    moments: tuple[tuple[Moment, ...], ...]
    """For each device, the moments at which it may have its peak memory."""

    def ends(self, times: StageTimes) -> Column:
        """Return the end of the last run of each stage in seconds, as an array of shape (stages, configurations).

        If each run exchanges weights or gradients, it is the end of all exchanges and sums of the stage.
        """
        from tessel_core.strategies.kernels import ends_of_stages

        given = (times.seconds, times.onward, times.sends, times.leads)
        optional = (times.talks, times.trailing, times.joining, times.exchanging, times.closing)
        axes = (3, 3, 4, 6, 3)
        more = [np.zeros((0,) * n) if each is None else each for each, n in zip(optional, axes, strict=True)]
        places = np.array(self.device_of), np.array(self.last)
        return ends_of_stages(self._runs, *places, 1 + max(self.onto), *map(np.ascontiguousarray, (*given, *more)))

    @cached_property
    def _runs(self) -> NDArray[np.int64]:
        """The columns from `stage` to `onto` as rows of an array."""
        return np.array(
            (self.stage, self.phase, self.turn, self.makes, self.before, self.after, self.onto), dtype=np.int64
        )

    def busiest(self, seconds: Column) -> Column:
        """Return the seconds per micro-batch of the busiest device, for each configuration.

        `seconds` is the array `StageTimes.seconds`.
        """
        of_stage = seconds[:, : ADDING + 1].sum(axis=1)
        of_device = np.zeros((self.devices, seconds.shape[-1]))
        np.add.at(of_device, list(self.device_of), of_stage)
        return np.asarray(of_device.max(axis=0))


def extrapolated(fewer: Column, more: Column, share: Column, least: Column) -> Column:
    """Return the ends for many micro-batches, extrapolated from the ends for two small numbers of micro-batches.

    Each further micro-batch adds at least the work of the busiest device. With few micro-batches, this device may not
    yet delay the others. The difference between the two small numbers can then be too small.

    Parameters
    ----------
    fewer, more
        Ends in seconds by stage and configuration.
    share
        For each configuration, how many times the difference is added.
    least
        For each configuration, a lower bound of the difference: the seconds of the busiest device.
    """
    return np.asarray(more + share * np.maximum(more - fewer, least))


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
    """Return the runs in the order of a scheduler. Raises InputError if the scheduler finds no order.

    With `joins`, the outputs of finished runs stay in memory. The moments then count these runs in `done`.
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
    runs_of: list[list[tuple[int, int]]] = [[] for _ in range(devices)]
    for stage, phase, *_ in rows:
        runs_of[device_of[stage]].append((stage, phase))
    moments = tuple(_moments(runs, form.split, training, joins) for runs in runs_of)
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
"""Positions of the counts of a stage (see `Moment`), and how many counts a stage has."""


def _moments(runs: list[tuple[int, int]], split: bool, training: bool, joins: bool) -> tuple[Moment, ...]:
    """Return the moments at which a device may have its peak memory.

    A moment is left out if another moment of the same stage and phase has at least as much of everything.
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
    """Small numbers of micro-batches, with weights. The weighted sum of their times is the time for another number."""

    few: tuple[int, ...]
    weights: tuple[float, ...]


def counts_for(devices: int, stages_per_device: int, micro_batches: int, *, repeats: bool) -> Counts:
    """Return the numbers of micro-batches from whose times the time for `micro_batches` follows, with their weights.

    With `repeats`, the order repeats once the pipeline is full. Each further filling of the pipeline then takes the
    same time. So the time follows from the times for two small numbers of micro-batches.
    """
    fewer, more = (devices * (times + stages_per_device) for times in _EXTRA_FILLINGS)
    if not repeats or micro_batches <= 2 * more:
        return Counts((micro_batches,), (1.0,))
    share = (micro_batches - more) / (more - fewer)
    return Counts((fewer, more), (-share, 1.0 + share))
