"""Work for ranks, which their processes import: sums, and ways to fail during a sum."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.execution.inputs import SeededInputs
from tessel_core.execution.rank_process import Rank, Work
from tessel_core.execution.ranks import Ranks, run_share
from tessel_core.execution.share import RankResult, Share
from tessel_core.ir.operators.operator import Array


def run_on_ranks(work: Work, arguments: Sequence[Any], control: Control | None = None) -> list[Any]:
    """Run work as `Ranks.run`, in new processes that end with it."""
    with Ranks(len(arguments)) as ranks:
        return ranks.run(work, arguments, control)


def total(rank: Rank, number: int) -> int:
    """Return the sum of the numbers of all ranks."""
    import torch
    import torch.distributed as dist

    rank.at("the sum")
    numbers = torch.tensor([number])
    dist.all_reduce(numbers)
    rank.tell(f"rank {rank.number} has it")
    return int(numbers.item())


def total_of_some(rank: Rank, groups: list[list[int]]) -> list[int]:
    """Return the sum of each group that the rank belongs to."""
    import torch
    import torch.distributed as dist

    found = []
    for ranks, group in rank.groups(groups).items():
        number = torch.tensor([rank.number])
        if rank.number in ranks:
            dist.all_reduce(number, group=group)
            found.append(int(number.item()))
    return found


def _kill(rank: Rank) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(rank: Rank) -> None:
    raise KeyError("weights")


def _nan(rank: Rank) -> None:
    raise InputError("the loss", "is NaN")


def _full_disk(rank: Rank) -> None:
    with Path("/dev/full").open("w") as file:
        file.write("weights")


def _leave(rank: Rank) -> None:
    os._exit(3)


ENDS = {"killed": _kill, "exception": _raise, "nan": _nan, "full disk": _full_disk, "left": _leave}


def ends(rank: Rank, how: str) -> int:
    """Sum that rank 1 never reaches."""
    if rank.number == 1:
        rank.at("F0 #3")
        time.sleep(0.1)
        ENDS[how](rank)
    return total(rank, 1)


def waits(rank: Rank, folder: str) -> None:
    """Write the process id to a folder, and sleep for a minute."""
    Path(folder, str(rank.number)).write_text(str(os.getpid()))
    rank.at("a nap")
    time.sleep(60)


class NanInputs(SeededInputs):
    """Inputs whose targets are NaN."""

    def whole(self, name: str, step: int) -> Array:
        found = super().whole(name, step)
        return np.full_like(found, np.nan) if name.startswith("target") else found


def share_of_nan(rank: Rank, share: Share) -> RankResult:
    """Work of a rank with targets that are NaN."""
    return run_share(rank, replace(share, inputs=NanInputs(share.inputs.recipes, share.inputs.seed)))


if __name__ == "__main__":
    from helpers.ranks import waits as work  # ranks can only import functions of modules

    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in what a shell starts with "&"
    run_on_ranks(work, [sys.argv[1]] * 2)
