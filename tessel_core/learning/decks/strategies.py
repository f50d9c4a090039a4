"""Slides on the costs of data, tensor and pipeline parallelism, simulated for one network on four devices."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tessel_core.learning.deck import Deck, Slide
from tessel_core.learning.task import Facts
from tessel_core.units import show_memory

if TYPE_CHECKING:  # imported here because a list of decks needs no simulation
    from tessel_core.model import DeviceMesh
    from tessel_core.simulation import Trace

_MESH, _LAYERS, _WIDTH = "h200-16", 8, 8192
_USUAL, _SMALL = 4096, 512
"""Samples per batch: the usual batch, and a small one."""
_WAYS = {"one": (1, 1, 1, 1), "data": (4, 1, 1, 1), "tensor": (1, 4, 1, 1), "pipeline": (1, 1, 4, 8)}
"""Strategies by name: degrees of data, tensor and pipeline parallelism, and number of micro-batches."""


@lru_cache(maxsize=16)
def traced(way: str, batch: int = _USUAL) -> tuple[Trace, DeviceMesh]:
    """Simulate a step of the network under this strategy."""
    from tessel_core.samples import load_mesh
    from tessel_core.strategies.families import find_family
    from tessel_core.strategies.strategy import Strategy, simulate_strategy

    family, mesh = find_family("mlp"), load_mesh(_MESH)
    spec = family.spec(layers=_LAYERS, width=_WIDTH, batch=batch, dtype="fp16")
    return simulate_strategy(family, spec, Strategy(*_WAYS[way]), mesh).trace, mesh


def fastest(batch: int) -> str:
    """Return the fastest strategy on four devices."""
    return min((way for way in _WAYS if way != "one"), key=lambda way: traced(way, batch)[0].latency)


def _facts() -> Facts:
    from tessel_core.simulation import device_times

    facts = {"layers": str(_LAYERS), "width": str(_WIDTH), "usual": str(_USUAL), "small": str(_SMALL)}
    for way in _WAYS:
        trace, _ = traced(way)
        spent = device_times(trace)[0]
        facts |= {
            way: _time(trace),
            f"{way}_held": show_memory(max(trace.peak_memory), "B"),
            f"{way}_talk": f"{spent.communicating / trace.latency:.0%}",
            f"{way}_hidden": f"{spent.both / trace.latency:.0%}",
            f"{way}_idle": f"{spent.neither / trace.latency:.0%}",
            f"{way}_small": _time(traced(way, _SMALL)[0]),
        }
    return facts | {"wins": fastest(_USUAL), "wins_small": fastest(_SMALL)}


def _time(trace: Trace) -> str:
    return f"{1e3 * trace.latency:.1f} ms"


DECK = Deck(
    name="strategies",
    place=5,
    title="What a strategy costs",
    about="One network on four H200s: copies, shared operators, or stages, and what each costs in time and memory.",
    facts=_facts,
    slides=(
        Slide(
            "One device",
            (
                "A perceptron of {layers} layers, {width} wide, trained with {usual} samples per step.",
                "One device takes {one} and holds {one_held}. How do four devices share this?",
            ),
            traced=lambda: traced("one"),
        ),
        Slide(
            "Data parallelism: four copies",
            (
                "Each device has all weights and a quarter of the samples. Gradients are added up as they appear (⇄).",
                "A step takes {data}. Messages take {data_talk} of it, and {data_hidden} overlap with computing.",
                "Memory hardly falls, since each copy holds all weights: {data_held}.",
            ),
            traced=lambda: traced("data"),
        ),
        Slide(
            "Tensor parallelism: shared operators",
            (
                "Each device has a quarter of every weight, so memory falls to {tensor_held}.",
                "Layers wait for messages, which take {tensor_talk} of a step; {tensor_hidden} overlap with computing.",
                "A step takes {tensor}.",
            ),
            traced=lambda: traced("tensor"),
        ),
        Slide(
            "Pipeline parallelism: stages",
            (
                "Each device has two layers, and eight micro-batches flow through. Messages take {pipeline_talk} of a "
                "step.",
                "The price is the bubble: the first device is idle for {pipeline_idle} of the time.",
                "A step takes {pipeline}, and the fullest device holds {pipeline_held}.",
            ),
            traced=lambda: traced("pipeline"),
        ),
        Slide(
            "Another batch, another winner",
            (
                "With {usual} samples {wins} parallelism wins: {data} against {tensor} and {pipeline}.",
                "With {small} it is {wins_small}: data {data_small}, tensor {tensor_small}, pipeline {pipeline_small}.",
                "The page Strategies tries all combinations, on your mesh.",
            ),
            traced=lambda: traced(fastest(_SMALL), _SMALL),
        ),
    ),
)
