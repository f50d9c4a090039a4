"""Level 8: a V-shaped placement of half stages with half the memory."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.learning.level import Level
from tessel_core.learning.solved import drawn, percent
from tessel_core.learning.task import Facts, Knob, StopResult, first_below
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.networks import ShapeParameters, build_shape

_DEVICES = (2, 3, 4, 5, 6, 7, 8, 16)
_LIMIT = Fraction(2, 3)
_SLOTS = 4
"""Memory units of a micro-batch on each device.

The device has two half stages, and B and W each free half of a stage's activations.
"""


def _schedule(scheduler: str, devices: int) -> Schedule:
    sizes = ShapeParameters(devices=devices, forward=1, backward=1, weight=1, capacity=_SLOTS * devices)
    return drawn(scheduler, build_shape("zb-v", sizes), 2 * devices)


def held(scheduler: str, devices: int) -> int:
    """Return the peak memory of the fullest device, in memory units."""
    return max(MemoryProfile.of(_schedule(scheduler, devices)).peaks)


def _outcome(stop: int) -> StopResult:
    devices = _DEVICES[stop]
    less, more = held("v-half", devices), held("zb-v", devices)
    share = Fraction(less, more)
    says = (
        f"On {devices} devices V-Half holds {less} memory units, and ZB-V {more}: {percent(share)} of what ZB-V holds."
    )
    shown = tuple((title, _schedule(name, devices)) for title, name in (("ZB-V", "zb-v"), ("V-Half", "v-half")))
    return StopResult(share, str(share), says, shown)


def _task() -> Knob:
    return Knob("Devices", tuple(map(str, _DEVICES)), _outcome, first_below(_LIMIT), "Memory of V-Half over ZB-V's")


def _facts() -> Facts:
    small, middle, large = 4, 8, _DEVICES[-1]
    shares = [Fraction(held("v-half", each), held("zb-v", each)) for each in (small, middle, large)]
    longer = Fraction(_schedule("v-half", large).makespan, _schedule("zb-v", large).makespan) - 1
    least = Fraction(held("v-min", large), held("zb-v", large))
    return {
        **{"small": str(small), "middle": str(middle), "large": str(large)},
        **{"first": str(shares[0]), "then": str(shares[1]), "last": str(shares[2])},
        **{"longer": percent(longer), "least": str(least)},
    }


LEVEL = Level(
    number=8,
    title="Down, up, and half the memory",
    idea="In a V of half stages, the first device also holds the last stage, so it frees its activations sooner.",
    asks="V-Half delays some passes to hold less than ZB-V. From how many devices on does it hold less than two "
    "thirds?",
    task=_task,
    hints=(
        "A micro-batch holds memory from its forward pass to its backward pass, and the order decides for how long.",
        "V-Half holds about half as much as ZB-V, plus a part that does not grow with the devices.",
    ),
    why=(
        "The share approaches one half: {first} on {small} devices, {then} on {middle}, {last} on {large}.",
        "The price is time: on {large} devices the schedule of V-Half is {longer} longer.",
        "V-Min goes further, to {least} of ZB-V's memory there: a schedule can trade time for memory.",
    ),
    facts=_facts,
    source="Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, arXiv 2405.15362",
)
