"""What-if changes: other durations, link times and memory for all plans of a comparison.

A change keeps the blocks of a plan, their memory and its samples per micro-batch, so the changed plan is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import gcd

from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan
from tessel_core.scheduling import BASELINES, Comparison, Question
from tessel_core.units import show_memory, show_time

_COUNTS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128)
_FACTORS = tuple(sorted({Fraction(n, d) for d in (3, 4, 10) for n in range(1, 3 * d + 1) if 4 * n >= d}))
_MIN_ROUNDED_TICKS = 100
"""Scaled durations of at least this many ticks are rounded to whole ticks.

If a plan has shorter durations, only factors that give whole ticks are offered.
"""
_LINKS = (0, 1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400)
"""Link times on the slider, in percent of the longest block."""
_MAX_UNIT_STEPS = 32
"""A memory capacity of at most this many units changes in steps of one unit.

A larger capacity changes in steps of a twentieth.
"""
_MAX_INTERACTIVE_RUNS = 50_000


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes to plans.  The defaults change nothing."""

    micro_batches: int | None = None
    """Number of micro-batches, counted like `Comparison.micro_batches`; None keeps the comparison's number."""
    backward: Fraction = Fraction(1)
    """Factor for the durations of backward blocks and weight gradients."""
    link: int = 0
    """Ticks added to lags between blocks on different devices; may be negative.  A lag never falls below 0."""
    capacity: int = 0
    """Memory units added to every device that has a limit; may be negative."""
    pace: Fraction = Fraction(1)
    """Factor for the durations of blocks on `device`.

    A block on several devices gets the largest factor of its devices.
    """
    device: int = 0
    """Index of the device to which `pace` applies."""

    def plan(self, plan: MicroBatchPlan) -> MicroBatchPlan:
        """Return the changed plan.  Durations are rounded to whole ticks, at least one."""
        return replace(
            plan,
            blocks=tuple(map(self._block, plan.blocks)),
            dependencies=tuple(self._arc(plan, arc) for arc in plan.dependencies),
            devices=tuple(
                each
                if each.memory_capacity is None
                else replace(each, memory_capacity=max(0, each.memory_capacity + self.capacity))
                for each in plan.devices
            ),
        )

    def comparison(self, comparison: Comparison) -> Comparison:
        """Return the comparison with all plans changed.  Pairs keep their names.

        Raises InputError if a pair gets no whole number of micro-batches, or if two pairs become equal.
        """
        if self.micro_batches is not None:
            comparison = comparison.with_micro_batches(self.micro_batches)
        changed = {pair: replace(pair, plan=self.plan(pair.plan)) for pair in comparison.pairs}
        names = {changed[pair]: name for pair, name in comparison.names.items()}
        return replace(comparison, pairs=tuple(changed.values()), names=names)

    def of_whole(self, part: Comparison, whole: Comparison) -> WhatIf:
        """Convert these changes from the comparison `part` to the comparison `whole` that contains it.

        Each counts micro-batches in the smallest micro-batch of its pairs, so their number differs.
        """
        if self.micro_batches is None or not part.micro_batches or not whole.micro_batches:
            return self
        return replace(self, micro_batches=self.micro_batches * whole.micro_batches // part.micro_batches)

    def _block(self, block: Block) -> Block:
        factor = self.backward if block.kind in (BlockKind.BACKWARD, BlockKind.WEIGHT) else Fraction(1)
        factor *= max(self.pace if device == self.device else Fraction(1) for device in block.devices)
        return replace(block, duration=max(1, round(block.duration * factor)))

    def _arc(self, plan: MicroBatchPlan, arc: Dependency) -> Dependency:
        return replace(arc, lag=max(0, arc.lag + self.link)) if _crosses(plan, arc) else arc


def _crosses(plan: MicroBatchPlan, arc: Dependency) -> bool:
    ends = (plan.blocks[plan.block_index(name)].devices for name in (arc.predecessor, arc.successor))
    return arc.lag > 0 or set(next(ends)).isdisjoint(next(ends))


@dataclass(frozen=True, slots=True)
class Slider:
    """A slider for one field of `WhatIf`, with its stops in ascending order."""

    field: str
    label: str
    about: str
    stops: tuple[object, ...]
    """Values of the field, including the one that changes nothing."""
    texts: tuple[str, ...]
    """Text shown for each stop."""
    own: int
    """Index of the stop that changes nothing."""
    of: str = ""
    """Name of the device that the slider changes. Empty if it changes several devices."""

    @property
    def title(self) -> str:
        """Label of the slider, with the name of the device."""
        return f"{self.label} {self.of}".rstrip()

    def at(self, what_if: WhatIf) -> int:
        """Return the index of the stop for the field's value in `what_if`.

        Return the unchanged stop if the slider does not offer that value.
        """
        value = getattr(what_if, self.field)
        return self.stops.index(value) if value in self.stops else self.own

    def spread(self, most: int) -> tuple[int, ...]:
        """Return at most `most` evenly spaced stops from the first to the last, including the unchanged stop."""
        last, steps = len(self.stops) - 1, max(1, min(most, len(self.stops)) - 1)
        evenly = [(2 * i * last + steps) // (2 * steps) for i in range(steps + 1)]
        nearest = min(evenly, key=lambda each: abs(each - self.own))
        return tuple(sorted({self.own if each == nearest else each for each in evenly}))


def what_if_at(shown: Sequence[Slider], at: Mapping[str, int], device: int) -> WhatIf:
    """Return the changes for the chosen stop of each field.

    A field without a slider, or with a stop that does not exist, stays unchanged.
    """
    stops = {each.field: at.get(each.field, each.own) for each in shown}
    known = {each.field: each.stops[stop] for each in shown if 0 <= (stop := stops[each.field]) < len(each.stops)}
    return WhatIf(device=device, **known)  # type: ignore[arg-type]


def settled(pairs: tuple[Question, ...], what_if: WhatIf) -> WhatIf:
    """Return `what_if` without changes that the sliders of these pairs do not offer."""
    device = what_if.device if what_if.device < len(pairs[0].plan.devices) else 0
    shown = sliders(pairs, device)
    return what_if_at(shown, {each.field: each.at(what_if) for each in shown}, device)


@lru_cache(maxsize=16)
def sliders(pairs: tuple[Question, ...], device: int = 0) -> tuple[Slider, ...]:
    """Return the sliders that apply to these pairs.  The last one changes the durations on `device`."""
    offered = (_counts(pairs), _backward(pairs), _links(pairs), _capacities(pairs), _paces(pairs, device))
    return tuple(slider for slider in offered if slider is not None)


def at_once(pairs: Iterable[Question]) -> frozenset[Question]:
    """Return the pairs whose times can be computed while a slider moves.

    These are published orders with up to 50,000 runs.
    """
    fast, left = set[Question](), _MAX_INTERACTIVE_RUNS
    for pair in pairs:
        runs = len(pair.plan.blocks) * pair.micro_batches
        if pair.scheduler in BASELINES and runs <= left:
            fast.add(pair)
            left -= runs
    return frozenset(fast)


def _slider(
    field: str, label: str, about: str, values: Iterable[object], text: Callable[[object], str], own: object
) -> Slider | None:
    stops = tuple(sorted({*values, own}))  # type: ignore[type-var]
    if len(stops) < 2:
        return None
    return Slider(field, label, about, stops, tuple(map(text, stops)), stops.index(own))


def _counts(pairs: Sequence[Question]) -> Slider | None:
    comparison = Comparison(tuple(pairs))
    own = comparison.micro_batches
    whole = [count for count in _COUNTS if _has(comparison, count)]
    slider = _slider(
        "micro_batches", "Micro-batches", "Set for every pair, so that all run the same samples.", whole, str, own
    )
    return slider and replace(slider, stops=tuple(None if each == own else each for each in slider.stops))


def _has(comparison: Comparison, count: int) -> bool:
    try:
        comparison.with_micro_batches(count)
    except InputError:
        return False
    return True


def _backward(pairs: Sequence[Question]) -> Slider | None:
    first = pairs[0].plan
    kinds = [
        sum(block.duration for block in first.blocks if block.kind in chosen)
        for chosen in ((BlockKind.FORWARD,), (BlockKind.BACKWARD, BlockKind.WEIGHT))
    ]
    lasting = [
        block.duration
        for pair in pairs
        for block in pair.plan.blocks
        if block.kind in (BlockKind.BACKWARD, BlockKind.WEIGHT)
    ]
    if not all(kinds):
        return None
    ratio = Fraction(kinds[1], kinds[0])
    about = (
        f"Duration of backward passes relative to forward passes of {first.name}. The other plans change by the "
        "same factor."
    )
    return _slider(
        "backward",
        "Backward to forward",
        about,
        _factors(lasting),
        lambda factor: f"{float(ratio * factor):.3g} : 1",  # type: ignore[operator]
        Fraction(1),
    )


def _links(pairs: Sequence[Question]) -> Slider | None:
    plans = dict.fromkeys(pair.plan for pair in pairs)
    crossing = [arc.lag for plan in plans for arc in plan.dependencies if _crosses(plan, arc)]
    longest_block = max((each.duration for plan in plans for each in plan.blocks), default=0)
    if not crossing:
        return None
    longest, unit = max(crossing), pairs[0].plan.time_unit
    lags = {longest_block * share // 100 for share in _LINKS} | {longest // 2, 2 * longest}
    return _slider(
        "link",
        "Link time",
        "The longest lag between two devices. All other lags change by the same amount.",
        [lag - longest for lag in lags],
        lambda more: show_time(longest + more, unit),  # type: ignore[operator]
        0,
    )


def _capacities(pairs: Sequence[Question]) -> Slider | None:
    limits = [each.memory_capacity for pair in pairs for each in pair.plan.devices if each.memory_capacity is not None]
    if not limits:
        return None
    most, unit = max(limits), pairs[0].plan.memory_unit
    stops = range(1, 2 * most + 1) if most <= _MAX_UNIT_STEPS else [most * part // 20 for part in range(4, 41)]
    return _slider(
        "capacity",
        "Capacity",
        "Memory of the largest device. All other devices change by the same amount.",
        [stop - most for stop in stops],
        lambda more: show_memory(most + more, unit),  # type: ignore[operator]
        0,
    )


def _paces(pairs: Sequence[Question], device: int) -> Slider | None:
    lasting = [block.duration for pair in pairs for block in pair.plan.blocks if device in block.devices]
    slider = _slider(
        "pace",
        "Duration of stages on",
        "Factor for the duration of every block on this device. A block on several devices takes the largest factor.",
        _factors(lasting),
        lambda factor: f"× {float(factor):.3g}",  # type: ignore[arg-type]
        Fraction(1),
    )
    return slider and replace(slider, of=pairs[0].plan.devices[device].name)


def _factors(durations: Sequence[int]) -> list[Fraction]:
    """Return the factors that keep all durations whole.

    If all durations are long enough to round, return all factors.
    """
    common = gcd(*durations)
    return [
        each for each in _FACTORS if (common * each).denominator == 1 or min(durations, default=0) >= _MIN_ROUNDED_TICKS
    ]
