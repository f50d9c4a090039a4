"""Sentences about a recommended strategy: its proof, idle time, possible speed-ups, and reasons if nothing fits."""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.inspection import Cause, IdleSplit, idle_causes
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.strategies.graphs.timing import PlacedCandidate
from tessel_core.strategies.price_tags import LAYER, MORE_MEMORY_CHANGE, PriceTag
from tessel_core.strategies.recommendation import TOO_LARGE, AnyQuestion, Candidate, Recommendation
from tessel_core.strategies.searched_order import SearchedOrder
from tessel_core.units import counted, show_memory, show_time
from tessel_core.workbench.messages.idle import percent


def proof_sentences(found: Recommendation[AnyQuestion]) -> tuple[str, ...]:
    """Return sentences on the proof for the fastest strategy, and on the configurations that were ruled out."""
    if found.best is None:
        return ()
    count = counted(found.configurations, "configuration")
    scope = f"of the {count} of these ranges, under this cost model"
    first = f"The fastest {scope}." if found.complete else f"The fastest found {scope}; the search was stopped."
    judged = [f"{found.simulated:,} were timed", f"{found.ruled_out:,} were ruled out by a bound"]
    judged += _infeasible_clauses(found, most=3)
    lines = [first, f"{'; '.join(judged)}."]
    if found.bound_s is not None:
        less = 1 - found.bound_s / found.best.outcome.latency
        bound = f"No configuration that fits takes less than {show_time(found.bound_s, 's')} ({less:.1%} less)."
        placed = isinstance(found.best, PlacedCandidate)
        meaning = (
            "load of its busiest device" if placed else "work of its busiest device, without the exchanges of replicas"
        )
        lines.append(f"{bound} This bound is the {meaning}.")
    return tuple(lines)


def placement_sentences(candidate: Candidate) -> tuple[str, ...]:
    """Return a sentence on the largest load of the placement of an operator graph. Empty for a network."""
    if not isinstance(candidate, PlacedCandidate):
        return ()
    pipeline, kind = candidate.pipeline, candidate.placed.configuration.kind
    load = f"The largest load of a device is {show_time(pipeline.load, 's')} per micro-batch"
    if pipeline.proved:
        return (f"{load}, the smallest of all contiguous placements in {kind}.",)
    if not pipeline.bound:
        return (f"{load}.",)
    return (f"{load}. No contiguous placement in {kind} has one below {show_time(pipeline.bound, 's')}.",)


def _infeasible_clauses(found: Recommendation[AnyQuestion], most: int) -> list[str]:
    """Return one clause for each of the `most` commonest reasons, and one clause that counts the others."""
    reasons = list(found.infeasible.items())
    clauses = [
        f"{number:,} {'does' if number == 1 else 'do'} not fit into memory"
        if reason == TOO_LARGE
        else f"{number:,} {'is' if number == 1 else 'are'} impossible: {reason}"
        for reason, number in reasons[:most]
    ]
    rest = sum(number for _, number in reasons[most:])
    return clauses + [f"{rest:,} {'is' if rest == 1 else 'are'} impossible for other reasons"] * bool(rest)


def refusal(found: Recommendation[AnyQuestion]) -> tuple[str, ...]:
    """Explain why no strategy is possible, and which one comes closest. Empty if a strategy was found."""
    if found.best is not None:
        return ()
    lines = [f"None of the {found.configurations:,} configurations of these ranges is possible."]
    memory = max((device.memory_capacity or 0 for device in found.question.mesh.devices), default=0)
    if found.nearest is not None and memory:
        strategy, peak = found.nearest
        short = f"It needs {show_memory(peak, 'B')}, {show_memory(peak - memory, 'B')} more than a device has"
        lines.append(f"The closest is {strategy.summary}. {short}.")
    lines += [f"{clause}." for clause in _infeasible_clauses(found, most=4)]
    return tuple(lines)


