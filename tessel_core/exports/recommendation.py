"""Write a recommendation as a JSON document. Keys of strategies are the option names of `tessel simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from tessel_core.inspection import idle_causes
from tessel_core.model import Schedule
from tessel_core.strategies.graphs.question import GraphStrategy
from tessel_core.strategies.graphs.timing import PlacedCandidate
from tessel_core.strategies.price_tags import PriceTag
from tessel_core.strategies.ranks import DEFAULT_RANK_ORDER
from tessel_core.strategies.recommendation import AnyQuestion, Candidate, Recommendation
from tessel_core.strategies.searched_order import SearchedOrder

_FIELDS = (
    *("data", "tensor", "context", "expert", "pipeline", "stages_per_device", "micro_batches", "schedule", "zero"),
    *("reshard", "sequence_parallel", "grad_dtype", "compiled"),
)


def recommendation_document(
    found: Recommendation[AnyQuestion],
    half: Recommendation[AnyQuestion] | None = None,
    schedule: Schedule | None = None,
    prices: Sequence[PriceTag] = (),
) -> dict[str, object]:
    """Return the recommendation as one document.

    `half` is the recommendation for half of the devices. `schedule` and `prices` belong to the fastest strategy. If
    this strategy has one stage, it has no schedule.
    """
    question = found.question
    return {
        "best": _strategy(question, found.best),
        "front": [_strategy(question, each) for each in found.front],
        "configurations": found.configurations,
        "simulated": found.simulated,
        "ruled_out": found.ruled_out,
        "infeasible": dict(found.infeasible),
        "bound_s": found.bound_s,
        "proved": found.complete and found.best is not None,
        "half_the_devices": None if half is None else _strategy(half.question, half.best),
        "leanest": _strategy(question, found.leanest),
        "idle_causes": schedule and {str(c): float(share) for c, share in idle_causes(schedule).shares.items()},
        **({"prices": [_price(question, each) for each in prices]} if prices else {}),
        **({} if found.best else {"status": "INFEASIBLE"}),
    }


def _price(question: AnyQuestion, tag: PriceTag) -> dict[str, object]:
    """Return a change of the strategy, the strategy after it, and whether that one fits into memory."""
    fits = not tag.candidate.outcome.reason
    return {"kind": tag.kind, "change": tag.change, "fits": fits, "strategy": _strategy(question, tag.candidate)}


def searched_document(found: Recommendation[AnyQuestion], orders: Sequence[SearchedOrder]) -> dict[str, object]:
    """Return the pipelines whose orders were searched, shortest step first."""
    return {"searched_orders": [_searched(found.question, each) for each in orders]}


def _searched(question: AnyQuestion, each: SearchedOrder) -> dict[str, object]:
    """Return the strategy, and its times with the published order and with the shorter order that was found."""
    return {
        "strategy": _strategy(question, each.candidate),
        "order": each.report.solver,
        "latency_s": each.latency,
        "bound_s": each.bound,
        "makespan_s": each.makespan_s,
        "named_makespan_s": each.named_makespan_s,
        "proved": each.proved,
    }


def _placement(candidate: Candidate) -> dict[str, object]:
    """Return the stages of an operator graph, and the proof of their placement. Empty for a network."""
    if not isinstance(candidate, PlacedCandidate) or not isinstance(candidate.strategy, GraphStrategy):
        return {}
    strategy, pipeline = candidate.strategy, candidate.pipeline
    return {
        "replicas": list(strategy.replicas or (1,) * strategy.pipeline),
        "layout_shape": str(strategy.shape) if strategy.stages_per_device > 1 else None,
        "largest_load_s": pipeline.load,
        "largest_load_bound_s": pipeline.bound,
        "placement_proved": pipeline.proved,
        "step_bound_s": min(candidate.step_bound, candidate.outcome.latency),
    }


def _strategy(question: AnyQuestion, candidate: Candidate | None) -> dict[str, object] | None:
    if candidate is None:
        return None
    strategy, outcome = candidate.strategy, candidate.outcome
    rates = asdict(question.rates(strategy, outcome.latency))
    return {
        **{name: getattr(strategy, name) for name in _FIELDS},
        "context_method": str(strategy.context_method),
        "recompute": str(strategy.recompute),
        "rank_order": ",".join(strategy.rank_order or DEFAULT_RANK_ORDER),
        "layout": ",".join(map(str, strategy.layout)) or None,
        "latency_s": outcome.latency,
        **rates,
        **_placement(candidate),
        "peak_memory": list(outcome.peaks),
    }
