"""Find the fastest strategy for a network on a cluster. The step time of each configuration is computed or ruled out.

Step times are computed from blocks of layers (`block_engine.py`). For each configuration there is also a lower bound on
its step time and on its memory. A configuration is ruled out without computing its step time if another configuration
is at least as fast as the first bound and needs at most as much memory as the second bound. The bound on step time has
three terms: the work of one device for all micro-batches, the time in which a micro-batch reaches the device's first
stage and returns from it, and the optimizer step. The bound on memory has two: memory that is used during the whole
step, and the micro-batches that a device holds in every order (`Staged`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any, Generic, Protocol, TypeVar

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.model import DeviceMesh
from tessel_core.strategies.block_engine import BlockEngine, Staged
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.estimates import Estimates
from tessel_core.strategies.evaluation import Configuration, StrategyResult
from tessel_core.strategies.families import Family, Spec
from tessel_core.strategies.grid import MAX_CONFIGURATIONS
from tessel_core.strategies.orders import chain_schedulers, usual_order
from tessel_core.strategies.ranks import RankOrder
from tessel_core.strategies.rates import StepRates, step_rates
from tessel_core.strategies.strategy import CanBeShared, Semantics, Strategy, can_be_shared, why_not
from tessel_core.units import show_time

FAST_ORDER = "1f1b"
_MIN_TOKENS_PER_DEVICE = 4096
"""By default, context parallelism is tried only if each device gets at least this many tokens of a sample."""
_FIRST_BATCH, _BATCH = 16, 256
"""Number of configurations that are computed together: before the first one fits, and after.