def idle_sentence(schedule: Schedule) -> str:
    """Return a sentence on the share of time in which the pipeline is idle, and its causes, the largest first."""
    shares = sorted(idle_causes(schedule).shares.items(), key=lambda pair: -pair[1])
    causes = [f"{_CAUSES[cause]} {percent(share)}" for cause, share in shares if share]
    idle = percent(IdleSplit.of(schedule).idle)
    return f"The pipeline is idle {idle} of the time: {', '.join(causes)}." if causes else "The pipeline is never idle."


_CAUSES = {
    Cause.WARMUP: "warmup",
    Cause.COOLDOWN: "cooldown",
    Cause.ORDER: "runs that could start earlier",
    Cause.MEMORY: "waits for memory",
    Cause.PARTNERS: "waits for other devices of a group",
    Cause.COMMUNICATION: "waits for transfers",
    Cause.DATA: "waits for other stages",
}


def order_sentence(named: str, own: Schedule, report: ScheduleReport) -> str:
    """Return a sentence on whether a search found a shorter order than the schedule `own`, and what the search proved.

    `named` is the name of the order of `own`. `report` has the makespan as its objective.
    """
    unit, found = own.plan.time_unit, report.solution
    if found is None or found.makespan >= own.makespan:
        said = f"The search found no shorter order than {named}"
        shortest = own.makespan
    else:
        shorter = f"{1 - found.makespan / own.makespan:.1%} shorter than {named}"
        said = f"In the order that the search found, the pipeline takes {show_time(found.makespan, unit)}, {shorter}"
        shortest = found.makespan
    bound = min(report.makespan_bound, shortest)
    return f"{said}. {_order_proof(bound == shortest, show_time(bound, unit))}"


def order_sentences(orders: Sequence[SearchedOrder]) -> tuple[str, ...]:
    """Return one line for each pipeline: the effect of the order that the search found, and the proof of its length."""
    return tuple(
        f"{each.candidate.strategy.summary}: {_searched(each)} {_order_proof(each.proved, show_time(each.bound, 's'))}"
        for each in orders
    )


def _searched(order: SearchedOrder) -> str:
    named = order.candidate.strategy.schedule
    if not order.is_shorter:
        return f"the search found no shorter order than {named}."
    saved = show_time(order.candidate.outcome.latency - order.latency, "s")
    step = show_time(order.latency, "s")
    return f"a step takes {step} in the order that the search found, {saved} less than in {named}."


def _order_proof(proved: bool, bound: str) -> str:
    if proved:
        return "No order of these stages within memory is shorter."
    return f"No order of these stages within memory takes less than {bound}."


def price_sentences(base: Candidate, tags: Sequence[PriceTag]) -> tuple[str, ...]:
    """Return one sentence for each possible change of model or hardware.

    Each compares the step time after the change with that of `base`.
    """
    return tuple(_price(base, tag) for tag in tags)


def _price(base: Candidate, tag: PriceTag) -> str:
    after = tag.candidate
    step = f"{show_time(after.outcome.latency, 's')} ({_difference(base, after)})"
    if tag.kind == MORE_MEMORY_CHANGE:
        if after.strategy == base.strategy:
            return f"With {tag.change}, this strategy stays the fastest."
        return f"With {tag.change}, the fastest strategy takes {step}: {after.strategy.summary}."
    if after.outcome.reason:
        needs = f"it needs {show_memory(after.peak, 'B')}, more than a GPU has"
        return f"With {tag.change}, a step would take {step}, but {needs}."
    best = ", the best such move," if tag.kind == LAYER else ""
    return f"With {tag.change}{best or ','} a step takes {step}."


def _difference(base: Candidate, after: Candidate) -> str:
    """Return how much longer or shorter the step of `after` is than that of `base`, to a tenth of a percent."""
    more = after.outcome.latency / base.outcome.latency - 1
    shown = f"{abs(more):.1%}"
    return "as long" if shown == "0.0%" else f"{shown} {'more' if more > 0 else 'less'}"
