"""Whether the ranks of an opened file, which says its sends and receives itself, can wait forever."""

from __future__ import annotations

from tessel_core.errors import InputError
from tessel_core.formats.pytorch_csv import PyTorchCsv, StageAction
from tessel_core.model import MicroBatchPlan
from tessel_core.workbench.workspace import Hang, Pin


def hang_of(found: PyTorchCsv, plan: MicroBatchPlan) -> Hang | None:
    """What goes wrong with one queue for each pair of ranks, on which each send waits for its receive, as where two
    ranks share one communicator; the runs are those of `plan`, which is the file's.

    None where nothing does, and of a file that leaves sends and receives out.
    """
    if not found.communicates:
        return None
    from tessel_core.deadlock import Channels, Verdict, check_channels, csv_actions  # late: pages load little

    try:
        certificate = check_channels(csv_actions(found), Channels.PAIR)
    except InputError as error:
        return Hang(f"What the file says cannot be run: {error}")
    if certificate.proceeds:
        return None
    cells = [found.rows[place.rank][place.position].actions for place in certificate.places]
    what = "get other tensors than they ask for" if certificate.verdict is Verdict.MISMATCHED else "wait forever"
    said = f"{certificate.sentence[0].upper()}{certificate.sentence[1:]}"
    return Hang(f"Ranks that do what the file says {what}. {said}", tuple(_run(action, plan) for action, *_ in cells))


def _run(action: StageAction, plan: MicroBatchPlan) -> Pin:
    """The run of the stage that makes, or takes, what is sent."""
    return Pin(plan.block_index(f"{action.kind[-1]}{action.stage}"), action.micro_batch or 0)
