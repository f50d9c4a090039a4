"""Slides from GPipe to zero bubble, with one schedule per slide."""

from __future__ import annotations

from tessel_core.learning.deck import Deck, Slide
from tessel_core.learning.solved import drawn, idle, percent, searched
from tessel_core.learning.task import Facts, Titled
from tessel_core.model import MemoryProfile, MicroBatchPlan, Schedule
from tessel_core.networks import ShapeParameters, build_shape

_DEVICES, _COUNT = 4, 8
_SLOTS = 4
"""Memory units of one micro-batch on a device. Each device can hold all micro-batches."""


def _shape(name: str, forward: int, backward: int, weight: int, memory: int) -> MicroBatchPlan:
    return build_shape(
        name,
        ShapeParameters(
            devices=_DEVICES,
            forward=forward,
            backward=backward,
            weight=weight,
            memory=memory,
            capacity=_SLOTS * _COUNT,
        ),
    )


def _split() -> MicroBatchPlan:
    return _shape("split-v", 2, 2, 2, _SLOTS)


def _schedule(which: str) -> Schedule:
    """Return a published schedule.

    In all of them, a device works 2 steps forward and 4 steps backward, of which 2 are for weight gradients.
    """
    whole, split = _shape("v-shape", 2, 4, 1, _SLOTS), _split()
    plans = {
        "gpipe": whole,
        "1f1b": whole,
        "interleaved": _shape("loop", 1, 2, 1, _SLOTS // 2),
        "zb-h1": split,
        "zb-h2": split,
        "zb-v": _shape("zb-v", 1, 1, 1, _SLOTS // 4),
    }
    return drawn(which, plans[which], _COUNT)


def _shown(*names: str) -> tuple[Titled, ...]:
    titles = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B"}
    return tuple((titles.get(name, name.upper()), _schedule(name)) for name in names)


def _facts() -> Facts:
    facts = dict[str, str]()
    for name in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"):
        schedule = _schedule(name)
        key = name.replace("-", "_")
        facts |= {f"{key}_steps": str(schedule.makespan), f"{key}_idle": percent(idle(schedule))}
        facts[f"{key}_held"] = f"{max(MemoryProfile.of(schedule).peaks) / _SLOTS:g}"
    best = searched(_split(), _COUNT)
    return {**facts, "best": str(best.makespan), "bound": str(best.makespan_bound)}


DECK = Deck(
    name="zero-bubble",
    place=2,
    title="GPipe to zero bubble",
    about="Six published schedules of the same work, one after the other, and what is proved of a split pipeline.",
    facts=_facts,
    slides=(
        Slide(
            "The work",
            (
                "Four devices, eight micro-batches: 2 steps forward and 4 backward on each device.",
                "Every schedule in this deck does this same work. They differ in order, in cuts and in memory.",
            ),
            lambda: _shown("gpipe"),
        ),
        Slide(
            "GPipe",
            ("All forward passes, then all backward passes: {gpipe_steps} steps, {gpipe_idle} idle.",),
            lambda: _shown("gpipe"),
        ),
        Slide(
            "1F1B",
            (
                "One backward after each forward pass: {1f1b_steps} steps as well.",
                "It holds {1f1b_held} micro-batches where GPipe holds {gpipe_held}.",
            ),
            lambda: _shown("gpipe", "1f1b"),
        ),
        Slide(
            "Interleaving",
            (
                "With two smaller stages per device, the pipeline fills sooner: {interleaved_steps} steps.",
                "It sends more messages, and holds {interleaved_held} micro-batches in place of {1f1b_held}.",
            ),
            lambda: _shown("1f1b", "interleaved"),
            memory=False,
        ),
        Slide(
            "Split the backward pass",
            (
                "The gradient of the weights (green) can wait, and fills idle time: ZB-H1 takes {zb_h1_steps} steps.",
                "It holds {zb_h1_held} micro-batches, as 1F1B does.",
            ),
            lambda: _shown("1f1b", "zb-h1"),
            memory=False,
        ),
        Slide(
            "More memory: ZB-H2",
            (
                "ZB-H2 holds {zb_h2_held}, and no device is idle between its first and its last run.",
                "Its makespan is {zb_h2_steps} steps: the idle time has moved to the beginning and the end.",
            ),
            lambda: _shown("zb-h1", "zb-h2"),
        ),
        Slide(
            "Down and up: ZB-V",
            (
                "Two half stages per device, with first and last on the same one: {zb_v_steps} steps, {zb_v_idle} "
                "idle.",
                "The last device has work early, and the first one late.",
            ),
            lambda: _shown("zb-h2", "zb-v"),
            memory=False,
        ),
        Slide(
            "What is proved",
            (
                "For the split pipeline no order ends before {bound} steps, and the search finds {best}.",
                "A shorter schedule needs another placement, such as that of ZB-V. Another order is not enough.",
            ),
            lambda: _shown("zb-h1", "zb-v"),
            memory=False,
        ),
    ),
)
