"""Layouts with several pipeline stages per device, and the memory that they need under published schedules."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tessel_core.model.checks import check_integer
from tessel_core.model.in_flight import InFlight
from tessel_core.model.operator_graph import OperatorGraph

MAX_STAGES_PER_DEVICE = 64


class LayoutShape(StrEnum):
    """Order in which consecutive stages visit the devices."""

    LOOP = "loop"
    """Stages go from the first device to the last, then start again at the first."""
    V = "v"
    """Stages go from the first device to the last, then back to the first."""


@dataclass(frozen=True, slots=True)
class StageLayout:
    """The same number of pipeline stages on each device, in a loop or a V. Stages and devices are numbered from 0."""

    stages_per_device: int
    shape: LayoutShape = LayoutShape.LOOP

    def __post_init__(self) -> None:
        check_integer("layout", "the number of stages per device", self.stages_per_device, least=2)

    def device_of(self, stage: int, devices: int) -> int:
        """Return the device of a stage.

        >>> [StageLayout(2, LayoutShape.V).device_of(stage, 3) for stage in range(6)]
        [0, 1, 2, 2, 1, 0]
        """
        return stage_device(stage, devices, returns=self.shape is LayoutShape.V)

    def stages_of(self, device: int, devices: int) -> tuple[int, ...]:
        """Return the stages of a device, in pipeline order."""
        return tuple(s for s in range(self.stages_per_device * devices) if self.device_of(s, devices) == device)

    def in_flight(self, device: int, devices: int) -> tuple[tuple[int, ...], ...]:
        """Return how many micro-batches each stage of a device holds when the memory of the device may peak.

        The result has one tuple for each such moment, with one number for each stage of the device. A loop runs
        interleaved 1F1B [Narayanan 2021], and a V of two stages per device runs ZB-V [Qi 2024]. No order is published
        for longer Vs: each of their stages holds one micro-batch per device. On one device, both shapes are the same.

        >>> StageLayout(2).in_flight(1, 2)
        ((2, 1), (3, 0))
        """
        if self.shape is LayoutShape.LOOP or devices == 1:
            return _interleaved(device, devices, self.stages_per_device)
        if self.stages_per_device == 2:
            return ((2 * devices - device, device), (2 * devices - device - 1, device + 1))
        return ((devices,) * self.stages_per_device,)

    def moments(self, device: int, devices: int, rule: InFlight) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of micro-batches held, in the format of `in_flight`, under a rule of `InFlight`.

        Here the rule `1f1b` means interleaved 1F1B for a loop and ZB-V for a V.
        """
        if not rule.by_position:
            return ((rule.held_at(1),) * self.stages_per_device,)
        moments = self.in_flight(device, devices)
        return tuple(dict.fromkeys(tuple(min(n, rule.micro_batches) for n in each) for each in moments))


def stage_device(stage: int, devices: int, *, returns: bool) -> int:
    """Return the device of a stage in a loop over the devices, or in a V if `returns` is true."""
    turn, place = divmod(stage, devices)
    return devices - 1 - place if returns and turn % 2 else place


def _interleaved(device: int, devices: int, rounds: int) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of micro-batches held under interleaved 1F1B.

    A moment is left out if at another moment every stage holds at least as many micro-batches.

    Forward passes visit a device's stages in groups of one micro-batch per device, and backward passes do so in
    reverse. `ahead` forward passes run before the first backward pass. After that, forward and backward passes
    alternate.
    """
    ahead = 2 * (devices - 1 - device) + (rounds - 1) * devices

    def passes(stage: int, ended: int) -> int:
        """Return how many of the device's first `ended` passes (of one direction) belong to a stage."""
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
    """The part of `Placement` that this module needs. Importing the class itself would form an import cycle."""

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
    """Return the layout of a placement, or None if it has no stages or they form neither a loop nor a V."""
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
    """Return the stage of each operator after `operators` have moved to a device.

    The device may have several stages. A moved operator joins the one whose number is closest to its old stage. If the
    device has no stage, the operator keeps its old stage. The result is None for a placement without stages.
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
    """Return the peak bytes of each device, over all of its stages."""
    assert placement.stages is not None, "a layout has stages"
    stage_of, kept = placement.stages, placement.graph.kept_bytes
    activations = [0.0] * (1 + max(stage_of))
    for bytes_, stage in zip(kept, stage_of, strict=True):
        activations[stage] += bytes_
    peaks = [sum(placement.lasting_bytes[i] for i in sorted(on)) for on in placement.operators_on]
    chain = [placement.assignment[stage_of.index(stage)][0] for stage in range(len(activations))]
    devices = tuple(dict.fromkeys(chain))
    for place, device in enumerate(devices):
        stages = layout.stages_of(place, len(devices))
        moments = layout.moments(place, len(devices), placement.in_flight)
        peaks[device] += max(sum(n * activations[s] for n, s in zip(each, stages, strict=True)) for each in moments)
    return tuple(peaks)
