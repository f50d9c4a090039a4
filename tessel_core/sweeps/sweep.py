"""Definition of a sweep: its axes, and one independent point for each combination of their values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from tessel_core.costs.costed import CostOptions
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.formats.fields import fingerprint
from tessel_core.model import Communication
from tessel_core.model.checks import check_integer, check_unique
from tessel_core.model.in_flight import GPIPE, ONE_F_ONE_B
from tessel_core.options import Option, check_options, option, options_of
from tessel_core.placement import PLACERS, find_placer
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler
from tessel_core.units import counted

MAX_POINTS = 100_000
"""Largest number of points of one sweep. All points and their keys are kept in memory."""

_COSTS = options_of(CostOptions)


@dataclass(frozen=True, slots=True)
class SweepTerms:
    """Options that hold for all points of a sweep."""

    dtype: str = option(_COSTS["dtype"][1], _COSTS["dtype"][0])
    optimizer: str = option(_COSTS["optimizer"][1], _COSTS["optimizer"][0])
    communication: str = option(
        str(Communication.OVERLAPPED),
        Option(
            "Communication",
            "Whether a device waits during a transfer or computes at the same time",
            choices=tuple(map(str, Communication)),
        ),
    )
    split_weights: bool = option(False, Option("Split weights", "Compute weight gradients in separate blocks", 0, 1))
    time_limit: float = option(
        20.0,
        Option(
            "Time limit",
            "Time limit per point. Half of it is for the placement and half for the schedule",
            0.2,
            7200,
            "s",
        ),
    )
    seed: int = option(0, Option("Seed", "Seed of the solver's random choices", 0, 2**31 - 1))


@dataclass(frozen=True)
class SweepPoint:
    """One point of a sweep: a graph and all settings to cost, place, plan and schedule it. A point can be pickled."""

    graph: GraphFile
    mesh: MeshFile
    memory: int | None
    """Memory of every device except hosts, in bytes. None keeps the memory of the mesh."""
    placer: str
    micro_batch_size: int
    """Samples per micro-batch."""
    in_flight: int | str
    """Number of micro-batches whose activations each stage holds, as in `CostOptions`."""
    scheduler: str
    micro_batches: int
    terms: SweepTerms

    @cached_property
    def key(self) -> str:
        """SHA-256 of the point as canonical JSON. It is equal in every process and on every machine."""
        return fingerprint({**self._placement_document, **self._schedule_document})

    @cached_property
    def placement_key(self) -> str:
        """SHA-256 of the settings on which the placement depends."""
        return fingerprint(self._placement_document)

    @cached_property
    def costs(self) -> CostOptions:
        """Cost options for the placement.

        The number of micro-batches is reduced to the largest number that has an effect.
        """
        most = self.micro_batches
        if self.in_flight == ONE_F_ONE_B:
            most = min(most, len(self.mesh.mesh.devices))
        return CostOptions(self.terms.dtype, self.terms.optimizer, self.in_flight, most)

    @property
    def _placement_document(self) -> dict[str, object]:
        counted = {} if isinstance(self.in_flight, int) else {"held": self.costs.micro_batches}
        return {
            "format": "tessel-sweep-point",
            "version": 1,
            **counted,
            "graph": self.graph.fingerprint,
            "mesh": self.mesh.fingerprint,
            "memory": self.memory,
            "placer": self.placer,
            "micro_batch_size": self.micro_batch_size,
            "in_flight": self.in_flight,
            "dtype": self.terms.dtype,
            "optimizer": self.terms.optimizer,
            "communication": self.terms.communication,
            "time_limit": float(self.terms.time_limit),
        }

    @property
    def _schedule_document(self) -> dict[str, object]:
        return {
            "scheduler": self.scheduler,
            "micro_batches": self.micro_batches,
            "split_weights": self.terms.split_weights,
            "seed": self.terms.seed,
        }


@dataclass(frozen=True)
class SolverSweep:
    """Axes of a sweep. Every combination of their values is a point.

    Raises InputError in these cases: an axis is empty or has a value twice; a name or number is invalid; two graphs or
    two meshes have the same name; there are more than `MAX_POINTS` points.
    """

    graphs: tuple[GraphFile, ...]
    meshes: tuple[MeshFile, ...]
    memories: tuple[int | None, ...] = (None,)
    placers: tuple[str, ...] = (next(iter(PLACERS)),)
    micro_batch_sizes: tuple[int | None, ...] = (None,)
    """Samples per micro-batch. None stands for the batch size of the graph."""
    in_flight: tuple[int | str, ...] = (ONE_F_ONE_B,)
    schedulers: tuple[str, ...] = (DEFAULT_SCHEDULER,)
    micro_batches: tuple[int, ...] = (32,)
    terms: SweepTerms = SweepTerms()

    def __post_init__(self) -> None:
        check_unique("graphs", (each.graph.name for each in self.graphs))
        check_unique("meshes", (each.mesh.name for each in self.meshes))
        for file in self.graphs:
            if file.pool is not None or not file.fingerprint:
                why = "is not a tessel-graph or ONNX file; a sweep on meshes needs times in seconds and sizes in bytes"
                raise InputError(f"graph {file.graph.name}", why)
        for name, axis in self._axes.items():
            if not axis:
                raise InputError(name, "must have at least one value")
            check_unique(name, map(str, axis))
        self._check_values()
        check_options(self.terms)
        if self.size > MAX_POINTS:
            sizes = " × ".join(f"{len(axis):,} {name}" for name, axis in self._axes.items() if len(axis) > 1)
            raise InputError("sweep", f"{sizes} are {self.size:,} points, more than the limit of {MAX_POINTS:,}")

    def _check_values(self) -> None:
        for placer in self.placers:
            find_placer(placer)
        for scheduler in self.schedulers:
            find_scheduler(scheduler)
        _check_counts("memory", self.memories, least=0)
        _check_counts("micro-batch size", self.micro_batch_sizes, least=1)
        numbers = [each for each in self.in_flight if each not in (ONE_F_ONE_B, GPIPE)]
        _check_counts("micro-batches in flight", numbers, least=1)
        _check_counts("micro-batches", self.micro_batches, least=1)

    @property
    def _axes(self) -> dict[str, tuple[object, ...]]:
        """Values of each axis, outermost axis first. The order makes points with the same placement consecutive."""
        return {
            "graphs": tuple(each.fingerprint for each in self.graphs),
            "meshes": tuple(each.fingerprint for each in self.meshes),
            "memories": self.memories,
            "placers": self.placers,
            "micro-batch sizes": self.micro_batch_sizes,
            "micro-batches in flight": self.in_flight,
            "schedulers": self.schedulers,
            "numbers of micro-batches": self.micro_batches,
        }

    @property
    def size(self) -> int:
        """Number of points."""
        return prod(map(len, self._axes.values()))

    @cached_property
    def points(self) -> tuple[SweepPoint, ...]:
        """One point for every combination of axis values. The first axis changes slowest."""
        axes = (self.graphs, self.meshes, self.memories, self.placers, self.micro_batch_sizes, self.in_flight)
        return tuple(
            SweepPoint(graph, mesh, memory, placer, size or graph.graph.batch_size, held, scheduler, count, self.terms)
            for graph, mesh, memory, placer, size, held, scheduler, count in product(
                *axes, self.schedulers, self.micro_batches
            )
        )

    @cached_property
    def key(self) -> str:
        """SHA-256 of the sorted keys of the points, so the order of axis values does not matter."""
        return hashlib.sha256("".join(sorted(each.key for each in self.points)).encode()).hexdigest()

    @property
    def title(self) -> str:
        """Short description with the number of points, the graphs and the meshes."""
        graphs, meshes = _some(each.graph.name for each in self.graphs), _some(each.mesh.name for each in self.meshes)
        return f"{counted(self.size, 'point')} of {graphs} on {meshes}"


def _check_counts(what: str, values: Sequence[int | str | None], least: int) -> None:
    for value in values:
        if value is not None:
            check_integer("sweep", what, value, least=least)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed) if len(listed) <= 3 else f"{', '.join(listed[:2])} and {len(listed) - 2} more"
