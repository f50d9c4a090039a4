"""Level 15."""

from __future__ import annotations

from tessel_core.deadlock.actions import Action, ActionKind
from tessel_core.learning.level import Level
from tessel_core.learning.ordering import Ordering
from tessel_core.learning.task import Facts

_FORWARD, _BACKWARD = "activations", "gradients"
_FIRST = (f"send {_FORWARD} 0", f"send {_FORWARD} 1", f"receive {_BACKWARD} 0", f"receive {_BACKWARD} 1")
_SECOND = (f"receive {_FORWARD} 0", f"send {_BACKWARD} 0", f"receive {_FORWARD} 1", f"send {_BACKWARD} 1")
"""What the two devices of a pipeline do in turn, each with the other, as somebody wrote it down."""


def _action(text: str, other: int) -> Action:
    verb, what, micro_batch = text.split()
    kind = ActionKind.SEND if verb == "send" else ActionKind.RECEIVE
    return Action(kind, text, (other,), (what, int(micro_batch)), what)


def task() -> Ordering:
    """Both lists; gradients of a micro-batch are made of its activations."""
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
    asks="The two devices wait for each other forever. Move an action, so that both come to the ends of their lists.",
    task=task,
    hints=(
        "Go through both lists at once: a send and its receive are done together, or wait.",
        "After the first activations, both devices want to send, and neither receives.",
        "One of the two has to receive first.",
    ),
    why=(
        "As it stands the check finds a {before}: two sends face each other, and each waits for the other's receive.",
        "Of the {moves} moves of one place, {right} let both go on: on either side, the receive comes before the send.",
        "Schedules that leave this app have such orders on every device; tessel check --channels judges any other.",
    ),
    facts=_facts,
)
