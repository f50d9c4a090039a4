"""Whether two schedules are one order."""

from __future__ import annotations

import numpy as np

from tessel_core.model import Schedule


def same_order(one: Schedule, other: Schedule) -> bool:
    """Whether every device runs the same blocks in the same order in both, up to renumbering micro-batches.

    Both run every block of every micro-batch once; times do not matter.
    """
    if one.plan.unlabelled != other.plan.unlabelled or one.micro_batches != other.micro_batches:
        return False
    # The order in which one block runs says which micro-batch of the one is which of the other.
    renumbered = np.empty(one.micro_batches, dtype=np.int64)
    renumbered[np.argsort(one.starts[:, 0], kind="stable")] = np.argsort(other.starts[:, 0], kind="stable")
    for device in range(len(one.plan.devices)):
        mine, theirs = one.runs_on(device), other.runs_on(device)
        same = (one.block[mine] == other.block[theirs]) & (
            renumbered[one.micro_batch[mine]] == other.micro_batch[theirs]
        )
        if not same.all():
            return False
    return True
