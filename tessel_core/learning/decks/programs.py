"""Slides on one layer as a program, on one device and on two devices with tensor parallelism."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tessel_core.learning.deck import Deck, Slide
from tessel_core.learning.program_picture import program_picture
from tessel_core.learning.task import Facts
from tessel_core.units import show_memory

if TYPE_CHECKING:  # imported here because a list of decks needs no simulation
    from tessel_core.model import DeviceMesh
    from tessel_core.simulation import Trace

_MESH, _WIDTH, _BATCH = "h200-16", 4096, 2048


@lru_cache(maxsize=2)
def traced(tensor: int) -> tuple[Trace, DeviceMesh]:
    """Simulate a step of one layer that `tensor` devices share."""
    from tessel_core.samples import load_mesh
    from tessel_core.strategies.families import find_family
    from tessel_core.strategies.strategy import Strategy, simulate_strategy

    family, mesh = find_family("mlp"), load_mesh(_MESH)
    spec = family.spec(layers=1, width=_WIDTH, batch=_BATCH, dtype="fp16")
    return simulate_strategy(family, spec, Strategy(tensor=tensor), mesh).trace, mesh


def picture(tensor: int, *kinds: str) -> str:
    """Draw the program with operations of these kinds highlighted."""
    return program_picture(traced(tensor)[0].program, kinds)


def _facts() -> Facts:
    from tessel_core.simulation import device_times

    (one, _), (two, _) = traced(1), traced(2)
    spent = device_times(two)[0]
    sent = [each for each in two.program.ops if each.kind in ("allgather", "allreduce")]
    return {
        "lines": str(len(one.program.ops)),
        "cut": str(len(two.program.ops)),
        "messages": str(len(sent)),
        "talk": f"{spent.communicating / two.latency:.0%}",
        "width": str(_WIDTH),
        "half": str(two.program.types[two.program.ops[0].inputs[1]].shape[1]),
        "one": f"{1e6 * one.latency:.0f} µs",
        "two": f"{1e6 * two.latency:.0f} µs",
        "held": show_memory(max(one.peak_memory), "B"),
        "halved": show_memory(max(two.peak_memory), "B"),
    }


DECK = Deck(
    name="programs",
    place=6,
    title="One layer, cut in two",
    about="A program of the intermediate representation, line by line, before and after a cut.",
    facts=_facts,
    slides=(
        Slide(
            "A layer is a program",
            (
                "Training one layer takes {lines} lines. Each line defines values on a device: 4@1 is on device 1.",
                "Forward, the input x is multiplied by the weights w0, and relu sets negative numbers to zero.",
            ),
            picture=lambda: picture(1, "matmul", "relu"),
        ),
        Slide(
            "And back",
            (
                "The loss and its gradient come next. Then the gradient of each operation runs, in reverse order.",
                "The last line updates the weights.",
            ),
            picture=lambda: picture(1, "loss_grad", "relu_grad", "matmul_grad", "sgd"),
        ),
        Slide(
            "The cut",
            (
                "Tensor parallelism gives each of two devices half of the columns: {half} in place of {width}.",
                "Each multiplies the whole input by its half. The program now has {cut} lines.",
            ),
            picture=lambda: picture(2, "matmul"),
        ),
        Slide(
            "The halves meet",
            (
                "The next operation needs whole rows, so both devices send their halves: allgather.",
                "It is one line with values on both devices.",
            ),
            picture=lambda: picture(2, "allgather"),
        ),
        Slide(
            "Backward, they meet again",
            (
                "Each device takes its part of the gradient, and computes the gradient of its half of the weights.",
                "For the input, each device has a sum over its own columns only: allreduce adds both sums.",
            ),
            picture=lambda: picture(2, "part", "matmul_grad", "allreduce"),
        ),
        Slide(
            "What it costs",
            (
                "On two H200s a step takes {two} in place of {one}, and holds {halved} in place of {held}.",
                "It is not half the time, because the {messages} messages (⇄) take {talk} of it.",
            ),
            traced=lambda: traced(2),
        ),
    ),
)
