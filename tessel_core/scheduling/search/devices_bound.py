"""The devices bound: the least makespan if only a few devices are limited to one run at a time.

Relaxing the rules of all other devices is valid. Their blocks keep their durations, but have no limit on devices or
memory. So they become least times between the remaining blocks (lags), before them (heads) and after them (tails). One
device is Carlier's one-machine problem with delays and a memory window, which CP-SAT solves in milliseconds. Each
further device makes the bound better and slower. [Carlier 1982; Adams, Balas, Zawack 1988]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import ceil

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.search.devices_model import MAX_RUNS, DevicesModel, quantum_of
from tessel_core.scheduling.structure import path_lengths

_SHARE_ALONE, _SHARE_TOGETHER, _SHARE_EXCLUDED = 0.05, 0.05, 0.4
"""Shares of the remaining time: for a model of one device, for one of several devices, and for excluding horizons.

The time of a model that CP-SAT decides is not subtracted, because it is short.
"""
_MIN_GAP_DIVISOR = 500
"""No further model is solved if the gap is below makespan / 500."""
_EXCLUDING_STEPS = 400
"""Number of quanta in the busiest device's work when horizons are excluded.

With more quanta, CP-SAT decides fewer models in time.
"""
_MAX_UNANSWERED = 3
"""Give up a set of devices after this many models that were not decided in time."""


def devices_bound(
    plan: MicroBatchPlan, micro_batches: int, least: int, effort: Effort, control: Control, *, known: int | None = None
) -> int:
    """Return a lower bound on the makespan in ticks, at least `least`, from single devices and then from growing sets.

    `known` is the makespan of a known schedule. The search ends when the bound reaches it.
    """
    control = control if effort.repeatable else control.part(effort.seconds)
    left = effort.seconds
    alone: dict[int, int] = {}
    for d in _in_visiting_order(plan):
        limited = effort.within(left * _SHARE_ALONE)
        alone[d], proved = bound_of((d,), plan, micro_batches, 0, limited, control, known)
        left -= 0 if proved else limited.seconds
    least = max([least, *alone.values()])
    for devices in _growing_sets(alone):
        if control.stopped or (known is not None and least >= known):
            break
        limited = effort.within(left * _SHARE_TOGETHER)
        least, proved = bound_of(devices, plan, micro_batches, least, limited, control, known)
        if not proved:
            left -= limited.seconds
            if known is not None:
                limited = effort.within(left * _SHARE_EXCLUDED)
                least, answered = _excluded(devices, plan, micro_batches, least, known, limited, control)
                left -= 0 if answered else limited.seconds
    return least


def _in_visiting_order(plan: MicroBatchPlan) -> list[int]:
    """Return the devices that have blocks, in the order in which a micro-batch may first reach them."""
    heads, _ = path_lengths(plan)
    busy = [d for d, on in enumerate(plan.blocks_on) if on]
    return sorted(busy, key=lambda d: min(heads[b] for b in plan.blocks_on[d]))


def _growing_sets(alone: Mapping[int, int]) -> Iterable[tuple[int, ...]]:
    """Return growing sets of devices: the two with the best bounds, and others spread over the visiting order."""
    order = list(alone)
    binding = sorted(order, key=lambda d: -alone[d])[:2]
    sizes = range(2, len(order) + 1)
    spread = ({order[step * (len(order) - 1) // (size - 1)] for step in range(size)} for size in sizes)
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
    """Return a lower bound on the makespan in ticks, and whether it is the best that the rules of `devices` give.

    The bound is at least `least`. Sets with too many runs are not modelled.
    """
    kept = sum(len(plan.blocks_on[d]) for d in devices)
    if kept * micro_batches > MAX_RUNS:
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
    """Return `least`, raised by excluding horizons, and whether CP-SAT decided every model.

    Each model asks for any schedule that ends by a horizon, halfway between the bound and the least makespan that seems
    possible. After a model without an answer, the next horizon is shorter.
    """
    if micro_batches * sum(len(plan.blocks_on[d]) for d in devices) > MAX_RUNS:
        return least, True
    quantum, possible = quantum_of(plan, _EXCLUDING_STEPS), known
    effort = replace(effort, seconds=effort.seconds / _MAX_UNANSWERED, workers=1, relaxation=False)
    unanswered = 0
    while unanswered < _MAX_UNANSWERED and (possible - least) * _MIN_GAP_DIVISOR > possible and not control.stopped:
        target = (least + possible) // 2
        model = DevicesModel(plan, micro_batches, frozenset(devices), quantum, target // quantum).with_order_literals()
        answer = ask(model.cp, effort, control)
        if answer.verdict is Verdict.IMPOSSIBLE:
            least = max(least, (target // quantum + 1) * quantum)
        elif answer.verdict.found:
            possible = target
        else:
            possible, unanswered = target, unanswered + 1
    return least, not unanswered
