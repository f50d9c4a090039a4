"""Print recommendations, and ask for half of the devices. Networks and operator graphs share this code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tessel_core.cli.output import console, table
from tessel_core.cli.solving import solve
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import Schedule
from tessel_core.strategies.price_tags import PriceTag
from tessel_core.strategies.recommendation import AnyQuestion, Candidate, Recommendation
from tessel_core.strategies.searched_order import SearchedOrder
from tessel_core.units import counted, show_memory, show_time
from tessel_core.workbench.messages.recommendation import (
    idle_sentence,
    order_sentences,
    placement_sentences,
    price_sentences,
    proof_sentences,
    refusal,
)

Asked = TypeVar("Asked", bound=AnyQuestion)
_SHOWN = 3
"""Number of rows that the table shows between the fastest strategy and the one with the least memory."""
_HEADINGS = ("", "step", "samples/s", "tokens/s per GPU", "MFU", "memory", "strategy")


def for_half(
    asked: Asked | None, searcher: Callable[[Asked, Control], Recommendation[Asked]], time_limit: float
) -> Recommendation[Asked] | None:
    """Return the recommendation for half of the devices.

    None if `asked` is None, which means that their number is odd, or if no strategy fits half of them.
    """
    if asked is None:
        return None
    try:
        return solve(lambda control: searcher(asked, control), "s", time_limit)
    except InputError:
        return None


def show_recommendation(
    found: Recommendation[AnyQuestion],
    half: Recommendation[AnyQuestion] | None,
    orders: Sequence[SearchedOrder],
    schedule: Schedule | None,
    tags: Sequence[PriceTag] = (),
) -> None:
    """Print a table of strategies, and sentences on what is proved and what would be faster."""
    question = found.question
    screen = console(f"{question.title} on {counted(question.devices, 'device')} of {question.mesh.name}")
    if found.best is None:
        for line in refusal(found):
            screen.print(line, soft_wrap=True)
        return
    named = [("fastest", question, found.best)]
    if half is not None and half.best is not None:
        named.append(("half the devices", half.question, half.best))
    named += [("searched order", question, each.shorter) for each in orders[:1] if each.is_shorter]
    named += [("less memory", question, each) for each in _spread(found.front[1:-1], _SHOWN)]
    named += [("least memory", question, each) for each in found.front[1:][-1:]]
    cells = [(title, *_row(of, candidate)) for title, of, candidate in named]
    known = [i for i, column in enumerate(zip(*cells, strict=True)) if any(column)]
    rows = table(*(_HEADINGS[i] for i in known), padding=(0, 1))
    for each in cells:
        rows.add_row(*(each[i] for i in known))
    screen.print(rows)
    idle = [] if schedule is None else [idle_sentence(schedule)]
    placed = placement_sentences(found.best)
    said = (*proof_sentences(found), *placed, *order_sentences(orders), *idle, *price_sentences(found.best, tags))
    for line in said:
        screen.print(line, soft_wrap=True)


def _spread(candidates: Sequence[Candidate], most: int) -> Sequence[Candidate]:
    """Return at most `most` candidates, at even distances in the sequence."""
    count = len(candidates)
    return candidates if count <= most else [candidates[i * count // most] for i in range(most)]


def _row(question: AnyQuestion, candidate: Candidate) -> tuple[str, ...]:
    """Return the cells of a row: step time, rates, utilisation, memory and strategy. Unknown cells are empty.

    Samples per second are shown only if there are no tokens.
    """
    strategy, seconds = candidate.strategy, candidate.outcome.latency
    rates = question.rates(strategy, seconds)
    tokens, share = rates.tokens_per_s_per_device, rates.model_flops_utilization
    return (
        show_time(seconds, "s"),
        f"{rates.samples_per_s:,.0f}" if tokens is None else "",
        "" if tokens is None else f"{tokens:,.0f}",
        "" if share is None else f"{share:.1%}",
        show_memory(candidate.peak, "B"),
        strategy.summary,
    )
