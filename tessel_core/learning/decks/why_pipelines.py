"""Slides on why networks are cut into stages, and batches into micro-batches."""

from __future__ import annotations

from tessel_core.learning.deck import Deck, Slide
from tessel_core.learning.solved import drawn, idle, percent
from tessel_core.learning.task import Facts, Titled
from tessel_core.model import MemoryProfile, MicroBatchPlan, Schedule
from tessel_core.networks import ShapeParameters, build_shape

_DEVICES, _MANY = 4, 8


def _plan() -> MicroBatchPlan:
    return build_shape("v-shape", ShapeParameters(devices=_DEVICES, forward=1, backward=2, capacity=_MANY))


def _gpipe(count: int) -> Schedule:
    return drawn("gpipe", _plan(), count)


def _one(title: str, count: int, scheduler: str = "gpipe") -> tuple[Titled, ...]:
    return ((title, drawn(scheduler, _plan(), count)),)


def _facts() -> Facts:
    held = MemoryProfile.of(_gpipe(_MANY)).peaks
    least = MemoryProfile.of(drawn("1f1b", _plan(), _MANY)).peaks
    return {
        "devices": str(_DEVICES),
        "many": str(_MANY),
        "one": percent(idle(_gpipe(1))),
        "four": percent(idle(_gpipe(_DEVICES))),
        "eight": percent(idle(_gpipe(_MANY))),
        "held": str(max(held)),
        "least": str(max(least)),
    }


DECK = Deck(
    name="why-pipelines",
    place=1,
    title="Why pipelines",
    about="From a network that does not fit on one device to a pipeline that is busy most of the time.",
    facts=_facts,
    slides=(
        Slide(
            "A network that does not fit",
            (
                "Weights, gradients, optimizer state and activations of a large network exceed one device's memory.",
                "Cut along its depth, each device holds one stage. A micro-batch visits them all, forward and back.",
                "Press Space: the devices take turns, and are idle {one} of the time.",
            ),
            lambda: _one("One micro-batch", 1),
        ),
        Slide(
            "Micro-batches overlap",
            (
                "The batch is cut into micro-batches, and each device works on a different one.",
                "With {devices} micro-batches, the devices are idle {four} of the time.",
            ),
            lambda: _one(f"GPipe, {_DEVICES} micro-batches", _DEVICES),
        ),
        Slide(
            "More micro-batches, less waiting",
            (
                "The pipeline fills and drains once per batch. With {many} micro-batches the idle time is {eight}.",
                "With p devices and m micro-batches, the formula is (p − 1) / (m + p − 1).",
            ),
            lambda: _one(f"GPipe, {_MANY} micro-batches", _MANY),
        ),
        Slide(
            "What it costs: memory",
            (
                "Each forward pass leaves activations until its backward pass. GPipe holds {held} of them at once.",
                "The lanes below the timeline show the memory of every device against its capacity.",
            ),
            lambda: _one(f"GPipe, {_MANY} micro-batches", _MANY),
        ),
        Slide(
            "The order decides",
            (
                "1F1B runs a backward pass as soon as it can: the same time, with {least} micro-batches at once.",
                "The work is the same and only the order has changed. A schedule search looks for the best order.",
            ),
            lambda: (*_one("GPipe", _MANY), *_one("1F1B", _MANY, "1f1b")),
        ),
    ),
)
