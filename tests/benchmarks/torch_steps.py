"""Steps of PyTorch's own pipelining runtime on ranks of ours, timed; for the table of overheads."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from tessel_core.execution.rank_process import Rank
from tessel_core.formats.pytorch_csv import read_pytorch_csv


class Steps(NamedTuple):
    """What is run: a CSV on disk, so many times, with layers as large as those of a toy network."""

    file: str
    micro_batches: int
    width: int
    samples: int
    runs: int


def step_seconds(rank: Rank, asked: Steps) -> list[float]:
    """Work of a rank: the seconds of each step after the first; all ranks begin a step together."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    with open(asked.file, "rb") as opened:
        found = read_pytorch_csv(opened.read(), "schedule")
    stages, width = len(found.rank_of), asked.width
    mine = [stage for stage in range(stages) if found.rank_of[stage] == rank.number]

    def layer() -> Any:
        return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)).double()

    parts = [PipelineStage(layer(), stage, stages, torch.device("cpu")) for stage in mine]
    runtime = _PipelineScheduleRuntime(parts, asked.micro_batches, loss_fn=nn.functional.mse_loss)
    runtime._load_csv(asked.file)
    x, y = torch.randn(2, asked.micro_batches * asked.samples, width, dtype=torch.float64).unbind()
    took = list[float]()
    for _ in range(asked.runs + 1):
        dist.barrier()
        began = time.perf_counter()
        runtime.step(*([x] if 0 in mine else []), **({"target": y, "losses": []} if stages - 1 in mine else {}))
        dist.barrier()
        took.append(time.perf_counter() - began)
    return took[1:]
