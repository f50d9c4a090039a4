"""Check whether the ranks of an opened PyTorch CSV can wait for each other forever."""

from __future__ import annotations

from tessel_core.errors import InputError
from tessel_core.formats.pytorch_csv import PyTorchCsv, StageAction
from tessel_core.model import MicroBatchPlan
from tessel_core.workbench.workspace import Hang, Pin


def hang_of(found: PyTorchCsv, plan: MicroBatchPlan) -> Hang | None:
    """Return how the ranks that follow the file hang, or None.

    `plan` is the plan of the file. Each pair of ranks has one queue, and each send waits for its receive, as with one
    communicator per pair. None also if the file lists no sends and receives.
    """
    if not found.communicates:
        return None
    from tessel_core.deadlock import Channels, Verdict, check_channels, csv_actions  # late import: pages load faster

    try:
        certificate = check_channels(csv_actions(found), Channels.PAIR)
    except InputError as error:
        return Hang(f"The actions of the file cannot run: {error}")
    if certificate.proceeds:
        return None
    cells = [found.rows[place.rank][place.position].actions for place in certificate.places]
    what = "receive other tensors than they expect" if certificate.verdict is Verdict.MISMATCHED else "wait forever"
    said = f"{certificate.sentence[0].upper()}{certificate.sentence[1:]}"
    return Hang(f"Ranks that follow this file {what}. {said}", tuple(_run(action, plan) for action, *_ in cells))


def _run(action: StageAction, plan: MicroBatchPlan) -> Pin:
    """Return the run whose tensor an action sends or receives."""
    return Pin(plan.block_index(f"{action.kind[-1]}{action.stage}"), action.micro_batch or 0)
