"""The question for the fastest strategy of an operator graph, and the configurations that answer it.

An operator graph is the work of one micro-batch, and has no sizes that could vary. A strategy therefore chooses the
number of replicas of the pipeline, its stages, the devices of each stage, and the order of the micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

from tessel_core.costs.costed import CostOptions
from tessel_core.errors import InputError
from tessel_core.model import Communication, DeviceMesh, LayoutShape, OperatorGraph, StageLayout
from tessel_core.strategies.orders import INTERLEAVED_ORDER
from tessel_core.strategies.rates import StepRates
from tessel_core.strategies.recommendation import FAST_ORDER, divisors
from tessel_core.strategies.strategy import Strategy
from tessel_core.units import counted

MAX_CONFIGURATIONS = 5_000
"""Largest number of configurations of one question. Each needs a placement search or a schedule."""
LIST_ORDER = "list-scheduling"
"""Order for stages that no published order suits, and for those whose published order exceeds the memory."""
_ALL_LENGTHS = 4
"""On at most this many devices, pipelines of all lengths are tried by default. On more, lengths divide the number."""


@dataclass(frozen=True, slots=True)
class GraphStrategy(Strategy):
    """A strategy for an operator graph: `data` replicas of a pipeline with `pipeline` positions.

    `micro_batches` is the number of micro-batches of each replica.
    """

    replicas: tuple[int, ...] = ()
    """Number of devices at each position, which divide every micro-batch. Empty if each position has one device."""
    shape: LayoutShape = LayoutShape.LOOP
    """Order in which stages visit the devices, if there are several per device."""

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.data * (sum(self.replicas) or self.pipeline)

    @property
    def summary(self) -> str:
        """Description without degrees of 1, such as "2 replicas, 4 stages on 1, 2, 2 and 1 devices"."""
        words = [f"{self.data} replicas"] if self.data > 1 else []
        words += [self._stages] if self.devices > self.data else []
        words += [f"{self.micro_batches} micro-batches"] if self.micro_batches > 1 else []
        words += [self.schedule] if self.stages > 1 else []
        return ", ".join(words if self.devices > 1 else ["one device", *words])

    @property
    def _stages(self) -> str:
        """Description of the stages and of their devices."""
        text = counted(self.stages, "stage")
        if self.stages_per_device > 1:
            return f"{text} in a {self.shape} over {self.pipeline} devices"
        if not self.replicas or max(self.replicas) == 1:
            return text
        if len(set(self.replicas)) == 1:
            each = " each" if self.stages > 1 else ""
            return f"{text} on {self.replicas[0]} devices{each}"
        return f"{text} on {', '.join(map(str, self.replicas))} devices"


@dataclass(frozen=True, slots=True)
class GraphRanges:
    """Values to try. For an empty range, values follow from the number of devices and the global batch.

    Raises InputError for a value below 1.
    """

    data: tuple[int, ...] = ()
    """Replicas of the whole pipeline, which divide the micro-batches of a step among them."""
    pipeline: tuple[int, ...] = ()
    """Positions of the pipeline."""
    stages_per_device: tuple[int, ...] = (1, 2)
    schedule: tuple[str, ...] = (FAST_ORDER,)
    """Published orders for one stage per device. Several stages per device use interleaved 1F1B or a list schedule."""

    def __post_init__(self) -> None:
        for each in fields(self):
            numbers = [value for value in getattr(self, each.name) if isinstance(value, int)]
            if numbers and min(numbers) < 1:
                raise InputError(each.name.replace("_", "-"), f"must be at least 1, got {min(numbers)}")


@dataclass(frozen=True, slots=True)
class GraphConfiguration:
    """One combination of the ranges. Its placement is searched."""

    data: int
    pipeline: int
    """Largest number of positions of the pipeline."""
    replicas: int
    """Devices of each position. 0: the placement search chooses a number for each position."""
    layout: StageLayout | None
    schedule: str
    strided: bool = False
    """Whether neighbouring devices of the mesh belong to different replicas of the pipeline."""

    @property
    def devices(self) -> int:
        """Number of devices of one pipeline."""
        return self.pipeline * max(1, self.replicas)

    @property
    def kind(self) -> str:
        """The placements that the search considers, in a few words."""
        if self.layout is not None:
            where = f"on each of {self.pipeline} devices in a {self.layout.shape}"
            return f"{self.layout.stages_per_device} stages {where}"
        if not self.replicas:
            return f"stages with or without replicas on {counted(self.pipeline, 'device')}"
        most = f"at most {counted(self.pipeline, 'stage')}"
        return most if self.replicas == 1 else f"{most} of {self.replicas} devices"


@dataclass(frozen=True)
class GraphQuestion:
    """An operator graph, a mesh and the ranges to try.

    A step processes `micro_batches` micro-batches of the graph on at most all devices of the mesh.
    """

    graph: OperatorGraph
    mesh: DeviceMesh
    micro_batches: int
    """Global batch, counted in micro-batches."""
    ranges: GraphRanges = field(default_factory=GraphRanges)
    costs: CostOptions = field(default_factory=CostOptions)
    communication: Communication = Communication.OVERLAPPED
    first: int | None = None
    """Use only this many devices, the first ones of the mesh. None uses all devices."""

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise InputError("global-batch", f"must be at least 1 micro-batch, got {self.micro_batches}")

    @property
    def devices(self) -> int:
        """Largest number of devices of a strategy."""
        return self.first or len(self.mesh.devices)

    @property
    def halved(self) -> GraphQuestion | None:
        """The question for the first half of the devices. None if their number is odd."""
        return None if self.devices % 2 else replace(self, first=self.devices // 2)

    def samples(self, data: int) -> int:
        """Return the samples of a step that each of `data` pipelines processes. No stage can use more devices."""
        return self.micro_batches // data * self.graph.batch_size

    @property
    def title(self) -> str:
        """Display title of the graph and the batch."""
        samples = f" of {counted(self.graph.batch_size, 'sample')}" if self.graph.batch_size > 1 else ""
        return f"{self.graph.name}, {counted(self.micro_batches, 'micro-batch')}{samples}"

    def rates(self, strategy: Strategy, seconds: float) -> StepRates:
        """Return the rates of a step that takes `seconds`. A graph has no tokens and no number of model FLOPs."""
        return StepRates(self.micro_batches * self.graph.batch_size / seconds, None, None)

    @cached_property
    def configurations(self) -> tuple[GraphConfiguration, ...]:
        """Every configuration of the ranges whose replicas divide the micro-batches evenly.

        Raises InputError if there is none, or if there are more than `MAX_CONFIGURATIONS`.
        """
        found = tuple(self._configurations())
        if not found:
            raise self._why_none
        if len(found) > MAX_CONFIGURATIONS:
            raise InputError(
                "ranges", f"have {len(found):,} configurations, more than the {MAX_CONFIGURATIONS:,} allowed"
            )
        return found

    def _configurations(self) -> Iterator[GraphConfiguration]:
        asked = self.ranges
        for data in asked.data or divisors(self.micro_batches):
            room = self.devices // data
            if not room or self.micro_batches % data:
                continue
            for each in self._pipelines(data, room):
                yield each
                if data > 1 and each.devices > 1 and not self.alike:
                    yield replace(each, strided=True)

    def _pipelines(self, data: int, room: int) -> Iterator[GraphConfiguration]:
        """Yield the configurations of `data` pipelines on `room` devices each."""
        asked = self.ranges
        lengths = [each for each in asked.pipeline or self._lengths(room) if each <= room]
        for pipeline in lengths:
            for several in asked.stages_per_device:
                if several == 1:
                    for replicas in sorted({1, min(room // pipeline, self.samples(data))}):
                        for schedule in asked.schedule:
                            yield GraphConfiguration(data, pipeline, replicas, None, schedule)
                elif pipeline > 1:
                    for shape in LayoutShape:
                        order = INTERLEAVED_ORDER if shape is LayoutShape.LOOP else LIST_ORDER
                        yield GraphConfiguration(data, pipeline, 1, StageLayout(several, shape), order)
        if 1 in asked.stages_per_device and room > 1 and not asked.pipeline:
            for schedule in asked.schedule:
                yield GraphConfiguration(data, room, 0, None, schedule)

    def _lengths(self, room: int) -> tuple[int, ...]:
        """Return the numbers of positions to try by default."""
        return tuple(range(1, room + 1)) if self.devices <= _ALL_LENGTHS else divisors(room)

    @cached_property
    def alike(self) -> bool:
        """Whether all devices are of one kind on one node with equal links, so that their order does not matter."""
        used = self.mesh.devices[: self.devices]
        return not self.mesh.connections and len({(each.kind, each.node, each.memory_capacity) for each in used}) == 1

    @property
    def _why_none(self) -> InputError:
        """Return the error for ranges without a configuration. It names the nearest batches that they divide."""
        fitting = [data for data in self.ranges.data if data <= self.devices]
        count = self.micro_batches
        if not fitting or any(count % data == 0 for data in fitting):
            most = counted(self.devices, "device")
            return InputError("ranges", f"have no pipeline on {most}, or only one of several stages on one device")
        nearest = {*(count // data * data for data in fitting), *(-(-count // data) * data for data in fitting)}
        below, above = max(each for each in nearest if each < count), min(each for each in nearest if each > count)
        among = " or ".join(map(str, fitting))
        said = " and ".join(str(each) for each in (below, above) if each)
        why = f"{count} micro-batches do not divide among {among} replicas; the nearest numbers that do: {said}"
        return InputError("global-batch", why)

    def strategy_of(self, configuration: GraphConfiguration) -> GraphStrategy:
        """Return the strategy of a configuration whose placement is unknown."""
        layout, count = configuration.layout, configuration.replicas
        return GraphStrategy(
            configuration.data,
            pipeline=configuration.pipeline,
            micro_batches=self.micro_batches // configuration.data,
            schedule=configuration.schedule,
            stages_per_device=1 if layout is None else layout.stages_per_device,
            replicas=(count,) * configuration.pipeline if count > 1 else (),
            shape=LayoutShape.LOOP if layout is None else layout.shape,
        )

    def pipelines_of(self, configuration: GraphConfiguration) -> tuple[tuple[int, ...], ...]:
        """Return the devices of each replica of the pipeline, in the order of its positions."""
        data, each = configuration.data, configuration.devices
        if configuration.strided:
            return tuple(tuple(range(k, data * each, data)) for k in range(data))
        return tuple(tuple(range(k * each, (k + 1) * each)) for k in range(data))
