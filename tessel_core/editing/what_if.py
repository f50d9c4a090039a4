"""What if: the plans of a comparison with other durations, links and memory, all changed alike.

A change keeps what a plan is: its blocks, what they hold, its samples.  So it stays well-formed.
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
_FINE = 100
"""Durations of so many ticks are rounded by a factor; shorter ones take only factors that leave whole ticks."""
_LINKS = (0, 1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400)
"""Percent of the longest block."""
_FEW = 32
"""A capacity of up to so many units changes by one, a larger one by twentieths."""
_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is other than the plans say; the defaults change nothing."""

    micro_batches: int | None = None
    """Counted as `Comparison.micro_batches`; None is as many as the comparison has."""
    backward: Fraction = Fraction(1)
    """Factor of the durations of backward blocks and weight gradients."""
    link: int = 0
    """Ticks more, or less, between blocks on different devices; a lag never falls below 0."""
    capacity: int = 0
    """Memory units more, or less, on every device that has a limit."""
    pace: Fraction = Fraction(1)
    """Factor of the durations of what runs on `device`; blocks on several devices go at the pace of the slowest."""
    device: int = 0

    def plan(self, plan: MicroBatchPlan) -> MicroBatchPlan:
        """The plan so changed; durations are rounded to whole ticks, at least one."""
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
        """All pairs so changed, with the names that they have.

        Raises InputError where a pair has no whole number of micro-batches, or two pairs become one.
        """
        if self.micro_batches is not None:
            comparison = comparison.with_micro_batches(self.micro_batches)
        now = {pair: replace(pair, plan=self.plan(pair.plan)) for pair in comparison.pairs}
        names = {now[pair]: name for pair, name in comparison.names.items()}
        return replace(comparison, pairs=tuple(now.values()), names=names)

    def of_whole(self, part: Comparison, whole: Comparison) -> WhatIf:
        """The same for a list of which a part was meant: the smallest micro-batches may be others."""
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
    """The stops of one field of `WhatIf`, from least to most."""

    field: str
    label: str
    about: str
    stops: tuple[object, ...]
    """Values of the field; one of them is that of the plans as they are."""
    texts: tuple[str, ...]
    """What each stop means, as people read it."""
    own: int
    """The stop at which the plans are as they are."""
    of: str = ""
    """The device that it is about, where it is about one."""

    @property
    def title(self) -> str:
        """The label with the device."""
        return f"{self.label} {self.of}".rstrip()

    def at(self, what_if: WhatIf) -> int:
        """The stop of a value; that of the plans as they are where it is none of this slider."""
        value = getattr(what_if, self.field)
        return self.stops.index(value) if value in self.stops else self.own

    def spread(self, most: int) -> tuple[int, ...]:
        """Up to so many stops, evenly from the first to the last, that of the plans as they are among them."""
        last, steps = len(self.stops) - 1, max(1, min(most, len(self.stops)) - 1)
        evenly = [(2 * i * last + steps) // (2 * steps) for i in range(steps + 1)]
        nearest = min(evenly, key=lambda each: abs(each - self.own))
        return tuple(sorted({self.own if each == nearest else each for each in evenly}))


def what_if_at(shown: Sequence[Slider], at: Mapping[str, int], device: int) -> WhatIf:
    """What the sliders say at these stops, by field; those that are not named, or have no such stop, change nothing."""
    stops = {each.field: at.get(each.field, each.own) for each in shown}
    known = {each.field: each.stops[stop] for each in shown if 0 <= (stop := stops[each.field]) < len(each.stops)}
    return WhatIf(device=device, **known)  # type: ignore[arg-type]


def settled(pairs: tuple[Question, ...], what_if: WhatIf) -> WhatIf:
    """As far as the sliders of these pairs can say it."""
    device = what_if.device if what_if.device < len(pairs[0].plan.devices) else 0
    shown = sliders(pairs, device)
    return what_if_at(shown, {each.field: each.at(what_if) for each in shown}, device)


@lru_cache(maxsize=16)
def sliders(pairs: tuple[Question, ...], device: int = 0) -> tuple[Slider, ...]:
    """What can be changed of these pairs; the last one is of the blocks on `device`."""
    found = (_counts(pairs), _backward(pairs), _links(pairs), _capacities(pairs), _paces(pairs, device))
    return tuple(each for each in found if each is not None)


def at_once(pairs: Iterable[Question]) -> frozenset[Question]:
    """Those that are timed while a person moves a slider: published orders, up to 50,000 runs in all."""
    found, left = set[Question](), _AT_ONCE
    for pair in pairs:
        runs = len(pair.plan.blocks) * pair.micro_batches
        if pair.scheduler in BASELINES and runs <= left:
            found.add(pair)
            left -= runs
    return frozenset(found)


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
        "micro_batches", "Micro-batches", "Of every pair, so that all run the same samples.", whole, str, own
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
        f"How long the backward passes of {first.name} last against its forward passes; of the others in proportion."
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
        "The longest lag between two devices; all others become longer or shorter by as much.",
        [lag - longest for lag in lags],
        lambda more: show_time(longest + more, unit),  # type: ignore[operator]
        0,
    )


def _capacities(pairs: Sequence[Question]) -> Slider | None:
    limits = [each.memory_capacity for pair in pairs for each in pair.plan.devices if each.memory_capacity is not None]
    if not limits:
        return None
    most, unit = max(limits), pairs[0].plan.memory_unit
    stops = range(1, 2 * most + 1) if most <= _FEW else [most * part // 20 for part in range(4, 41)]
    return _slider(
        "capacity",
        "Capacity",
        "Memory of the largest device; all others have as much more or less.",
        [stop - most for stop in stops],
        lambda more: show_memory(most + more, unit),  # type: ignore[operator]
        0,
    )


def _paces(pairs: Sequence[Question], device: int) -> Slider | None:
    lasting = [block.duration for pair in pairs for block in pair.plan.blocks if device in block.devices]
    slider = _slider(
        "pace",
        "Duration of stages on",
        "How long everything lasts that runs on this device; blocks on several devices go at the pace of the slowest.",
        _factors(lasting),
        lambda factor: f"× {float(factor):.3g}",  # type: ignore[arg-type]
        Fraction(1),
    )
    return slider and replace(slider, of=pairs[0].plan.devices[device].name)


def _factors(durations: Sequence[int]) -> list[Fraction]:
    """Factors by which all durations stay whole, or nearly so."""
    common = gcd(*durations)
    return [each for each in _FACTORS if (common * each).denominator == 1 or min(durations, default=0) >= _FINE]
