"""Searched orders of pipelines in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.strategies.searched_order import SearchedOrder
from tessel_core.units import show_time


def order_sentences(orders: Sequence[SearchedOrder]) -> tuple[str, ...]:
    """What the search found for each pipeline, and what is proved, one line each."""
    return tuple(f"{each.candidate.strategy.summary}: {_found(each)} {_proved(each)}" for each in orders)


def _found(each: SearchedOrder) -> str:
    named = each.candidate.strategy.schedule
    if not each.is_shorter:
        return f"the search found no shorter order than {named}."
    saved = show_time(each.named_makespan_s - each.makespan_s, "s")
    return f"a step takes {show_time(each.latency, 's')} in the order that was searched, {saved} less than in {named}."


def _proved(each: SearchedOrder) -> str:
    if each.proved:
        return "No order of these stages within memory is shorter."
    return f"No order of these stages within memory takes less than {show_time(each.bound, 's')}."
