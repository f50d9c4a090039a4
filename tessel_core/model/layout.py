"""Layouts with several pipeline stages per device, and the memory that their usual schedules hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tessel_core.model.checks import check_integer
from tessel_core.model.in_flight import InFlight
from tessel_core.model.operator_graph import OperatorGraph

MOST_STAGES_PER_DEVICE = 64


class LayoutShape(StrEnum):
    """The way of a chain of stages over the devices."""

    LOOP = "loop"
    """From the last device to the first, and round again."""
    V = "v"
    """Down the devices and up again."""


@dataclass(frozen=True, slots=True)
class StageLayout:
    """Equally many pipeline stages per device, as a loop or as a V; stages and devices are numbered from 0."""

    stages_per_device: int
    shape: LayoutShape = LayoutShape.LOOP

    def __post_init__(self) -> None:
        check_integer("layout", "the number of stages per device", self.stages_per_device, least=2)

    def device_of(self, stage: int, devices: int) -> int:
        """The device of a stage.

        >>> [StageLayout(2, LayoutShape.V).device_of(stage, 3) for stage in range(6)]
        [0, 1, 2, 2, 1, 0]
        """
        return stage_device(stage, devices, returns=self.shape is LayoutShape.V)

    def stages_of(self, device: int, devices: int) -> tuple[int, ...]:
        """The stages of a device, along the chain."""
        return tuple(s for s in range(self.stages_per_device * devices) if self.device_of(s, devices) == device)

    def in_flight(self, device: int, devices: int) -> tuple[tuple[int, ...], ...]:
        """How many micro-batches each stage of a device holds at once, in the fullest moments of training.

        Each entry is one moment, with a number per stage of the device.  A loop is run by interleaved 1F1B
        [Narayanan 2021], a V of two stages per device by ZB-V [Qi 2024].  No order is published for longer Vs; each
        stage then holds as many micro-batches as there are devices.  On one device the two shapes are the same.

        >>> StageLayout(2).in_flight(1, 2)
        ((2, 1), (3, 0))
        """
        if self.shape is LayoutShape.LOOP or devices == 1:
            return _interleaved(device, devices, self.stages_per_device)
        if self.stages_per_device == 2:
            return ((2 * devices - device, device), (2 * devices - device - 1, device + 1))
        return ((devices,) * self.stages_per_device,)

    def moments(self, device: int, devices: int, rule: InFlight) -> tuple[tuple[int, ...], ...]:
        """As `in_flight`, for the schedules of a rule; `1f1b` is interleaved 1F1B or ZB-V, of so many micro-batches."""
        if not rule.by_position:
            return ((rule.held_at(1),) * self.stages_per_device,)
        moments = self.in_flight(device, devices)
        return tuple(dict.fromkeys(tuple(min(n, rule.micro_batches) for n in each) for each in moments))


def stage_device(stage: int, devices: int, *, returns: bool) -> int:
    """The device of a stage in a chain that goes round the devices, or with `returns` down and up again."""
    turn, place = divmod(stage, devices)
    return devices - 1 - place if returns and turn % 2 else place


def _interleaved(device: int, devices: int, rounds: int) -> tuple[tuple[int, ...], ...]:
    """The moments in which no stage could hold more without another one holding less.

    Forward passes go through a device's stages in groups of as many micro-batches as there are devices, and backward
    passes in reverse.  `ahead` forward passes run before the first backward pass, and after that the two alternate.
    """
    ahead = 2 * (devices - 1 - device) + (rounds - 1) * devices

    def passes(stage: int, ended: int) -> int:
        """How many of the first `ended` passes are of a stage."""
        whole, rest = divmod(ended, rounds * devices)
        return whole * devices + min(max(rest - stage * devices, 0), devices)

    moments = {
        tuple(passes(stage, ahead + 1 + done) - passes(rounds - 1 - stage, done) for stage in range(rounds))
        for done in range(rounds * devices)
    }
    return tuple(sorted(each for each in moments if not any(_dominates(other, each) for other in moments)))


def _dominates(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one != other and all(more >= less for more, less in zip(one, other, strict=True))


class StagedPlacement(Protocol):
    """The part of a `Placement` that its layout follows from."""

    @property
    def graph(self) -> OperatorGraph: ...
    @property
    def assignment(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def stages(self) -> tuple[int, ...] | None: ...
    @property
    def in_flight(self) -> InFlight: ...
    @property
    def operators_on(self) -> tuple[frozenset[int], ...]: ...
    @property
    def lasting_bytes(self) -> tuple[float, ...]: ...


def layout_of(placement: StagedPlacement) -> StageLayout | None:
    """The layout of a placement in stages; None where it has no stages, or they are neither a loop nor a V."""
    if placement.stages is None:
        return None
    on = dict(zip(placement.stages, placement.assignment, strict=True))
    chain = [on[stage] for stage in sorted(on)]
    places = list(dict.fromkeys(chain))
    if len(chain) <= max(on) or any(len(each) != 1 for each in places):
        return None
    if len(chain) % len(places) or len(chain) == len(places):
        return None
    for shape in LayoutShape:
        layout = StageLayout(len(chain) // len(places), shape)
        if chain == [places[layout.device_of(stage, len(places))] for stage in range(len(chain))]:
            return layout
    return None


def stages_after_move(placement: StagedPlacement, operators: Collection[int], device: int) -> tuple[int, ...] | None:
    """Per operator its stage once these are on the device: there, the nearest to the stage that they had.

    None for a placement without stages; on a device without any, operators keep their stages.
    """
    if placement.stages is None:
        return None
    stage_of, going = placement.stages, set(operators)
    there = {stage_of[i] for i in placement.operators_on[device] if i not in going}
    return tuple(
        min(sorted(there), key=lambda stage: abs(stage - at), default=at) if i in going else at
        for i, at in enumerate(stage_of)
    )


def layout_memory(placement: StagedPlacement, layout: StageLayout) -> tuple[float, ...]:
    """Bytes that each device holds in its fullest moment, all of its stages together."""
    assert placement.stages is not None, "a layout has stages"
    stage_of, kept = placement.stages, placement.graph.kept_bytes
    activations = [0.0] * (1 + max(stage_of))
    for bytes_, stage in zip(kept, stage_of, strict=True):
        activations[stage] += bytes_
    found = [sum(placement.lasting_bytes[i] for i in sorted(on)) for on in placement.operators_on]
    chain = [placement.assignment[stage_of.index(stage)][0] for stage in range(len(activations))]
    devices = tuple(dict.fromkeys(chain))
    for place, device in enumerate(devices):
        stages = layout.stages_of(place, len(devices))
        moments = layout.moments(place, len(devices), placement.in_flight)
        found[device] += max(sum(n * activations[s] for n, s in zip(each, stages, strict=True)) for each in moments)
    return tuple(found)
