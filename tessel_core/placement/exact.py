"""Deepening: the same question under growing limits, so that little more is searched than the answer needs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT
from tessel_core.placement.best import Best, Split
from tessel_core.placement.bounds import PricedWork, highest_load, priced_work
from tessel_core.placement.chain import ChainSearch
from tessel_core.placement.ideals import Ideals, all_ideals, prefixes
from tessel_core.placement.orders import promising_orders
from tessel_core.placement.rescaling import rescaled_search
from tessel_core.placement.stages import Pipeline

_FIRST_STEP = 2e-3
"""Of the bound: how far above it the first limit is; each further step is twice as long."""
_EQUAL = 1e-12
"""Loads that differ by less, relatively, are the same: they are sums of floats."""


def best_chain(pipeline: Pipeline, most_ideals: int, control: Control, known: Split | None = None) -> Best:
    """The chain of least largest load: from a few linear orders first, then over all ideals.

    `known` is a chain to be beaten.  Where there are more ideals than `most_ideals`, or `control` stops, what comes
    back is the best so far.
    """

    def search(asked: Pipeline, beaten: Split | None) -> Best:
        return _best_chain(asked, most_ideals, control, beaten)

    return rescaled_search(pipeline, THROUGHPUT, known, search)


def _best_chain(pipeline: Pipeline, most_ideals: int, control: Control, known: Split | None) -> Best:
    priced = priced_work(pipeline)
    best = best_in_orders(pipeline, promising_orders(pipeline), control, known)
    if control.stopped or best.complete:
        return best
    bits = all_ideals(pipeline, most_ideals)
    if bits is None:
        return best
    return _deepen(pipeline, Ideals.of(pipeline, bits, priced.work), priced, best, control)


def best_in_orders(
    pipeline: Pipeline, orders: Sequence[Sequence[int]], control: Control, known: Split | None = None
) -> Best:
    """The best of `known` and the chains whose ideals are prefixes of some orders; the bound is one on all chains."""
    priced = priced_work(pipeline)
    ideals = Ideals.of(pipeline, prefixes(orders), priced.work)
    chain = _deepen(pipeline, ideals, priced, Best(known, priced.bound, False), control.quiet()).split
    meets = chain is not None and chain.load <= priced.bound * (1 + _EQUAL)
    return Best(chain, priced.bound, meets)


def _deepen(pipeline: Pipeline, ideals: Ideals, priced: PricedWork, best: Best, control: Control) -> Best:
    """The best chain of `ideals`, none below `best.bound` and none worse than `best.split`."""
    search = ChainSearch(pipeline, ideals, priced)
    top = best.split.load if best.split else highest_load(pipeline) * (1 + 1e-6) + 1e-300
    bound, step = best.bound, max(best.bound, top * 1e-3) * _FIRST_STEP
    while bound < top * (1 - _EQUAL):
        limit = min(bound + step, top) if bound + step > bound else top
        found = search.below(limit, control)
        if found is not None:
            return Best(found, found.load, True)
        if control.stopped:
            return Best(best.split, bound, False)
        bound, step = limit, 2 * step
        control.report("ideals", Fraction(best.split.load) if best.split else None, Fraction(bound))
    return Best(best.split, bound, True)
