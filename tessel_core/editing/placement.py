"""Change a placement by hand: find which operators move together, and which devices they cannot move to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_

from tessel_core.model import Allowance, Placement
from tessel_core.model.checks import quotient, topological_order
from tessel_core.model.layout import stages_after_move
from tessel_core.placement.branches import branches_apart
from tessel_core.rules.placement_referee import LATENCY_RULES, PLACEMENT_RULES, ROUNDING, with_rounding
from tessel_core.units import show_memory

_STAGES = PLACEMENT_RULES["stages"]
_SUBGRAPH_RULES = tuple(LATENCY_RULES[name] for name in ("contiguous subgraphs", "order"))


@dataclass(frozen=True)
class Movable:
    """A placement, and the rules that a move of operators to another device must keep.

    If the placement already breaks a rule, that rule forbids no move. The memory of the target device is always
    checked.
    """

    placement: Placement
    pins: tuple[Allowance, ...] = ()
    contiguous: bool = True
    branches_apart: bool = False

    def why_not(self, operators: Iterable[int]) -> tuple[str, ...]:
        """Return for each device the reason why these operators cannot move there.

        The reason is empty if they can. Operators that must share their device move with them.
        """
        going = self.placement.graph.together(operators)
        circles = self._circles(going) if self._flows_onwards else ("",) * len(self.placement.devices)
        return tuple(
            self._pinned(going, d)
            or self._lacks_time(going, d)
            or self._full(going, d)
            or circle
            or self._mixing(going, d)
            or self._late(going, d)
            or self._turned_back(going, d)
            for d, circle in enumerate(circles)
        )

    def moved(self, operators: Iterable[int], device: int) -> Placement:
        """Return the placement with these operators on `device` and on the replicas of its stage.

        Operators that must share their device move with them.
        """
        going = set(self.placement.graph.together(operators))
        to = self.placement.stage_at(device)
        assignment = tuple(to if i in going else on for i, on in enumerate(self.placement.assignment))
        stages = stages_after_move(self.placement, going, device)
        return replace(self.placement, assignment=assignment, stages=stages)

    def _pinned(self, going: Sequence[int], device: int) -> str:
        names = {self.placement.devices[d].name for d in self.placement.stage_at(device)}
        for i in going:
            kept = self._kept.get(self.placement.graph.operators[i].name)
            if kept is not None and not names.issubset(kept):
                return f"{self.placement.graph.operators[i].name} is pinned to {' and '.join(kept)}: unpin it first"
        return ""

    def _lacks_time(self, going: Sequence[int], device: int) -> str:
        kind, operators = self.placement.devices[device].kind, self.placement.graph.operators
        lacking = (operators[i].name for i in going if operators[i].time_on(kind) is None)
        return next((f"{name} has no time on the kind {kind}" for name in lacking), "")

    def _full(self, going: Sequence[int], device: int) -> str:
        """Return the reason if the move would exceed the device's capacity.

        A device that is already too full may not get fuller.
        """
        to, there = self.placement.devices[device], self.placement.operators_on[device]
        if to.memory_capacity is None or there.issuperset(going):
            return ""
        most = self.placement.most_bytes(there.union(going))
        if self.placement.stages is None and most < to.memory_capacity * (1 - 2 * ROUNDING):
            return ""  # Skip the exact check below, which is slow, if the device fits at every pipeline position.
        now, held = self.placement.memory[device], self.moved(going, device).memory[device]
        if held <= max(now, with_rounding(to.memory_capacity)):
            return ""
        return f"{to.name} would hold {show_memory(held, 'B')} of {show_memory(to.memory_capacity, 'B')}"

    def _mixing(self, going: Sequence[int], device: int) -> str:
        """Return the reason if branches that must be on different devices would share a device."""
        if not self.branches_apart or self._is_mixed:
            return ""
        return next((f"{broken.where}: {broken.why}" for broken in branches_apart(self.moved(going, device))), "")

    @cached_property
    def _is_mixed(self) -> bool:
        return any(branches_apart(self.placement))

    def _late(self, going: Sequence[int], device: int) -> str:
        """Return the reason if subgraphs of a placement for latency would wait for each other."""
        if self.placement.subgraphs is None or self._subgraphs_wait:
            return ""
        after = self.moved(going, device)
        return next((f"{broken.where}: {broken.why}" for rule in _SUBGRAPH_RULES for broken in rule(after)), "")

    def _turned_back(self, going: Sequence[int], device: int) -> str:
        """Return the reason if tensors would flow backwards in a layout with several stages per device."""
        if self.placement.stages is None or any(_STAGES(self.placement)):
            return ""
        return next((f"{broken.where}: {broken.why}" for broken in _STAGES(self.moved(going, device))), "")

    @cached_property
    def _kept(self) -> dict[str, tuple[str, ...]]:
        return {pin.operator: pin.devices for pin in self.pins}

    @cached_property
    def _subgraphs_wait(self) -> bool:
        return any(broken for rule in _SUBGRAPH_RULES for broken in rule(self.placement))

    # The members below check the rule "contiguous": tensors flow in no cycle between sets of devices.

    @cached_property
    def _flows_onwards(self) -> bool:
        """Whether devices must form a chain without cycles, and form one before the move."""
        asked = self.contiguous and self.placement.subgraphs is None and self.placement.stages is None
        return asked and not any(PLACEMENT_RULES["contiguous"](self.placement))

    @cached_property
    def _sets(self) -> tuple[frozenset[int], ...]:
        """Distinct sets of devices to which operators are assigned. Each set runs one stage."""
        return tuple(dict.fromkeys(map(frozenset, self.placement.assignment)))

    @cached_property
    def _set_of(self) -> tuple[int, ...]:
        """Index in `_sets` of each group of operators that must share a device."""
        number = {each: i for i, each in enumerate(self._sets)}
        assignment = self.placement.assignment
        return tuple(number[frozenset(assignment[members[0]])] for members in self.placement.graph.colocated)

    @cached_property
    def _neighbours(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """For each group, the groups that it gets tensors from, and the groups that it sends tensors to."""
        feeds = [(list[int](), list[int]()) for _ in self._set_of]
        for one, other in self.placement.graph.flow:
            feeds[one][1].append(other)
            feeds[other][0].append(one)
        return tuple((tuple(before), tuple(after)) for before, after in feeds)

    @cached_property
    def _arcs(self) -> Counter[tuple[int, int]]:
        """Number of edges from one set of devices to another."""
        pairs = ((self._set_of[one], self._set_of[other]) for one, other in self.placement.graph.flow)
        return Counter((one, other) for one, other in pairs if one != other)

    def _circles(self, going: Sequence[int]) -> tuple[str, ...]:
        """Return for each device the cycle of tensors that would arise if these operators moved there; empty if none.

        Without the moving operators, the graph of device sets has no cycle.  A new cycle passes through their target
        `t`: a path leads from a set that they or `t` feed to a set that feeds them or `t`.
        """
        groups = {self.placement.graph.group_of[i] for i in going}
        before, after = (
            {self._set_of[g] for group in groups for g in self._neighbours[group][way] if g not in groups}
            for way in (0, 1)
        )
        reach = [*_reach(len(self._sets), self._arcs_without(groups)), 0]
        place = {each: i for i, each in enumerate(self._sets)}
        reasons = []
        for d, device in enumerate(self.placement.devices):
            t = place.get(frozenset(self.placement.stage_at(d)), len(self._sets))
            fed = reach[t] | reduce(or_, (reach[each] | 1 << each for each in after - {t}), 0)
            on_circle = [each for each in before - {t} if fed >> each & 1]
            on_circle += [each for each in after - {t} if reach[each] >> t & 1]
            between = f"{device.name} and {self._called(on_circle[0])}" if on_circle else ""
            reasons.append(f"tensors would flow in a circle between {between}" if between else "")
        return tuple(reasons)

    def _arcs_without(self, groups: set[int]) -> list[tuple[int, int]]:
        """Return the arcs between sets of devices that remain without these groups."""
        gone = Counter[tuple[int, int]]()
        for group in groups:
            before, after = self._neighbours[group]
            gone.update((self._set_of[g], self._set_of[group]) for g in before)
            gone.update((self._set_of[group], self._set_of[g]) for g in after if g not in groups)
        return [arc for arc, count in self._arcs.items() if count > gone[arc]]

    def _called(self, number: int) -> str:
        return " and ".join(self.placement.devices[d].name for d in sorted(self._sets[number])) or "no device"


def _reach(count: int, arcs: Iterable[tuple[int, int]]) -> list[int]:
    """Return the descendants of each vertex of an acyclic graph, as bit sets."""
    before = quotient(count, arcs)
    reach = [0] * count
    for vertex in reversed(topological_order(before)):
        for each in before[vertex]:
            reach[each] |= reach[vertex] | 1 << vertex
    return reach
