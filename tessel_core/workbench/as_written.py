"""Open a PyTorch CSV that lists its sends and receives: time the order of its actions, and check if it can hang."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.errors import InputError
from tessel_core.formats.pytorch_csv import PyTorchCsv, StageAction
from tessel_core.model import MicroBatchPlan
from tessel_core.model.receives import Receives
from tessel_core.scheduling.comparison import Comparison, Made
from tessel_core.scheduling.reports import evaluate
from tessel_core.workbench.messages.as_written import READINGS
from tessel_core.workbench.workspace import Hang, Pin, Workspace, Written


def as_written(work: Workspace, found: PyTorchCsv) -> Workspace:
    """Return the workspace with the file opened, and with one timing for each way in which receives can wait.

    The workspace shows the schedule whose receives wait on separate streams. Both schedules are added to the
    comparison, unless its pairs have another time unit or number of micro-batches. If the file hangs with one way of
    waiting, that timing is left out.
    """
    from tessel_core.deadlock.as_written import timed_as_written  # imported here so that pages load faster

    made = []
    for receives in Receives:
        try:
            made.append(timed_as_written(found, receives))
        except InputError:
            continue
    if not made:
        return work
    written = tuple(Written(str(each.receives), Made.of(each.schedule).starts, each.waits) for each in made)
    work = showing(replace(work, written=written), written[0])
    return replace(work, comparison=_beside(work))


def showing(work: Workspace, written: Written) -> Workspace:
    """Return the workspace that shows the opened file with receives that wait in the given way."""
    report = evaluate(Made(work.plan, written.starts).schedule, "pytorch-csv")
    return replace(work, opened=report, asked=None, by_hand=None)


def _beside(work: Workspace) -> Comparison:
    """Return the comparison with all timings of the file added.

    Return it unchanged if the file does not match its pairs.
    """
    comparison = work.comparison
    try:
        for each in work.written:
            pair = Made(work.plan, each.starts)
            if not comparison.has(pair):
                comparison = comparison.with_pair(pair)
                name = f"Receives {READINGS[Receives(each.receives)]}"
                comparison = comparison.named(len(comparison.pairs) - 1, name)
    except InputError:
        return work.comparison
    return comparison


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