The smaller number gives a first answer early.
"""
CONFIGURATIONS_PER_SECOND = 300
"""Speed of the search, measured on two cores: 310 for Llama 3.1 70B on 64 H100s, and 360 for DeepSeek-V3 on 2,048."""
_FIRST_ROUND = 16
"""Configurations of the first round, which are timed before all others, so that a good answer is known early."""
_CONFIGURATIONS_PER_REPORT = 64
"""Number of configurations whose bounds are computed between two progress reports."""
TOO_LARGE = "it does not fit into memory"
"""Reason for configurations that need more memory than a device has."""


@dataclass(frozen=True, slots=True)
class SearchRanges:
    """Values to try for each field of `Strategy`. For an empty range, values are chosen from the network and the
    cluster.

    Raises InputError for a value below 1, or below 0 for `zero`, and for other orders than the searchable ones.
    """

    tensor: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
    expert: tuple[int, ...] = ()
    pipeline: tuple[int, ...] = ()
    stages_per_device: tuple[int, ...] = (1, 2, 4)
    micro_batch_size: tuple[int, ...] = (1, 2, 4, 8)
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    zero: tuple[int, ...] = (1, 2, 3)
    """Stages of ZeRO. Strategies with a single replica always have stage 0."""
    schedule: tuple[str, ...] = (FAST_ORDER,)
    """Orders for pipelines with one stage per device, from `searchable_orders`.

    Pipelines with several stages per device always use interleaved 1F1B.
    """
    rank_order: tuple[RankOrder | None, ...] = (None,)
    context_method: tuple[ContextMethod, ...] = (ContextMethod.RING,)
    grad_dtype: str = "fp32"
    fp8: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        for each in fields(self):
            values = getattr(self, each.name)
            numbers = [v for v in values if isinstance(v, int)] if isinstance(values, tuple) else []
            least = int(each.name != "zero")
            if numbers and min(numbers) < least:
                raise InputError(each.name.replace("_", "-"), f"must be at least {least}, got {min(numbers)}")
        other = [name for name in self.schedule if name not in searchable_orders()]
        if other:
            raise InputError("schedule", f"{other[0]} is none of these orders: {', '.join(searchable_orders())}")

    def filled(self, shared: CanBeShared, mesh: DeviceMesh, devices: int, layers: int) -> SearchRanges:
        """Return the ranges with default values for the empty ones."""
        node = max(sum(d.node == node for d in mesh.devices) for node in {d.node for d in mesh.devices})
        tensor = tuple(each for each in divisors(node) if devices % each == 0) if shared.weights else (1,)
        context = tuple(each for each in divisors(node) if shared.sequence >= each * _MIN_TOKENS_PER_DEVICE) or (1,)
        experts = tuple(each for each in divisors(shared.experts) if devices % each == 0) if shared.experts else (1,)
        return replace(
            self,
            tensor=self.tensor or tensor,
            context=self.context or context,
            expert=self.expert or experts,
            pipeline=self.pipeline or tuple(each for each in divisors(devices) if each <= layers),
        )

    def without_training(self) -> SearchRanges:
        """Return the ranges for inference, without recomputation and ZeRO."""
        return replace(self, recompute=(Recompute.NONE,), zero=(0,))


@cache
def searchable_orders() -> tuple[str, ...]:
    """Return the names of schedules for one stage per device that need no second copy of the network."""
    return chain_schedulers((1,), copies=1)


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number in ascending order.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    return tuple(each for each in range(1, number + 1) if number % each == 0)


@dataclass(frozen=True)
class Question:
    """A network, a mesh and the ranges to try.

    A step processes `spec.batch` samples and uses all devices of the mesh.
    """

    family: Family
    spec: Spec
    mesh: DeviceMesh
    ranges: SearchRanges = field(default_factory=SearchRanges)
    first: int | None = None
    """Use only this many devices, the first ones of the mesh. None uses all devices."""

    def solve(self, control: Control) -> Recommendation[Question]:
        """Return the recommendation. If `control` stops, return the best strategy so far."""
        return recommend(self, control)

    @property
    def devices(self) -> int:
        """Number of devices of each strategy."""
        return self.first or len(self.mesh.devices)

    @property
    def title(self) -> str:
        """Display title of the network and the batch."""
        return self.family.describe(self.spec)

    def rates(self, strategy: Strategy, seconds: float) -> StepRates:
        """Return the rates of a step that takes `seconds`."""
        return step_rates(self.family, self.spec, strategy, self.mesh, seconds)

    @property
    def halved(self) -> Question | None:
        """The question for the first half of the devices. None if their number is odd."""
        return None if self.devices % 2 else replace(self, first=self.devices // 2)

    @property
    def size(self) -> int:
        """Number of strategies. It is computed without building them."""
        return sum(math.prod(map(len, axes)) for _, _, axes in self._groups())

    def strategies(self) -> Iterator[Strategy]:
        """Yield every strategy of the ranges that uses all devices and divides the batch into equal micro-batches."""
        for usual, count, axes in self._groups():
            for expert, method, recompute, zero, ranks, (schedule, several) in product(*axes):
                yield replace(
                    usual,
                    micro_batches=count,
                    expert=expert,
                    context_method=method,
                    recompute=recompute,
                    zero=zero,
                    rank_order=ranks,
                    schedule=schedule,
                    stages_per_device=several,
                )

    def _groups(self) -> Iterator[tuple[Strategy, int, tuple[Sequence[Any], ...]]]:
        """Yield a strategy with its degrees, a number of micro-batches, and the values to try for the other fields."""
        training = self.family.optimizer(self.spec) is not None
        asked = self._asked if training else self._asked.without_training()
        for tensor, context, pipeline in product(asked.tensor, asked.context, asked.pipeline):
            data, rest = divmod(self.devices, tensor * context * pipeline)
            if rest or not data:
                continue
            usual = Strategy(
                data,
                tensor,
                pipeline,
                context=context,
                sequence_parallel=tensor > 1 and self._shared.sequence > 0,
                grad_dtype=asked.grad_dtype if training else "",
                fp8=asked.fp8,
                compiled=asked.compiled,
            )
            zeros = asked.zero if data * context > 1 else (0,)
            methods = asked.context_method if context > 1 else asked.context_method[:1]
            orders = self._orders(asked, pipeline)
            axes = (asked.expert, methods, asked.recompute, zeros, asked.rank_order, orders)
            for size in asked.micro_batch_size:
                count, left = divmod(self.spec.batch, data * size)
                if count and not left:
                    yield usual, count, axes

    @property
    def _shared(self) -> CanBeShared:
        return can_be_shared(self.family, self.family.with_batch(self.spec, 1))

    @property
    def _asked(self) -> SearchRanges:
        """The ranges, with default values for the empty ones."""
        return self.ranges.filled(self._shared, self.mesh, self.devices, self.spec.layers)

    @property
    def least_batch(self) -> int | None:
        """Smallest batch that some configuration of the ranges can divide.

        None if no degrees fit the number of devices.
        """
        asked = self._asked
        groups = {math.prod(each) for each in product(asked.tensor, asked.context, asked.pipeline)}
        whole = [self.devices // group for group in groups if self.devices % group == 0]
        return min(whole) * min(asked.micro_batch_size) if whole else None

    def _orders(self, asked: SearchRanges, pipeline: int) -> list[tuple[str, int]]:
        """Return pairs of a schedule and a number of stages per device."""
        if pipeline == 1:
            return [(asked.schedule[0], 1)]
        found = [(schedule, 1) for schedule in asked.schedule if 1 in asked.stages_per_device]
        return found + [(usual_order(several), several) for several in asked.stages_per_device if several > 1]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy that fits into memory, with its step time and memory."""

    strategy: Strategy
    outcome: StrategyResult

    @property
    def peak(self) -> int:
        """Peak memory of the fullest device in bytes."""
        return max(self.outcome.peaks)


