"""Glossary of pipeline parallelism. Formulas show the numbers of the open plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.bounds import makespan_bound, period_bound
from tessel_core.units import counted, show_time
from tessel_core.workbench.messages.idle import MEANINGS

Filled = Callable[[MicroBatchPlan, int], str]


@dataclass(frozen=True, slots=True)
class Term:
    """A term and its meaning."""

    name: str
    meaning: str
    filled: Filled | None = None
    """Function from a plan and a number of micro-batches to the formula with numbers.

    It returns an empty text if the formula does not apply to the plan.
    """


def _time(ticks: Fraction | int, plan: MicroBatchPlan) -> str:
    return show_time(float(ticks), plan.time_unit)


def _bubble(plan: MicroBatchPlan, micro_batches: int) -> str:
    p = len(plan.devices)
    share = Fraction(p - 1, micro_batches + p - 1)
    return f"(p − 1) / (m + p − 1) = ({p} − 1) / ({micro_batches} + {p} − 1) = {float(share):.1%}"


def _makespan(plan: MicroBatchPlan, micro_batches: int) -> str:
    return f"no schedule of {micro_batches:,} ends before {_time(makespan_bound(plan, micro_batches), plan)}"


def _period(plan: MicroBatchPlan, micro_batches: int) -> str:
    busiest = plan.devices[plan.work.index(plan.busiest_work)].name
    works, least = _time(plan.busiest_work, plan), _time(period_bound(plan), plan)
    return f"{busiest} works {works} per micro-batch; no period is below {least}"


def _capacity(plan: MicroBatchPlan, micro_batches: int) -> str:
    rooms = [(device.activation_capacity, d) for d, device in enumerate(plan.devices)]
    held = [(room, sum(b.memory for b in plan.blocks if d in b.devices and b.memory > 0), d) for room, d in rooms]
    fits = [(room // each, d) for room, each, d in held if room is not None and room >= 0 and each]
    if not fits:
        return ""
    count, d = min(fits)
    several = counted(count, "micro-batch")
    return f"{plan.devices[d].name} has room for {several} at once"


def _imbalance(plan: MicroBatchPlan, micro_batches: int) -> str:
    mean, most = Fraction(sum(plan.work), len(plan.work)), plan.busiest_work
    numbers = f"({_time(most, plan)} − {_time(mean, plan)}) / {_time(most, plan)}"
    return f"(most − mean) / most work = {numbers} = {float((most - mean) / most):.1%}"


GLOSSARY = (
    Term(
        "Micro-batch",
        "A part of a batch that passes through the network by itself. The gradients of all micro-batches are summed.",
    ),
    Term("Stage", "The part of a network, cut along its depth, that one device holds."),
    Term(
        "Block",
        "Work that one micro-batch does on a device, or on several at once: a forward pass, a backward pass or a "
        "part of one.",
    ),
    Term("Run", "One block of one micro-batch. A schedule sets the start of each run."),
    Term(
        "Forward and backward pass",
        "The forward pass computes a stage's output. The backward pass computes the gradients of its input and of"
        " its weights.",
    ),
    Term(
        "Split backward pass",
        "A backward pass in two blocks: the gradient of the input (B), which other devices wait for, and the gradient "
        "of the weights (W), which can wait.",
    ),
    Term(
        "Activations",
        "Tensors that a forward pass keeps for its backward pass. They fill the memory of a pipeline.",
    ),
    Term(
        "Placement",
        "The device of each operator. It determines the work of each device and the transfers between them.",
    ),
    Term("Schedule", "The start of each run. It determines how long devices wait and how much memory they hold."),
    Term("Makespan", "The time from the first start to the last end of all micro-batches.", _makespan),
    Term("Period", "The time from one micro-batch to the next in a schedule that repeats.", _period),
    Term(
        "Repetend",
        "The part of a schedule that repeats, between warmup and cooldown. It can be found with only a few "
        "micro-batches.",
    ),
    Term(
        "Warmup and cooldown",
        "The parts before the repetend, while the pipeline fills, and after it, while it drains.",
    ),
    Term(
        "Unroll",
        "The number of micro-batches in one repetition. When memory is tight, a repetition of several micro-batches "
        "can take less time per micro-batch.",
    ),
    Term("Idle time", MEANINGS["idle"]),
    Term("Imbalance", MEANINGS["imbalance"], _imbalance),
    Term("Bubble", MEANINGS["bubble"]),
    Term(
        "Bubble of GPipe",
        "The share of idle time with m micro-batches if all p stages last equally long.",
        _bubble,
    ),
    Term("Capacity", "The largest memory of a device, for weights and activations together.", _capacity),
    Term("Bound", "A number below which no schedule or placement can be, with a proof."),
    Term(
        "Gap",
        "(Found − bound) / found: the most that a better answer could save. Proved optimal means that the gap is zero.",
    ),
    Term(
        "Critical path",
        "A chain of runs from the start to the end, each of which waits for the run before it. Its length is the "
        "makespan.",
    ),
    Term("GPipe", "All forward passes, then all backward passes. Every device holds every micro-batch."),
    Term(
        "1F1B",
        "One forward and one backward in turn after a short warmup. A device holds at most as many micro-batches as "
        "there are stages.",
    ),
    Term(
        "Interleaving",
        "Several smaller stages per device. The pipeline fills sooner, but needs more memory and more messages.",
    ),
    Term(
        "Zero bubble",
        "Schedules with split backward passes, whose weight gradients fill idle time: ZB-H1, ZB-H2 and ZB-V.",
    ),
    Term(
        "V, X, M, K and NN",
        "Shapes of placements: a line down and up the devices; two lines in opposite directions; a V between "
        "blocks on all devices; two branches that join; two such M in a row.",
    ),
    Term(
        "Data, tensor and pipeline parallelism",
        "Copies of the network; operators cut over several devices; layers divided into stages. A strategy can combine "
        "all three.",
    ),
    Term(
        "Ideal",
        "A set of operators that contains, with each operator, all its predecessors. Placements into pipeline stages "
        "are chains of ideals.",
    ),
    Term("Link time (lag)", "The time that the output of a block takes to reach the next device."),
    Term(
        "Hang",
        "A state in which sends and receives of ranks wait for each other in a circle, so that none of them continues.",
    ),
)
"""Terms in the order of the page: first the parts of a pipeline, last proofs."""
