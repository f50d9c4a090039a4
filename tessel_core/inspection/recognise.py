"""Test whether two schedules have the same order."""

from __future__ import annotations

import numpy as np

from tessel_core.model import Schedule


def same_order(one: Schedule, other: Schedule) -> bool:
    """Whether every device runs the same blocks in the same order in both, up to renumbering micro-batches.

    Both must run every block of every micro-batch once.  Times do not matter.
    """
    if one.plan.unlabelled != other.plan.unlabelled or one.micro_batches != other.micro_batches:
        return False
    # The order of the micro-batches in the first block gives the renumbering.
    renumbered = np.empty(one.micro_batches, dtype=np.int64)
    renumbered[np.argsort(one.starts[:, 0], kind="stable")] = np.argsort(other.starts[:, 0], kind="stable")
    for device in range(len(one.plan.devices)):
        rows, other_rows = one.runs_on(device), other.runs_on(device)
        same = (one.block[rows] == other.block[other_rows]) & (
            renumbered[one.micro_batch[rows]] == other.micro_batch[other_rows]
        )
        if not same.all():
            return False
    return True