class AnyQuestion(Protocol):
    """A question for the fastest strategy of a network or of an operator graph."""

    @property
    def mesh(self) -> DeviceMesh: ...
    @property
    def devices(self) -> int: ...
    @property
    def title(self) -> str: ...
    def rates(self, strategy: Strategy, seconds: float) -> StepRates: ...


Asked_co = TypeVar("Asked_co", bound=AnyQuestion, covariant=True)


@dataclass(frozen=True)
class Recommendation(Generic[Asked_co]):
    """The result of a search: the candidates, and how many configurations were ruled out or impossible."""

    question: Asked_co
    candidates: tuple[Candidate, ...]
    """Configurations that fit and whose step time was computed, fastest first."""
    configurations: int
    ruled_out: int
    """Number of configurations whose lower bounds show that a candidate is at least as good in time and in memory."""
    infeasible: Mapping[str, int]
    """Number of impossible configurations for each reason, most frequent reason first."""
    nearest: tuple[Strategy, float] | None
    """If nothing fits, the strategy that lacks the least memory, with a lower bound of the bytes that it needs."""
    bound_s: float | None
    """Lower bound in seconds of the step time of all configurations that fit, with the layouts that were chosen for
    them.

    None if nothing fits or the search was stopped.
    """
    complete: bool
    """Whether every configuration was either computed or ruled out."""

    @property
    def best(self) -> Candidate | None:
        """The fastest candidate. None if nothing fits."""
        return self.candidates[0] if self.candidates else None

    @property
    def simulated(self) -> int:
        """Number of configurations that fit and whose step time was computed."""
        return len(self.candidates)

    @property
    def front(self) -> tuple[Candidate, ...]:
        """Candidates on the Pareto front of step time and memory, fastest first."""
        return tuple(front_of(self.candidates))

    @property
    def leanest(self) -> Candidate | None:
        """The candidate on the front that needs the least memory. None if nothing fits."""
        return self.front[-1] if self.candidates else None


@dataclass(frozen=True)
class Judged:
    """The result for a part of the configurations. Its fields mean the same as those of `Recommendation`."""

    candidates: tuple[Candidate, ...]
    ruled_out: int
    infeasible: Mapping[str, int]
    nearest: tuple[Strategy, float] | None
    bound_s: float
    """Lower bound of the step time in seconds. Infinite if nothing fits."""


