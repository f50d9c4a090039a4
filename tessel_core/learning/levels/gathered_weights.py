"""Level 16: FSDP (sharded weights) with a pipeline."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from tessel_core.learning.level import Level
from tessel_core.learning.solved import percent
from tessel_core.learning.task import Facts, Knob, StopResult, Traced, least
from tessel_core.units import counted, show_memory

if TYPE_CHECKING:  # imported here because pages load faster without the simulation
    from tessel_core.simulation import Trace
    from tessel_core.strategies.strategy import Strategy

_MODEL, _MESH = "llama-2-7b", "a100-pcie-8"
_ROOM = 48 * 10**9
"""Memory of each device in bytes."""
_BATCH, _TOKENS, _REPLICAS, _STAGES = 64, 2048, 4, 2
_STOPS = tuple((reshard, count) for reshard in (True, False) for count in (2, 4, 8, 16))
"""Choices of the player: whether weights are freed after each pass, and the number of micro-batches.

Freed weights are gathered again for the backward pass of their layer.
"""
_NEVER = Fraction(10**9)
"""Step time in seconds that stands for a strategy that does not fit."""


def strategy(stop: int) -> Strategy:
    """Return the strategy of a choice: a pipeline with ZeRO-3 over its replicas."""
    from tessel_core.strategies.strategy import Strategy

    reshard, count = _STOPS[stop]
    return Strategy(data=_REPLICAS, pipeline=_STAGES, micro_batches=count, zero=3, reshard=reshard)


@lru_cache(maxsize=len(_STOPS))
def traced(stop: int) -> Traced:
    """Simulate a step with a choice. Device p represents all replicas of stage p."""
    from tessel_core.costs.meshes import find_mesh
    from tessel_core.strategies.families import find_family
    from tessel_core.strategies.strategy import simulate_places

    family, mesh = find_family("llama"), find_mesh(_MESH)
    mesh = replace(mesh, devices=tuple(replace(each, memory_capacity=_ROOM) for each in mesh.devices))
    spec = family.spec(size=_MODEL, batch=_BATCH, sequence=_TOKENS)
    return simulate_places(family, spec, strategy(stop), mesh), mesh


def gathers(trace: Trace) -> int:
    """Return how often a replica gathers the weights of a layer in a step.

    Take the layer that is gathered most often. Weights that stay gathered are gathered once for all layers, by an
    operation that names no layer.
    """
    names = Counter(op.tag.name for op in trace.program.ops if op.kind == "allgather")
    return max(names.values(), default=1)


def exposed(trace: Trace) -> Fraction:
    """Return the largest share of the step in which a device communicates without computing."""
    from tessel_core.simulation import device_times

    return Fraction(max(each.communicating - each.both for each in device_times(trace)) / trace.latency)


def fits(stop: int) -> bool:
    """Return whether the strategy of a choice fits the memory."""
    trace, mesh = traced(stop)
    capacity = mesh.devices[0].memory_capacity
    return capacity is not None and max(trace.peak_memory) <= capacity


def _capacity() -> str:
    return show_memory(traced(0)[1].devices[0].memory_capacity or 0, "B")


def _held(stop: int) -> str:
    return show_memory(max(traced(stop)[0].peak_memory), "B")


def _step(stop: int) -> str:
    return f"{traced(stop)[0].latency:.2f} s"


def _called(stop: int) -> str:
    reshard, count = _STOPS[stop]
    return f"{'Free' if reshard else 'Keep'}, {counted(count, 'micro-batch')}"


def _outcome(stop: int) -> StopResult:
    trace, _ = traced(stop)
    times = gathers(trace)
    often = f"{_called(stop)}: each layer's weights are gathered {counted(times, 'time')}"
    if not fits(stop):
        says = f"{often}. This does not fit: a device needs {_held(stop)} and has {_capacity()}."
        return StopResult(_NEVER, "does not fit", says, traced=lambda: traced(stop))
    cost = f"A device communicates without computing for {percent(exposed(trace))} of the step"
    says = f"{often}, and a step takes {_step(stop)}. {cost}; the fullest device holds {_held(stop)}."
    return StopResult(Fraction(trace.latency), _step(stop), says, traced=lambda: traced(stop))


def _task() -> Knob:
    return Knob("Gathered weights", tuple(map(_called, range(len(_STOPS)))), _outcome, least, "Time of a step")


def _facts() -> Facts:
    best = min(filter(fits, range(len(_STOPS))), key=lambda stop: traced(stop)[0].latency)
    fewer = _STOPS[best][1] // 2
    kept, freed = (_STOPS.index((reshard, fewer)) for reshard in (False, True))
    return {
        "best": _called(best),
        "gathers": str(gathers(traced(freed)[0])),
        "time": _step(best),
        "held": _held(kept),
        "capacity": _capacity(),
        "fewer": str(fewer),
        "freed": _step(freed),
    }


LEVEL = Level(
    number=16,
    title="FSDP with a pipeline",
    idea="With FSDP each replica keeps a share of the weights, and gathers the whole weights of a layer to run it. "
    "They are freed after the layer's forward pass and gathered again for its backward pass, or kept to the end.",
    asks="Train Llama 2 7B on eight A100s with PCIe and 48 GB each, as four replicas of two stages. Which choice fits "
    "and is fastest?",
    task=_task,
    hints=(
        "Freed weights are gathered twice per micro-batch. Kept weights are gathered once per step.",
        "More micro-batches are smaller, so activations need less memory.",
        "Kept weights occupy memory all the time, which leaves less for activations.",
    ),
    why=(
        "{best}: the weights of a layer are gathered once, and the step takes {time}.",
        "With {fewer} micro-batches there is no room to keep them: a device would need {held} and has {capacity}.",
        "With freed weights, {fewer} micro-batches fit, but each layer is gathered {gathers} times: {freed} per step.",
    ),
    facts=_facts,
    source="Zhao et al., PyTorch FSDP, VLDB 2023, arXiv 2304.11277",
)
