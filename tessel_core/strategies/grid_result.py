"""A grid evaluated on a mesh: its columns, its best configurations, and the Pareto front."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.model import DeviceMesh
from tessel_core.strategies.evaluation import NOT_REACHED, Configuration, Outcome, evaluate
from tessel_core.strategies.families import Family
from tessel_core.strategies.grid import Grid
from tessel_core.strategies.simulate import Semantics

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Objective:
    """One thing that strategies are compared by."""

    name: str
    title: str
    more_is_better: bool = False


OBJECTIVES: Mapping[str, Objective] = {
    each.name: each
    for each in (
        Objective("throughput", "Throughput", more_is_better=True),
        Objective("latency", "Time per step"),
        Objective("peak_memory", "Peak memory"),
        Objective("devices", "Devices"),
    )
}


@dataclass(frozen=True)
class GridResult:
    """Configurations and what came of each, in the order of the grid."""

    family: Family
    mesh: DeviceMesh
    semantics: Semantics
    configurations: tuple[Configuration, ...]
    outcomes: tuple[Outcome, ...]
    too_large: int = 0
    """Configurations of the grid that were left out because they take more devices than they may."""
    overlap: bool = True
    link_sharing: bool = False

    def __len__(self) -> int:
        return len(self.configurations)

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether nothing speaks against it."""
        return np.array([not outcome.reason for outcome in self.outcomes], bool)

    @cached_property
    def several_networks(self) -> bool:
        """Whether configurations differ in sizes too, so that what is said of one is to name them."""
        return len({each.spec for each in self.configurations}) > 1

    @cached_property
    def unreached(self) -> int:
        """How many were not evaluated, because the sweep was stopped."""
        return sum(outcome.reason == NOT_REACHED for outcome in self.outcomes)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Per objective, a number for each configuration, NaN where nothing was simulated.

        Throughput in samples per second, latency in seconds of a step, peak memory in bytes of the fullest device.
        """
        latency = np.array([outcome.latency for outcome in self.outcomes])
        batch = np.array([each.spec.batch for each in self.configurations], float)
        return {
            "throughput": batch / latency,
            "latency": latency,
            "peak_memory": np.array([max(outcome.peaks, default=np.nan) for outcome in self.outcomes], float),
            "devices": np.array([each.strategy.devices for each in self.configurations], float),
        }

    @cached_property
    def numbers(self) -> dict[Configuration, int]:
        """Where each configuration stands."""
        return {each: i for i, each in enumerate(self.configurations)}

    def ranked(self, objective: str) -> list[int]:
        """Numbers of the feasible configurations, the best first; among equals the one that is better otherwise."""
        rest = [name for name in OBJECTIVES if name != objective]
        keys = [_less_is_better(name, self.columns[name]) for name in (objective, *rest)]
        order = np.lexsort(keys[::-1])
        return [int(i) for i in order if self.feasible[i]]

    @cached_property
    def front(self) -> tuple[int, ...]:
        """Numbers of the feasible configurations that no other one equals or betters in every objective."""
        ranked = self.ranked("throughput")
        costs = np.array([_less_is_better(name, self.columns[name]) for name in OBJECTIVES]).T[ranked]
        kept = np.empty((0, len(OBJECTIVES)))
        found = list[int]()
        for i, cost in zip(ranked, costs, strict=True):
            # Whatever betters this one in everything stands before it, or is bettered by one that does.
            worse = (kept <= cost).all(axis=1)
            if not worse.any() or (kept[worse] == cost).all(axis=1).any():
                kept = np.vstack((kept, cost))
                found.append(i)
        return tuple(sorted(found))

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Why configurations are infeasible, and how many are so; the most frequent first."""
        found: dict[str, int] = {}
        for outcome in self.outcomes:
            if outcome.reason:
                found[outcome.reason] = found.get(outcome.reason, 0) + 1
        return dict(sorted(found.items(), key=lambda each: -each[1]))

    @cached_property
    def reason_kinds(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the infeasible configurations by reason, whatever the figures in it; the most frequent first."""
        found: dict[str, list[int]] = {}
        for i, outcome in enumerate(self.outcomes):
            if outcome.reason:
                kind = _ANY_NUMBER.sub("…", outcome.reason) if not outcome.peaks else "the memory does not do"
                found.setdefault(kind, []).append(i)
        return {kind: tuple(found[kind]) for kind in sorted(found, key=lambda each: -len(found[each]))}


_ANY_NUMBER = re.compile(r"\d[\d.,]*")


def _less_is_better(name: str, column: Column) -> Column:
    return -column if OBJECTIVES[name].more_is_better else column


def evaluate_grid(
    family: Family,
    grid: Grid,
    mesh: DeviceMesh,
    semantics: Semantics = Semantics.DEFAULT,
    control: Control | None = None,
    *,
    most: int | None = None,
    overlap: bool = True,
    link_sharing: bool = False,
    known: Mapping[Configuration, Outcome] = MappingProxyType({}),
) -> GridResult:
    """All configurations of the grid that take at most so many devices, without it as many as the mesh has.

    `known` outcomes, of the same family and mesh by the same rules, are taken over instead of being evaluated again.
    """
    most = most or len(mesh.devices)
    configurations = grid.configurations(family, most)
    new = [each for each in configurations if each not in known]
    fresh = evaluate(family, new, mesh, semantics, control, overlap=overlap, link_sharing=link_sharing)
    found = {**known, **dict(zip(new, fresh, strict=True))}
    outcomes = tuple(found[each] for each in configurations)
    left_out = grid.too_large(most)
    return GridResult(family, mesh, semantics, tuple(configurations), outcomes, left_out, overlap, link_sharing)
