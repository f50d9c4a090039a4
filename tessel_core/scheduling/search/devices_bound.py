"""The devices bound: how long the micro-batches take where only a few devices are busy with one run at a time.

Leaving out all devices but a few is a valid relaxation: the blocks of the others take their time, on as many
devices as they like and with as much memory, so they are lags between the blocks that are left, heads before them and
tails after them.  One device is Carlier's one-machine problem with delays and a memory window, which CP-SAT solves in
milliseconds; each further device makes the answer better and slower  [Carlier 1982; Adams, Balas, Zawack 1988].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import ceil

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.search.devices_model import MOST_RUNS, DevicesModel, quantum_of
from tessel_core.scheduling.structure import path_lengths

_SHARE_ALONE, _SHARE_TOGETHER, _SHARE_EXCLUDED = 0.05, 0.05, 0.4
"""Shares of the time left for one question; one that is settled is not counted, because it is soon settled or never."""
_NEAR = 500
"""A gap of one part in so many is not worth another question."""
_EXCLUDING_STEPS = 400
"""Horizons are excluded on a coarser copy: it loses less than what finer ones leave unanswered."""
_UNANSWERED = 3
"""Questions without an answer after which a set of devices is given up."""


def devices_bound(
    plan: MicroBatchPlan, micro_batches: int, least: int, effort: Effort, control: Control, *, known: int | None = None
) -> int:
    """A bound on the makespan, at least `least`: of every device alone, then of ever larger sets of devices.

    `known` is the makespan of a schedule; nothing longer is looked at.
    """
    control = control if effort.repeatable else control.part(effort.seconds)
    left = effort.seconds
    alone: dict[int, int] = {}
    for d in _along_the_way(plan):
        asked = effort.within(left * _SHARE_ALONE)
        alone[d], proved = bound_of((d,), plan, micro_batches, 0, asked, control, known)
        left -= 0 if proved else asked.seconds
    least = max([least, *alone.values()])
    for devices in _growing_sets(alone):
        if control.stopped or (known is not None and least >= known):
            break
        asked = effort.within(left * _SHARE_TOGETHER)
        least, proved = bound_of(devices, plan, micro_batches, least, asked, control, known)
        if not proved:
            left -= asked.seconds
            if known is not None:
                asked = effort.within(left * _SHARE_EXCLUDED)
                least, answered = _excluded(devices, plan, micro_batches, least, known, asked, control)
                left -= 0 if answered else asked.seconds
    return least


def _along_the_way(plan: MicroBatchPlan) -> list[int]:
    """Devices that have something to do, in the order in which a micro-batch may first come to them."""
    heads, _ = path_lengths(plan)
    busy = [d for d, on in enumerate(plan.blocks_on) if on]
    return sorted(busy, key=lambda d: min(heads[b] for b in plan.blocks_on[d]))


def _growing_sets(alone: Mapping[int, int]) -> Iterable[tuple[int, ...]]:
    """The two devices that bind most `alone`, with ever more others, evenly spread along the way of a micro-batch."""
    way = list(alone)
    binding = sorted(way, key=lambda d: -alone[d])[:2]
    sizes = range(2, len(way) + 1)
    spread = ({way[step * (len(way) - 1) // (size - 1)] for step in range(size)} for size in sizes)
    return dict.fromkeys(tuple(sorted(each.union(binding))) for each in spread)


def bound_of(
    devices: Collection[int],
    plan: MicroBatchPlan,
    micro_batches: int,
    least: int,
    effort: Effort,
    control: Control,
    known: int | None = None,
) -> tuple[int, bool]:
    """A bound on the makespan, at least `least`, from the rules of `devices` alone, and whether they have no better."""
    kept = sum(len(plan.blocks_on[d]) for d in devices)
    if kept * micro_batches > MOST_RUNS:
        return least, True
    quantum = quantum_of(plan)
    horizon = max(micro_batches * plan.total_time if known is None else known, least) // quantum
    model = DevicesModel(plan, micro_batches, frozenset(devices), quantum, horizon)
    model.minimise(least // quantum, horizon)
    answer = ask(model.cp, effort, control)
    if not answer.verdict.found:
        return least, False
    return max(least, quantum * ceil(answer.bound - 1e-6)), answer.verdict is Verdict.PROVED


def _excluded(
    devices: Collection[int],
    plan: MicroBatchPlan,
    micro_batches: int,
    least: int,
    known: int,
    effort: Effort,
    control: Control,
) -> tuple[int, bool]:
    """A bound of at least `least` from questions without an objective, and whether all of them were answered.

    Halves the gap between what is excluded and what these devices can do; after a question without an answer it asks
    nearer to what is excluded.
    """
    if micro_batches * sum(len(plan.blocks_on[d]) for d in devices) > MOST_RUNS:
        return least, True
    quantum, possible = quantum_of(plan, _EXCLUDING_STEPS), known
    effort = replace(effort, seconds=effort.seconds / _UNANSWERED, workers=1, relaxation=False)
    unanswered = 0
    while unanswered < _UNANSWERED and (possible - least) * _NEAR > possible and not control.stopped:
        target = (least + possible) // 2
        model = DevicesModel(plan, micro_batches, frozenset(devices), quantum, target // quantum)
        answer = ask(model.cp, effort, control)
        if answer.verdict is Verdict.IMPOSSIBLE:
            least = max(least, (target // quantum + 1) * quantum)
        elif answer.verdict.found:
            possible = target
        else:
            possible, unanswered = target, unanswered + 1
    return least, not unanswered
