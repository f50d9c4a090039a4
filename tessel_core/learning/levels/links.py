"""Level 12: links take time."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.learning.level import Level
from tessel_core.learning.levels.interleaving import chunked, schedule_of
from tessel_core.learning.solved import messages
from tessel_core.learning.task import Facts, Knob, StopResult, first_below
from tessel_core.units import counted

_LINKS, _MICRO_BATCHES, _CHUNKS = (0, 1, 2, 3, 4, 5, 6), 4, 2


def _outcome(stop: int) -> StopResult:
    link = _LINKS[stop]
    plain, cut = (schedule_of(chunks, _MICRO_BATCHES, link) for chunks in (1, _CHUNKS))
    ahead = Fraction(plain.makespan - cut.makespan)
    wins = "they tie" if not ahead else f"{'interleaving' if ahead > 0 else '1F1B'} wins by {abs(ahead)}"
    lengths = f"1F1B takes {plain.makespan} steps and interleaving {cut.makespan}"
    says = f"With {counted(link, 'step')} per message, {lengths}: {wins}."
    return StopResult(
        ahead, f"{plain.makespan} and {cut.makespan} steps", says, (("1F1B", plain), ("Interleaved", cut))
    )


def _task() -> Knob:
    return Knob(
        "Steps per message", tuple(map(str, _LINKS)), _outcome, first_below(0), "Makespans of 1F1B and interleaving"
    )


def _facts() -> Facts:
    knob = _task()
    outcomes = [knob.outcome(i) for i in range(len(_LINKS))]
    (first,) = knob.answers(outcomes)
    return {
        "first": knob.stops[first],
        "free": str(outcomes[0].value),
        "few": str(messages(chunked(1))),
        "many": str(messages(chunked(_CHUNKS))),
    }


LEVEL = Level(
    number=12,
    title="Links that cost",
    idea="It takes time to send a tensor to another device, and schedules differ in how many they send.",
    asks="Compare 1F1B and interleaving with four micro-batches. From which time per message on does 1F1B win?",
    task=_task,
    hints=(
        "With free messages, interleaving wins, because its pipeline fills sooner.",
        "Count the messages on the longest chain: each adds its time, and interleaving has more of them.",
    ),
    why=(
        "With free links interleaving ends {free} steps earlier.",
        "It sends {many} messages for each micro-batch, where 1F1B sends {few}.",
        "From {first} steps per message on, 1F1B wins: which schedule is best depends on the links.",
    ),
    facts=_facts,
)