def recommend(
    question: Question, control: Control | None = None, table: BlockTable | None = None
) -> Recommendation[Question]:
    """Compute or rule out every configuration of the question, and return the recommendation.

    If `control` stops, return the best strategy so far. `table` may have blocks of the same network and mesh.

    Raises InputError if no configuration divides the batch, and for more than `MAX_CONFIGURATIONS` configurations.
    """
    asked = asked_strategies(question)
    table = table or BlockTable(question.family, question.spec, question.mesh)
    search = _Search(question, Control() if control is None else control, table, len(asked))
    for some in in_rounds(promising(question, asked, table), asked):
        search.judge(some)
    return together(question, len(asked), [search.judged])


def asked_strategies(question: Question) -> list[Strategy]:
    """Return every strategy of a question. Raises InputError in the cases of `recommend`."""
    size = question.size
    if not size:
        raise InputError("global-batch", _no_division(question))
    if size > MAX_CONFIGURATIONS:
        seconds = show_time(size / CONFIGURATIONS_PER_SECOND, "s")
        why = f"have {size:,} configurations, more than the {MAX_CONFIGURATIONS:,} allowed"
        raise InputError("ranges", f"{why}; at about {CONFIGURATIONS_PER_SECOND} per second they would take {seconds}")
    return list(question.strategies())


