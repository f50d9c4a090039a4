"""Level 15: find out why two devices hang."""

from __future__ import annotations

from tessel_core.deadlock.actions import Action, ActionKind
from tessel_core.learning.level import Level
from tessel_core.learning.ordering import Ordering
from tessel_core.learning.task import Facts

_FORWARD, _BACKWARD = "activations", "gradients"
_FIRST = (f"send {_FORWARD} 0", f"send {_FORWARD} 1", f"receive {_BACKWARD} 0", f"receive {_BACKWARD} 1")
_SECOND = (f"receive {_FORWARD} 0", f"send {_BACKWARD} 0", f"receive {_FORWARD} 1", f"send {_BACKWARD} 1")
"""Actions of the two devices of a pipeline, in an order that a person might write."""


def _action(text: str, other: int) -> Action:
    verb, what, micro_batch = text.split()
    kind = ActionKind.SEND if verb == "send" else ActionKind.RECEIVE
    return Action(kind, text, (other,), (what, int(micro_batch)), what)


def task() -> Ordering:
    """Return the task: the lists of actions of both devices. The gradients of a micro-batch need its activations."""
    lists = tuple(tuple(_action(text, 1 - rank) for text in texts) for rank, texts in enumerate((_FIRST, _SECOND)))
    needs = tuple(
        (rank, texts.index(first), texts.index(then))
        for rank, texts in enumerate((_FIRST, _SECOND))
        for micro_batch in (0, 1)
        for first in texts
        for then in texts
        if first.endswith(f"{_FORWARD} {micro_batch}") and then.endswith(f"{_BACKWARD} {micro_batch}")
    )
    return Ordering(("gpu0", "gpu1"), lists, needs)


def _facts() -> Facts:
    found = task()
    moves = [order for _, order in found.steps(found.start)]
    right = sum(found.check(order).proceeds for order in moves)
    return {"right": str(right), "moves": str(len(moves)), "before": str(found.check(found.start).verdict)}


LEVEL = Level(
    number=15,
    title="Find the hang",
    idea="Two devices of a pipeline send and receive in turn. Each send waits until the other device receives it.",
    asks="The two devices wait for each other forever. Move an action so that both reach the end of their list.",
    task=task,
    hints=(
        "Go through both lists at once: a send and its receive are done together, or wait.",
        "After the first activations, both devices want to send, and neither receives.",
        "One of the two has to receive first.",
    ),
    why=(
        "The check finds a {before}: both devices send, and each send waits for the other device to receive.",
        "Of the {moves} moves by one place, {right} resolve it: on one of the devices, the receive comes before the "
        "send.",
        "Schedules exported from this app never hang; tessel check --channels checks any other.",
    ),
    facts=_facts,
)
