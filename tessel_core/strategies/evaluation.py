"""Many configurations of a family on one mesh: those that share a structure at once, the others one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Costs, DistIrCosts, MeshCosts, check_semantics, shortage, with_host
from tessel_core.strategies.amounts import Amounts, CostTable, Sizes
from tessel_core.strategies.family import Family, Spec
from tessel_core.strategies.in_order import Evaluated, evaluate_in_order
from tessel_core.strategies.issue import IssueOrder, issue_order
from tessel_core.strategies.overlapped import evaluate_streams
from tessel_core.strategies.places import Places, nodes_of, places_of
from tessel_core.strategies.simulate import Semantics, simulate_strategy, why_not
from tessel_core.strategies.skeleton import Skeleton, skeleton_of
from tessel_core.strategies.stages import stages_of
from tessel_core.strategies.strategy import Strategy

NOT_REACHED = "the sweep was stopped before its turn"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A network's sizes and how it is spread."""

    spec: Spec
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes of one configuration; where nothing was simulated times are NaN and peaks empty."""

    latency: float
    """Seconds of one step."""
    peaks: tuple[int, ...]
    """Bytes that the devices of each stage hold at most."""
    reason: str
    """Why it is infeasible, as one sentence; empty where it is not."""


_Key = tuple[Spec, int, int, str, bool, bool]
"""An example, stages, micro-batches, scheduler, whether layers are shared, and whether they are computed again."""


def evaluate(
    family: Family,
    configurations: Sequence[Configuration],
    mesh: DeviceMesh,
    semantics: Semantics = Semantics.DEFAULT,
    control: Control | None = None,
    *,
    overlap: bool = True,
    link_sharing: bool = False,
) -> list[Outcome]:
    """The outcome of each; those that are not reached when `control` stops say so.

    Without overlap, and where transfers share an uplink, every configuration is simulated operation by operation.
    InputError for semantics that know no sharing.
    """
    check_semantics(semantics.compat, link_sharing=link_sharing)
    control = Control() if control is None else control
    evaluator = _Evaluator(family, mesh, semantics, overlap, link_sharing and mesh.node_uplink is not None)
    found = [Outcome(float("nan"), (), NOT_REACHED)] * len(configurations)
    groups: dict[_Key, list[int]] = defaultdict(list)
    alone = list[int]()
    for i, each in enumerate(configurations):
        reason = why_not(family, each.spec, each.strategy, mesh)
        if reason:
            found[i] = Outcome(float("nan"), (), reason)
        elif evaluator.places(each) is None:
            alone.append(i)
        else:
            groups[evaluator.key(each)].append(i)
    for key, members in groups.items():
        if control.stopped:
            return found
        for i, outcome in zip(members, evaluator.together(key, [configurations[i] for i in members]), strict=True):
            found[i] = outcome
    for i in alone:
        if control.stopped:
            return found
        found[i] = evaluator.alone(configurations[i])
    return found


class _Evaluator:
    def __init__(
        self, family: Family, mesh: DeviceMesh, semantics: Semantics, overlap: bool, link_sharing: bool
    ) -> None:
        self._family, self._mesh, self._semantics = family, mesh, semantics
        self._overlap, self._link_sharing = overlap, link_sharing
        distir = semantics is Semantics.DISTIR
        costs: Costs = DistIrCosts(with_host(mesh)) if distir else MeshCosts(mesh)
        self._table = CostTable(costs)
        self._nodes = nodes_of(mesh)
        limits = [device.memory_capacity for device in mesh.devices]
        self._limits = np.array([np.inf if limit is None else limit for limit in limits])

    def key(self, each: Configuration) -> _Key:
        """What is the same for all that are evaluated together."""
        strategy = each.strategy
        how = strategy.schedule, strategy.tensor > 1, strategy.recompute
        return self._family.example(each.spec), strategy.pipeline, strategy.micro_batches, *how

    def places(self, each: Configuration) -> Places | None:
        """Where its groups lie; None where it is to be simulated operation by operation."""
        strategy = each.strategy
        if self._link_sharing or not (self._overlap or self._semantics is Semantics.DISTIR):
            return None
        if self._nodes is None or strategy.zero or not self._order(each.spec, strategy).in_turn:
            return None
        if self._semantics is Semantics.DISTIR and self._skeleton(self.key(each)).changes_in_place:
            return None
        return places_of(self._nodes, strategy.data, strategy.tensor, strategy.pipeline)

    def _skeleton(self, key: _Key) -> Skeleton:
        return skeleton_of(self._family, key[0], *key[-2:])

    def _order(self, spec: Spec, strategy: Strategy) -> IssueOrder:
        training = self._family.optimizer(spec) is not None
        return issue_order(strategy.schedule, strategy.pipeline, strategy.micro_batches, training)

    def together(self, key: _Key, members: Sequence[Configuration]) -> list[Outcome]:
        """Those of one structure."""
        example, pipeline, micro_batches, *_ = key
        skeleton = self._skeleton(key)
        stages = stages_of(skeleton, pipeline, micro_batches > 1)
        places = tuple(places for each in members if (places := self.places(each)) is not None)
        amounts = Amounts(self._table, tuple(map(self._sizes, members)), places, micro_batches)
        try:
            run = evaluate_in_order if self._semantics is Semantics.DISTIR else evaluate_streams
            found = run(skeleton, stages, self._order(example, members[0].strategy), amounts)
        except InputError as error:
            return [Outcome(float("nan"), (), str(error))] * len(members)
        return self._outcomes(members, found)

    def _outcomes(self, members: Sequence[Configuration], found: Evaluated) -> list[Outcome]:
        """Only those whose memory may not do are looked at device by device."""
        latency, peaks = found.end.max(axis=0).tolist(), found.peak.T
        tight = peaks.max(axis=1) > self._limits.min()
        outcomes = list[Outcome]()
        for i, each in enumerate(members):
            held = tuple(peaks[i].tolist())
            reason = shortage(held * (each.strategy.data * each.strategy.tensor), self._mesh) if tight[i] else ""
            outcomes.append(Outcome(latency[i], held, reason))
        return outcomes

    def alone(self, each: Configuration) -> Outcome:
        """Operation by operation."""
        try:
            found = simulate_strategy(
                self._family,
                each.spec,
                each.strategy,
                self._mesh,
                self._semantics,
                overlap=self._overlap,
                link_sharing=self._link_sharing,
            )
        except InputError as error:
            return Outcome(float("nan"), (), str(error))
        peaks = np.array(found.trace.peak_memory).reshape(-1, each.strategy.pipeline).max(axis=0)
        return Outcome(found.trace.latency, tuple(peaks.tolist()), found.shortage)

    def _sizes(self, each: Configuration) -> Sizes:
        spec, strategy = each.spec, each.strategy
        rows = spec.batch // (strategy.data * strategy.micro_batches)
        return Sizes(self._family.numbers(spec, rows, strategy.tensor), strategy.data, spec.dtype)
