"""The least memory at which a plan has a schedule."""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.structure import memory_intervals_on


def find_fitting_order(
    plan: MicroBatchPlan, effort: Effort, control: Control
) -> tuple[Verdict, tuple[int, ...] | None]:
    """Return the verdict of CP-SAT, and an order of blocks in which one micro-batch alone fits in memory, or None.

    If one micro-batch alone does not fit, no schedule fits, because other micro-batches only add memory. If it fits,
    running micro-batches one after another fits too.
    """
    capacities = [device.activation_capacity for device in plan.devices]
    if all(c is None or c >= peak for c, peak in zip(capacities, _peaks(plan, plan.topological_order), strict=True)):
        return Verdict.FOUND, plan.topological_order
    cp, start, peaks = _one_micro_batch(plan)
    for capacity, peak in zip(capacities, peaks, strict=True):
        if capacity is not None:
            cp.add(peak <= capacity)
    answer = ask(cp, effort, control)
    if not answer.verdict.found:
        return answer.verdict, None
    return answer.verdict, tuple(sorted(range(len(plan.blocks)), key=lambda b: answer.value(start[b])))


def least_capacity(plan: MicroBatchPlan, effort: Effort, control: Control) -> int | None:
    """Return the least `memory_capacity`, equal on all devices, that allows a schedule.

    Return None if the least capacity was not proved in time.
    """
    static = [device.static_memory for device in plan.devices]
    easy = max(s + peak for s, peak in zip(static, _peaks(plan, plan.topological_order), strict=True))
    if easy == max(s + peak for s, peak in zip(static, _unavoidable(plan), strict=True)):
        return easy
    cp, _, peaks = _one_micro_batch(plan)
    capacity = cp.new_int_var(0, easy, "")
    for s, peak in zip(static, peaks, strict=True):
        cp.add(capacity >= s + peak)
    cp.minimize(capacity)
    answer = ask(cp, effort, control)
    return answer.value(capacity) if answer.verdict is Verdict.PROVED else None


def _peaks(plan: MicroBatchPlan, order: Sequence[int]) -> list[int]:
    """Return the peak memory of one micro-batch on each device if its blocks run in `order`."""
    held, peaks = [0] * len(plan.devices), [0] * len(plan.devices)
    for b in order:
        for d in plan.blocks[b].devices:
            held[d] += plan.blocks[b].memory
            peaks[d] = max(peaks[d], held[d])
    return peaks


def _unavoidable(plan: MicroBatchPlan) -> list[int]:
    """Return a lower bound on the peak memory of one micro-batch on each device.

    For each block, it takes the memory at the block's start if only two groups of blocks have run: its ancestors, and
    the releasing blocks that do not depend on it.
    """
    least = [0] * len(plan.devices)
    for d, on in enumerate(plan.blocks_on):
        for b in on:
            held = 0
            for a in on:
                memory = plan.blocks[a].memory
                surely_before = a == b or plan.ancestors[b] >> a & 1
                surely_after = plan.ancestors[a] >> b & 1
                held += memory if surely_before or (memory < 0 and not surely_after) else 0
            least[d] = max(least[d], held)
    return least


def _one_micro_batch(plan: MicroBatchPlan) -> tuple[cp_model.CpModel, list[cp_model.IntVar], list[cp_model.IntVar]]:
    """Build a model of one micro-batch with unit durations.

    Return the model, the start of each block, and the peak memory of each device.
    """
    cp = cp_model.CpModel()
    start = [cp.new_int_var(0, len(plan.blocks) - 1, "") for _ in plan.blocks]
    for a, b, _ in plan.arcs:
        cp.add(start[b] >= start[a] + 1)
    peaks = []
    for d, on in enumerate(plan.blocks_on):
        holds = memory_intervals_on(plan, d)
        peak = cp.new_int_var(0, sum(hold.amount for hold in holds), "")
        peaks.append(peak)
        cp.add_no_overlap(cp.new_fixed_size_interval_var(start[b], 1, "") for b in on)
        lengths = [cp.new_int_var(1, len(plan.blocks), "") for _ in holds]
        intervals = [
            cp.new_interval_var(start[hold.acquire], length, start[hold.release] + 1, "")
            for hold, length in zip(holds, lengths, strict=True)
        ]
        cp.add_cumulative(intervals, [hold.amount for hold in holds], peak)
    return cp, start, peaks
