"""Grids of configurations.

A grid is the product of ranges of sizes and strategies. Evaluate it and find the best ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.ir.operators.formats import FP8
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.model import DeviceMesh
from tessel_core.strategies.configuration import Configuration, StrategyResult
from tessel_core.strategies.evaluation import NOT_REACHED, confirmed, evaluate, simulated_layers
from tessel_core.strategies.families import Family, Spec, Value
from tessel_core.strategies.orders import DEFAULT_ORDER, usual_order
from tessel_core.strategies.ranks import RankOrder, distinct_orders
from tessel_core.strategies.strategy import BUCKET_BYTES, Semantics, Strategy
from tessel_core.strategies.wiring import nodes_of

MAX_CONFIGURATIONS = 200_000
"""Largest number of configurations of a grid or a search. They take some minutes."""

SMALL_GRID_LAYERS = 500
"""In a grid with at most this many layers, every operation is simulated. That takes half a second.

Each layer counts once per micro-batch.
"""
CONFIRMED_LAYERS = 4000
"""The best configurations are simulated operation by operation as long as they have at most this many layers in total.

Each layer counts once per micro-batch. That takes some seconds.
"""

_MAX_NUMBER = 2**53

Ranges = tuple[tuple[str, tuple[Value, ...]], ...]
"""Values of sizes, by the name of the size."""


def ranges(**values: Sequence[Value]) -> Ranges:
    """Return the values of sizes, which are given as keyword arguments.

    >>> ranges(layers=(2, 4), dtype=("fp16",))
    (('layers', (2, 4)), ('dtype', ('fp16',)))
    """
    return tuple((name, tuple(some)) for name, some in values.items())


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the values of the fields and of a family's sizes. Sizes without values have their defaults.

    The number format "fp8" means bf16 with the products of linear layers in FP8.

    Raises InputError for a range without values, a degree below 1, and more than `MAX_CONFIGURATIONS` configurations.
    The family checks its sizes.
    """

    sizes: Ranges = ()
    data: tuple[int, ...] = (1,)
    tensor: tuple[int, ...] = (1,)
    pipeline: tuple[int, ...] = (1,)
    micro_batches: tuple[int, ...] = (1,)
    schedule: tuple[str, ...] = (DEFAULT_ORDER,)
    recompute: tuple[Recompute, ...] = (Recompute.NONE,)
    zero: tuple[int, ...] = (0,)
    """Stages of ZeRO. If 0 is among them, strategies with a single replica use only 0."""
    micro_batch_size: tuple[int, ...] = ()
    """Samples per micro-batch.

    If given, they replace `micro_batches`. The number of micro-batches is then batch / (D · size).
    """
    stages_per_device: tuple[int, ...] = (1,)
    """Stages per device. If there are several, the default order is interleaved 1F1B."""
    rank_order: tuple[RankOrder | None, ...] = (None,)
    """Rank orders.

    None is the default order. An order is left out if an earlier one spreads the ranks in the same way.
    """
    bucket_bytes: tuple[int, ...] = (BUCKET_BYTES,)
    context: tuple[int, ...] = (1,)
    context_method: tuple[ContextMethod, ...] = (ContextMethod.RING,)
    """Methods of context parallelism. Without context parallelism, a strategy has only the first method."""
    expert: tuple[int, ...] = (1,)
    grad_dtype: tuple[str, ...] = ("",)
    attention: tuple[AttentionKernel, ...] = (AttentionKernel.FUSED,)
    sequence_parallel: bool = False
    """Whether every strategy with tensor parallelism also has sequence parallelism."""
    compiled: bool = False

    def __post_init__(self) -> None:
        sizes = dict(self.sizes)
        for name, values in self._all():
            if not values:
                raise InputError(name, "its range has no values")
            numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
            least = 0 if name in ("bucket_bytes", "zero") or name in sizes else 1
            if min(numbers, default=least) < least:
                raise InputError(name, f"must be at least {least}, got {min(numbers)}")
        if self.size > MAX_CONFIGURATIONS:
            why = f"has {self.size:,} configurations, more than the {MAX_CONFIGURATIONS:,} allowed"
            raise InputError("grid", why)

    @property
    def size(self) -> int:
        """Number of combinations of all values."""
        return math.prod(len(values) for _, values in self._all())

    def _all(self) -> list[tuple[str, tuple[object, ...]]]:
        unused = "micro_batches" if self.micro_batch_size else "micro_batch_size"
        named = [(each.name, getattr(self, each.name)) for each in fields(self) if each.name not in ("sizes", unused)]
        return [*self.sizes, *(pair for pair in named if isinstance(pair[1], tuple))]

    def configurations(
        self, family: Family, devices: int | None = None, nodes: Sequence[int] | None = None
    ) -> list[Configuration]:
        """Return all configurations that need at most `devices` devices.

        `nodes` has the node of each device. If it is None, each device is on its own node.
        """
        choices = list(self._choices(devices, nodes))
        counted = {False: [Strategy(**each) for each in choices]} if not self.micro_batch_size else {}
        if counted and FP8 in dict(self.sizes).get("dtype", ()):
            counted[True] = [replace(each, fp8=True) for each in counted[False]]
        found = list[Configuration]()
        for values in product(*(values for _, values in self.sizes)):
            named = dict(zip((name for name, _ in self.sizes), values, strict=True))
            fp8 = named.get("dtype") == FP8
            spec = family.spec(**named | ({"dtype": "bf16"} if fp8 else {}))
            if self.micro_batch_size:
                found += [_of_size(spec, **each, fp8=fp8) for each in choices]
            else:
                found += [Configuration(spec, strategy) for strategy in counted[fp8]]
        return found

    def _choices(self, devices: int | None, nodes: Sequence[int] | None) -> Iterator[dict[str, Any]]:
        """Yield the fields of each strategy.

        With `micro_batch_size`, the field `micro_batches` is the size of a micro-batch.
        """
        ranges = {name: getattr(self, name) for name in _RANGES}
        ranges["micro_batches"] = self.micro_batch_size or self.micro_batches
        for values in product(*ranges.values()):
            each = dict(zip(ranges, values, strict=True))
            if self._repeats(each) or (devices is not None and _devices_of(each) > devices):
                continue
            if each["schedule"] == DEFAULT_ORDER:
                each["schedule"] = usual_order(each["stages_per_device"])
            each["sequence_parallel"] = self.sequence_parallel and each["tensor"] > 1
            each["compiled"] = self.compiled
            for order, bucket in product(self._orders(each, nodes), self.bucket_bytes):
                yield each | {"rank_order": order, "bucket_bytes": bucket}

    def _repeats(self, each: Mapping[str, Any]) -> bool:
        """Return whether a value in `each` has no effect, so that another combination gives the same strategy."""
        alone = each["zero"] > 0 and each["data"] * each["context"] == 1 and 0 in self.zero
        return alone or (each["context"] == 1 and each["context_method"] != self.context_method[0])

    def _orders(self, each: Mapping[str, Any], nodes: Sequence[int] | None) -> Sequence[RankOrder | None]:
        """Return the rank orders to try for these degrees."""
        named = [order for order in self.rank_order if order is not None]
        if len(named) < 2:
            return self.rank_order
        degrees = {name: each[name] for name in ("data", "tensor", "pipeline", "context", "expert")}
        return distinct_orders(named, **degrees, nodes=range(_devices_of(each)) if nodes is None else nodes)

    def too_large(self, devices: int) -> int:
        """Return the number of combinations that need more than `devices` devices."""
        degrees = list(product(self.data, self.tensor, self.pipeline, self.context))
        return self.size // len(degrees) * sum(math.prod(each) > devices for each in degrees)


