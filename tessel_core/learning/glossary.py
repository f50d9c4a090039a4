"""The words of the field, with their formulas filled in for a plan."""

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
    """One word."""

    name: str
    meaning: str
    filled: Filled | None = None
    """Its formula with the numbers of a plan and a number of micro-batches; empty where it does not apply."""


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
    return f"{plan.devices[d].name} has room for all that {several} acquire"


def _imbalance(plan: MicroBatchPlan, micro_batches: int) -> str:
    mean, most = Fraction(sum(plan.work), len(plan.work)), plan.busiest_work
    numbers = f"({_time(most, plan)} − {_time(mean, plan)}) / {_time(most, plan)}"
    return f"(most − mean) / most work = {numbers} = {float((most - mean) / most):.1%}"


GLOSSARY = (
    Term(
        "Micro-batch",
        "A part of a batch that goes through the network by itself. Gradients of all of them are summed.",
    ),
    Term("Stage", "What one device holds of a network that is cut along its depth."),
    Term(
        "Block",
        "Work that one micro-batch does on a device, or on several at once: a forward pass, a backward pass or a "
        "part of one.",
    ),
    Term("Run", "One block for one micro-batch; a schedule says when each run starts."),
    Term(
        "Forward and backward pass",
        "The forward pass computes a stage's output. The backward pass computes the gradients of its input and of"
        " its weights.",
    ),
    Term(
        "Split backward pass",
        "The gradient of the input (B), which others wait for, and that of the weights (W), which can wait.",
    ),
    Term(
        "Activations",
        "What a forward pass keeps for its backward pass. They are what fills the memory of a pipeline.",
    ),
    Term("Placement", "Which operators lie on which device. It decides what each device has to do, and what is sent."),
    Term("Schedule", "When each run starts. It decides how long devices wait, and how much they hold at once."),
    Term("Makespan", "The time from the first start to the last end of all micro-batches.", _makespan),
    Term("Period", "The time from one micro-batch to the next in a schedule that repeats.", _period),
    Term(
        "Repeated stretch (repetend)",
        "The part of a schedule that repeats, between warmup and cooldown. A search for it need not look at more "
        "than a few micro-batches.",
    ),
    Term(
        "Warmup and cooldown",
        "What comes before the repeated stretch, while the pipeline fills, and after it, while it drains.",
    ),
    Term(
        "Unroll",
        "How many micro-batches one repetition holds. Where memory is tight, several repeat in less time than one"
        " by one.",
    ),
    Term("Idle time", MEANINGS["idle"]),
    Term("Imbalance", MEANINGS["imbalance"], _imbalance),
    Term("Bubble", MEANINGS["bubble"]),
    Term(
        "Bubble of GPipe",
        "Where all p stages last equally long, the share of idle time with m micro-batches.",
        _bubble,
    ),
    Term("Capacity", "What a device can hold at most, weights and activations together.", _capacity),
    Term("Bound", "A number that no schedule or placement can be below, with a proof."),
    Term("Gap", "(Found − bound) / found: at most so much could be saved. Proved optimal means that it is zero."),
    Term(
        "Critical path",
        "A chain of runs, each of which waits for the one before it, from the start to the end. Only what is on "
        "it decides the makespan.",
    ),
    Term("GPipe", "All forward passes, then all backward passes. Every device holds every micro-batch."),
    Term(
        "1F1B",
        "One forward, one backward in turn after a short warmup. It holds no more micro-batches than there are stages.",
    ),
    Term(
        "Interleaving",
        "Several smaller stages a device. The pipeline fills sooner, for more memory and more messages.",
    ),
    Term(
        "Zero bubble",
        "Schedules with split backward passes whose weight gradients fill what would be idle: ZB-H1, ZB-H2 and ZB-V.",
    ),
    Term(
        "V, X, M, K and NN",
        "Shapes of placements: a line down and up the devices; two lines in opposite directions; a V between "
        "blocks on all devices; two branches that join; two such M in a row.",
    ),
    Term(
        "Data, tensor and pipeline parallelism",
        "Copies of the network; every operator cut over devices; layers cut into stages. A strategy uses all "
        "three at once.",
    ),
    Term(
        "Ideal",
        "A set of operators that holds, with each operator, everything it needs. Placements into pipeline stages "
        "are chains of ideals.",
    ),
    Term("Link time (lag)", "How long what a block makes is on its way to the next device."),
    Term("Hang", "Ranks whose sends and receives wait for each other in a circle. None of them ever goes on."),
)
"""From what a pipeline is made of to what is proved of it."""