def promising(question: Question, asked: Sequence[Strategy], table: BlockTable) -> list[Strategy]:
    """Return the strategies that probably fit, those that are probably the fastest first."""
    rows = {question.spec.batch // (each.data * each.micro_batches) for each in asked}
    estimates = Estimates(BlockEngine(table), question.spec, question.devices, min(rows), max(rows))
    return estimates.ordered(asked, _least_memory(question))


def in_rounds(first: Sequence[Strategy], asked: Sequence[Strategy]) -> Iterator[list[Strategy]]:
    """Yield the strategies of `first` in rounds of doubling length, then all others.

    Bounds are computed for one round at a time, so short rounds give early answers and long rounds time less.
    """
    begin, length = 0, _FIRST_ROUND
    while begin < len(first):
        yield list(first[begin : begin + length])
        begin, length = begin + length, 2 * length
    begun = set(first)
    yield [each for each in asked if each not in begun]


def judge(
    question: Question, some: Sequence[Strategy], table: BlockTable, control: Control, front: Sequence[Candidate] = ()
) -> Judged:
    """Compute strategies, or rule them out by candidates among them or in `front`, until `control` stops."""
    search = _Search(question, control, table, len(some), front)
    search.judge(some)
    return search.judged


def together(question: Question, size: int, parts: Sequence[Judged]) -> Recommendation[Question]:
    """Combine the results for parts of the configurations into a recommendation.

    `size` is the number of configurations.
    """
    timed = sorted((c for part in parts for c in part.candidates), key=lambda each: (each.outcome.latency, each.peak))
    reasons = Counter[str]()
    for part in parts:
        reasons.update(part.infeasible)
    ruled_out = sum(part.ruled_out for part in parts)
    complete = ruled_out + len(timed) + reasons.total() == size
    bound = min(part.bound_s for part in parts) if parts else math.inf
    near = min((part.nearest for part in parts if part.nearest), key=lambda pair: pair[1], default=None)
    return Recommendation(
        question,
        tuple(timed),
        size,
        ruled_out,
        dict(reasons.most_common()),
        None if timed else near,
        bound if complete and bound < math.inf else None,
        complete,
    )


def _no_division(question: Question) -> str:
    """Return why no configuration divides the batch, and the nearest batches that some configuration divides."""
    batch, least = question.spec.batch, question.least_batch
    if least is None:
        return f"no degrees in these ranges have a product of {question.devices}, the number of devices"
    below = batch // least * least
    nearest = " and ".join(str(each) for each in (below, below + least) if each)
    why = f"{batch} samples do not divide into micro-batches on {question.devices} devices with these ranges"
    return f"{why}; the nearest batches that do: {nearest}"


def _least_memory(question: Question) -> float:
    """Return the memory in bytes of the device that has the least. It is infinite if no device has a limit."""
    limits = [device.memory_capacity for device in question.mesh.devices]
    return min((limit for limit in limits if limit is not None), default=math.inf)


class _Search:
    def __init__(
        self, question: Question, control: Control, table: BlockTable, size: int, front: Sequence[Candidate] = ()
    ) -> None:
        self._question, self._control, self._size = question, control, size
        self._engine, self._memory = BlockEngine(table), _least_memory(question)
        self._reasons = Counter[str]()
        self._nearest: tuple[Strategy, float] | None = None
        self._timed, self._front = list[Candidate](), list(front)
        self._bound, self._ruled_out, self._seen = math.inf, 0, 0

    @property
    def judged(self) -> Judged:
        """The result so far."""
        return Judged(tuple(self._timed), self._ruled_out, self._reasons, self._nearest, self._bound)

    def judge(self, some: Sequence[Strategy]) -> None:
        """Compute the bounds of the strategies. Then compute the step times of those that no candidate rules out."""
        self._judge(list(self._staged(some)))

    def _judge(self, every: Sequence[Staged]) -> None:
        """Compute or rule out the configurations. They are sorted by their lower bounds on step time."""
        waiting = list[Staged]()
        for seconds, staged in sorted(((each.least_seconds, each) for each in every), key=lambda pair: pair[0]):
            if self._control.stopped:
                return
            least = staged.least_bytes
            if least > self._memory:
                self._refused(TOO_LARGE)
                self._keep_nearest(staged.asked.strategy, least)
                continue
            self._bound = min(self._bound, seconds)
            if any(c.outcome.latency <= seconds and c.peak <= least for c in self._front):
                self._ruled_out += 1
            else:
                waiting.append(staged)
            if len(waiting) >= (_BATCH if self._timed else _FIRST_BATCH):
                self._time(waiting)
                waiting = []
        self._time(waiting)

    def _refused(self, reason: str) -> None:
        self._reasons[reason] += 1

    def _staged(self, asked: Sequence[Strategy]) -> Iterator[Staged]:
        """Yield the stages of each possible configuration, with its layout. Count the impossible ones by reason."""
        family, spec, mesh = self._question.family, self._question.spec, self._question.mesh
        for strategy in asked:
            if self._control.stopped:
                return
            if self._seen % _CONFIGURATIONS_PER_REPORT == 0:
                self._report(f"{self._seen:,} of {self._size:,} configurations bounded")
            self._seen += 1
            reason = why_not(family, spec, strategy, mesh, Semantics.DEFAULT)
            if reason:
                self._refused(reason)
                continue
            try:
                asked_for = Configuration(spec, strategy)
                static = self._engine.least_static(asked_for)
                if static <= self._memory:
                    yield self._engine.staged(self._engine.with_layout(asked_for))
                else:
                    self._refused(TOO_LARGE)
                    self._keep_nearest(strategy, static)
            except InputError as error:
                self._refused(error.why)

    def _time(self, some: Sequence[Staged]) -> None:
        """Compute the step times of the configurations. Add those that fit to the candidates and to the front."""
        new = list[Candidate]()
        for staged, outcome in zip(some, self._engine.timed(some), strict=True):
            if outcome.reason:
                self._refused(TOO_LARGE)
                self._keep_nearest(staged.asked.strategy, max(outcome.peaks))
            else:
                new.append(Candidate(staged.asked.strategy, outcome))
        self._timed += new
        self._front = front_of([*self._front, *new])
        self._report(f"{len(self._timed):,} configurations timed")

    def _report(self, phase: str) -> None:
        """Report the phase of the search, with the best step time so far."""
        best = Fraction(self._front[0].outcome.latency) if self._front else None
        self._control.report(phase, best, None)

    def _keep_nearest(self, strategy: Strategy, peak: float) -> None:
        if self._nearest is None or peak < self._nearest[1]:
            self._nearest = strategy, peak


def front_of(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the Pareto front of step time and memory, fastest candidate first."""
    found = list[Candidate]()
    for each in sorted(candidates, key=lambda c: (c.outcome.latency, c.peak)):
        if not found or each.peak < found[-1].peak:
            found.append(each)
    return found