_RANGES = (
    *("data", "tensor", "pipeline", "micro_batches", "schedule", "recompute", "zero", "stages_per_device"),
    *("context", "context_method", "expert", "grad_dtype", "attention"),
)
"""Fields in the order of nested loops, innermost last. The loops over rank orders and buckets are inside these."""


def _devices_of(each: Mapping[str, Any]) -> int:
    return int(each["data"] * each["tensor"] * each["pipeline"] * each["context"])


def _of_size(spec: Spec, *, micro_batches: int, **fields: Any) -> Configuration:
    """Return a configuration whose micro-batches have `micro_batches` samples. The batch gives their number."""
    count = max(1, spec.batch // (fields["data"] * micro_batches))
    return Configuration(spec, Strategy(**fields, micro_batches=count), micro_batches)


def doubling(most: int) -> tuple[int, ...]:
    """Return the powers of two up to `most`.

    >>> doubling(12)
    (1, 2, 4, 8)
    """
    return tuple(1 << i for i in range(most.bit_length())) if most > 0 else ()


def read_range(words: str, what: str) -> tuple[int, ...]:
    """Return the numbers of a text that consists of numbers and ranges. Raises InputError at `what` for any other text.

    >>> read_range("1, 3..5, 8..64x2", "data")
    (1, 3, 4, 5, 8, 16, 32, 64)
    """
    found: dict[int, None] = {}
    for part in filter(None, (each.strip() for each in words.split(","))):
        found.update(dict.fromkeys(_part(part, what)))
    return tuple(found)


def _part(part: str, what: str) -> Iterator[int]:
    first, dots, rest = part.partition("..")
    last, times, factor = rest.partition("x")
    numbers = [first, *([last] if dots else []), *([factor] if times else [])]
    if not all(
        number.strip().isascii() and number.strip().isdigit() and int(number) <= _MAX_NUMBER for number in numbers
    ):
        raise InputError(what, f"must be numbers and ranges such as 1,3..5 or 1..64x2, got {part!r}")
    low, high = int(first), int(last) if dots else int(first)
    if times and (int(factor) < 2 or low < 1):
        raise InputError(what, f"must multiply by 2 or more and begin at 1 or more, got {part!r}")
    if not times and high - low >= MAX_CONFIGURATIONS:
        why = f"{part!r} has {high - low + 1:,} values, more than the {MAX_CONFIGURATIONS:,} allowed"
        raise InputError(what, why)
    while low <= high:
        yield low
        low = low * int(factor) if times else low + 1


_RARE_FIELDS = ("context", "context_method", "expert", "sequence_parallel", "grad_dtype", "attention", "compiled")

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Objective:
    """A quantity by which strategies are compared."""

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
    """Configurations and their outcomes, in the order of the grid."""

    family: Family
    mesh: DeviceMesh
    semantics: Semantics
    configurations: tuple[Configuration, ...]
    outcomes: tuple[StrategyResult, ...]
    too_large: int = 0
    """Number of configurations that were left out because they need too many devices."""
    overlap: bool = True
    link_sharing: bool = False
    evaluated: tuple[StrategyResult, ...] = ()
    """Outcomes before the best configurations were simulated operation by operation."""

    def __len__(self) -> int:
        return len(self.configurations)

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether each configuration is feasible."""
        return np.array([not outcome.reason for outcome in self.outcomes], bool)

    @cached_property
    def several_networks(self) -> bool:
        """Whether configurations differ in the sizes of the network. Texts then have to name the sizes."""
        return len({each.spec for each in self.configurations}) > 1

    @cached_property
    def unusual(self) -> tuple[str, ...]:
        """Rarely used fields of strategies that do not have their default in some strategy of the grid."""
        usual, found = Strategy(), {each.strategy for each in self.configurations}
        return tuple(
            name for name in _RARE_FIELDS if any(getattr(each, name) != getattr(usual, name) for each in found)
        )

    @cached_property
    def unreached(self) -> int:
        """Number of configurations that were not evaluated because the evaluation was stopped."""
        return sum(outcome.reason == NOT_REACHED for outcome in self.outcomes)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Values of each objective, one per configuration. NaN if the configuration was not simulated.

        Throughput is in samples per second, latency in seconds per step, and peak memory in bytes of the fullest
        device.
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
        """Index of each configuration in the grid."""
        return {each: i for i, each in enumerate(self.configurations)}

    def ranked(self, objective: str) -> list[int]:
        """Return the indices of the feasible configurations, best first. Other objectives break ties."""
        rest = [name for name in OBJECTIVES if name != objective]
        keys = [_less_is_better(name, self.columns[name]) for name in (objective, *rest)]
        order = np.lexsort(keys[::-1])
        return [int(i) for i in order if self.feasible[i]]

    @cached_property
    def front(self) -> tuple[int, ...]:
        """Indices of the configurations on the Pareto front of all objectives, in ascending order."""
        return self.front_of(tuple(OBJECTIVES))

    def front_of(self, objectives: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of the configurations on the Pareto front of `objectives`, in ascending order.

        If configurations are equal in these objectives, all of them or none are on the front.
        """
        keys = [_less_is_better(name, self.columns[name]) for name in objectives]
        ranked = [int(i) for i in np.lexsort(keys[::-1]) if self.feasible[i]]
        costs = np.array(keys).T[ranked]
        kept = np.empty((0, len(objectives)))
        found = list[int]()
        for i, cost in zip(ranked, costs, strict=True):
            # Configurations that dominate another one come earlier in this order. So it is enough to compare with those
            # already kept.
            worse = (kept <= cost).all(axis=1)
            if not worse.any() or (kept[worse] == cost).all(axis=1).any():
                kept = np.vstack((kept, cost))
                found.append(i)
        return tuple(sorted(found))

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Number of infeasible configurations for each reason, most frequent reason first."""
        found: dict[str, int] = {}
        for outcome in self.outcomes:
            if outcome.reason:
                found[outcome.reason] = found.get(outcome.reason, 0) + 1
        return dict(sorted(found.items(), key=lambda each: -each[1]))

    @cached_property
    def reason_kinds(self) -> dict[str, tuple[int, ...]]:
        """Indices of the infeasible configurations for each kind of reason, most frequent kind first.

        Reasons of the same kind differ only in their numbers.
        """
        found: dict[str, list[int]] = {}
        for i, outcome in enumerate(self.outcomes):
            if outcome.reason:
                kind = _ANY_NUMBER.sub("…", outcome.reason) if not outcome.peaks else "not enough memory"
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
    known: Mapping[Configuration, StrategyResult] = MappingProxyType({}),
) -> GridResult:
    """Evaluate all configurations of the grid that need at most `most` devices. The default is the mesh's number of
    devices.

    Most times are computed from blocks of layers. Then the best configuration for each objective is simulated operation
    by operation. The result may make another configuration the best, which is then simulated, too. This ends when the
    best of each objective has been simulated, or when `CONFIRMED_LAYERS` layers have been. In a grid with at most
    `SMALL_GRID_LAYERS` layers, every configuration is simulated. Outcomes in `known` are not computed again. They are
    those of `GridResult.evaluated` for the same family, mesh and rules.
    """
    most = most or len(mesh.devices)
    configurations = grid.configurations(family, most, nodes_of(mesh))
    new = [each for each in configurations if each not in known]
    fresh = evaluate(family, new, mesh, semantics, control, overlap=overlap, link_sharing=link_sharing)
    found = {**known, **dict(zip(new, fresh, strict=True))}
    outcomes = tuple(found[each] for each in configurations)
    left_out = grid.too_large(most)
    how = overlap, link_sharing, outcomes
    whole = GridResult(family, mesh, semantics, tuple(configurations), outcomes, left_out, *how)
    return _best_confirmed(whole, control)


def _same(one: StrategyResult, other: StrategyResult) -> bool:
    """Return whether two results differ only by rounding."""
    return one.peaks == other.peaks and math.isclose(one.latency, other.latency, rel_tol=1e-9)


def _best_confirmed(found: GridResult, control: Control | None) -> GridResult:
    """Return the grid after the best configuration for each objective was simulated operation by operation.

    In a small grid, every configuration was.
    """
    left = CONFIRMED_LAYERS
    layers = sum(
        simulated_layers(each)
        for each, outcome in zip(found.configurations, found.outcomes, strict=True)
        if outcome.by_blocks
    )
    while not found.unreached and not (control is not None and control.stopped):
        best = (i for name in OBJECTIVES for i in found.ranked(name)[:1])
        chosen = dict.fromkeys(range(len(found)) if layers <= SMALL_GRID_LAYERS else best)
        outcomes = list(found.outcomes)
        for i in (i for i in chosen if outcomes[i].by_blocks):
            exact = confirmed(found.family, found.configurations[i], found.mesh, left)
            if exact is not None:
                left -= simulated_layers(found.configurations[i])
                # If numbers differ only by rounding, keep the old ones. Strategies that were equally good then stay so.
                outcomes[i] = replace(outcomes[i], by_blocks=False) if _same(outcomes[i], exact) else exact
        if outcomes == list(found.outcomes):
            break
        found = replace(found, outcomes=tuple(outcomes))
    return found
