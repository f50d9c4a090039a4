"""Sentences about the searched orders of pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.strategies.searched_order import SearchedOrder
from tessel_core.units import show_time


def order_sentences(orders: Sequence[SearchedOrder]) -> tuple[str, ...]:
    """Return one line for each pipeline: the order that the search found, and the proof of its length."""
    return tuple(f"{each.candidate.strategy.summary}: {_result(each)} {_proof(each)}" for each in orders)


def _result(order: SearchedOrder) -> str:
    named = order.candidate.strategy.schedule
    if not order.is_shorter:
        return f"the search found no shorter order than {named}."
    saved = show_time(order.named_makespan_s - order.makespan_s, "s")
    step = show_time(order.latency, "s")
    return f"a step takes {step} in the order that the search found, {saved} less than in {named}."


def _proof(order: SearchedOrder) -> str:
    if order.proved:
        return "No order of these stages within memory is shorter."
    return f"No order of these stages within memory takes less than {show_time(order.bound, 's')}."
