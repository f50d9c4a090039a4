"""Level 6: interleaving of several stages per device."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.learning.level import Level
from tessel_core.learning.solved import drawn, messages, with_links
from tessel_core.learning.task import Facts, Knob, StopResult, least
from tessel_core.model import MemoryProfile, MicroBatchPlan, Schedule
from tessel_core.networks import ShapeParameters, build_shape

_DEVICES, _MICRO_BATCHES, _LINK = 4, 8, 1
_CHUNKS = (1, 2, 4)
_FORWARD, _BACKWARD, _SLOTS = 4, 8, 4
"""Steps forward, steps backward, and memory units of all chunks of a device together."""


def chunked(chunks: int, link: int = _LINK) -> MicroBatchPlan:
    """Return a plan with the same work on each device, cut into `chunks` chunks."""
    sizes = ShapeParameters(
        devices=_DEVICES,
        chunks=max(2, chunks),
        forward=_FORWARD // chunks,
        backward=_BACKWARD // chunks,
        memory=_SLOTS // chunks,
        capacity=_SLOTS * _MICRO_BATCHES,
    )
    return with_links(build_shape("v-shape" if chunks == 1 else "loop", sizes), link)


def schedule_of(chunks: int, micro_batches: int = _MICRO_BATCHES, link: int = _LINK) -> Schedule:
    """Return the 1F1B schedule. With several chunks per device, return the interleaved one."""
    return drawn("1f1b" if chunks == 1 else "interleaved", chunked(chunks, link), micro_batches)


def _outcome(stop: int) -> StopResult:
    chunks = _CHUNKS[stop]
    schedule = schedule_of(chunks)
    title = "1F1B" if chunks == 1 else f"Interleaved, {chunks} chunks per device"
    says = f"{title}: {schedule.makespan} steps, and {messages(schedule.plan)} messages for each micro-batch."
    return StopResult(Fraction(schedule.makespan), f"{schedule.makespan} steps", says, ((title, schedule),))


def _task() -> Knob:
    return Knob("Chunks per device", tuple(map(str, _CHUNKS)), _outcome, least, "Makespan")


def _facts() -> Facts:
    one, two, four = (schedule_of(chunks) for chunks in _CHUNKS)
    held = [f"{max(MemoryProfile.of(each).peaks) / _SLOTS:g}" for each in (one, two)]
    counts = [str(messages(each.plan)) for each in (one, two, four)]
    return {
        **{"one": str(one.makespan), "two": str(two.makespan), "four": str(four.makespan)},
        **{"held": held[0], "more": held[1]},
        **{"few": counts[0], "some": counts[1], "many": counts[2]},
    }


LEVEL = Level(
    number=6,
    title="Interleaving",
    idea="A device can hold several smaller stages, called chunks. A micro-batch then passes through it several times.",
    asks="Each message takes one step. With how many chunks on each device do eight micro-batches end first?",
    task=_task,
    hints=(
        "Smaller stages let the last device begin sooner: the pipeline fills and drains in less time.",
        "Each chunk sends its output to another device. Twice the chunks mean about twice the messages.",
    ),
    why=(
        "With two chunks the pipeline fills faster: {two} steps in place of {one}.",
        "With four chunks, {many} messages in place of {some} cost more than that saves: {four} steps.",
        "Interleaving also costs memory: up to {more} micro-batches are held, where 1F1B holds {held}.",
    ),
    facts=_facts,
    source="Narayanan et al., Megatron-LM, SC 2021, arXiv 2104.04473",
)
