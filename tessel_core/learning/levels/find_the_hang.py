"""Level 15."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.execution import Channels, HangCertificate, RankActions, check_channels
from tessel_core.execution.actions import Action, ActionKind
from tessel_core.learning.level import Facts, Knob, Level, Outcome, least

_FORWARD, _BACKWARD = "activations", "gradients"
_FIRST = (f"send {_FORWARD} 0", f"send {_FORWARD} 1", f"receive {_BACKWARD} 0", f"receive {_BACKWARD} 1")
_SECOND = (f"receive {_FORWARD} 0", f"send {_BACKWARD} 0", f"receive {_FORWARD} 1", f"send {_BACKWARD} 1")
"""What the two devices of a pipeline do in turn, each with the other, as somebody wrote it down."""
_CHANGES: tuple[tuple[str, int, int], ...] = (
    ("gpu0: swap its two sends", 0, 0),
    ("gpu0: its second send after the first receive", 0, 1),
    ("gpu0: swap its two receives", 0, 2),
    ("gpu1: its first send after the second receive", 1, 1),
    ("gpu1: its last two the other way round", 1, 2),
)
"""Titles, and which two neighbours of which device's list change places."""


def lists(stop: int | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What both devices do in turn, after a change if one is named."""
    both = [list(_FIRST), list(_SECOND)]
    if stop is not None:
        _, device, at = _CHANGES[stop]
        mine = both[device]
        mine[at], mine[at + 1] = mine[at + 1], mine[at]
    return tuple(both[0]), tuple(both[1])


def certificate(stop: int | None = None) -> HangCertificate:
    """Whether the devices can hang, where each send waits for its receive."""
    actions: RankActions = {rank: [_action(text, 1 - rank) for text in mine] for rank, mine in enumerate(lists(stop))}
    return check_channels(actions, Channels.PAIR)


def _action(text: str, other: int) -> Action:
    verb, what, micro_batch = text.split()
    kind = ActionKind.SEND if verb == "send" else ActionKind.RECEIVE
    tensor = (what, int(micro_batch))
    return Action(kind, f"{text} {'to' if kind is ActionKind.SEND else 'from'} gpu{other}", (other,), tensor, what)


def _outcome(stop: int) -> Outcome:
    found = certificate(stop)
    waits = [f"gpu{place.rank} waits forever to {place.action.partition(' to ')[0]}" for place in found.places]
    says = "Both devices come to the end of their lists." if found.proceeds else f"{' and '.join(waits)}."
    return Outcome(Fraction(int(not found.proceeds)), str(found.verdict), says)


def _task() -> Knob:
    return Knob("Change", tuple(title for title, _, _ in _CHANGES), _outcome, least, "Verdict")


def _facts() -> Facts:
    right = _task().answers([_outcome(stop) for stop in range(len(_CHANGES))])
    return {"right": str(len(right)), "changes": str(len(_CHANGES)), "before": str(certificate().verdict)}


LEVEL = Level(
    number=15,
    title="Find the hang",
    idea=f"Each send here waits for its receive.\ngpu0: {', '.join(_FIRST)}.\ngpu1: {', '.join(_SECOND)}.",
    asks="The two devices wait for each other forever. Which change of an order lets both go on?",
    task=_task,
    hints=(
        "Go through both lists at once: a send and its receive are done together, or wait.",
        "After the first activations, both devices want to send, and neither receives.",
        "One of the two has to receive first.",
    ),
    why=(
        "As it stands the check finds a {before}: two sends face each other, and each waits for the other's receive.",
        "Of {changes} changes, {right} let both go on: on either side, the receive comes before the send.",
        "Schedules that leave this app have such orders on every device; tessel check --channels judges any other.",
    ),
    facts=_facts,
)
