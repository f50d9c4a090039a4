"""Run exported schedules on PyTorch's pipelining runtime with gloo, and compare them with one process."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from helpers.schedules import any_order
from tessel_core.exports import EXPORTS
from tessel_core.formats.pytorch_csv import read_pytorch_csv
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.order import run_in_order
from tessel_core.scheduling.tessel import TesselConfig

FORMS = ("v-shape", "split-v", "loop", "zb-v")
PUBLISHED = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-min")
WIDTH, SAMPLES = 8, 2


def every_export(devices: int, micro_batches: int) -> Iterator[tuple[str, Schedule]]:
    """Yield a schedule of each shape by each published scheduler that applies and by the search, with its name."""
    for form in FORMS:
        plan = build_shape(form, replace(SHAPES[form].defaults, devices=devices)).with_capacity(None)
        for name in PUBLISHED:
            if not SCHEDULERS[name].objection(plan):
                yield f"{form}.{name}", _solution(name, plan, micro_batches)
        config = TesselConfig(time_limit=3.0, workers=1)
        yield f"{form}.tessel", _solution("tessel", plan.with_capacity(2 * devices), micro_batches, config)


def _solution(name: str, plan: MicroBatchPlan, micro_batches: int, config: object = None) -> Schedule:
    found = solve_schedule(name, plan, micro_batches, config).solution
    assert found is not None
    return found


def random_chain(seed: int, devices: int, micro_batches: int) -> Schedule:
    """Return stages on random devices, some with a split backward, in a random order that is allowed."""
    choose = random.Random(seed)
    places = [*range(devices), *(choose.randrange(devices) for _ in range(choose.randint(0, devices)))]
    choose.shuffle(places)
    forward, backward, weights = list[Block](), list[Block](), list[Block]()
    for s, place in enumerate(places):
        halves = choose.random() < 0.5
        forward.append(Block(f"F{s}", BlockKind.FORWARD, (place,), choose.randint(1, 5), 1))
        backward.insert(0, Block(f"B{s}", BlockKind.BACKWARD, (place,), choose.randint(1, 5), 0 if halves else -1))
        if halves:
            weights.append(Block(f"W{s}", BlockKind.WEIGHT, (place,), choose.randint(1, 5), -1))
    links = [Dependency(a.name, b.name, choose.randint(0, 3)) for a, b in pairwise((*forward, *backward))]
    links += [Dependency(f"B{block.name[1:]}", block.name) for block in weights]
    blocks = (*forward, *backward, *weights)
    plan = MicroBatchPlan("chain", tuple(PlanDevice(f"gpu{d}") for d in range(devices)), blocks, tuple(links))
    order = any_order(plan, micro_batches, choose)
    return Schedule.from_starts(plan, run_in_order(plan, micro_batches, order))


def run_on_torch(schedules: dict[str, Schedule], folder: Path, profile: str = "") -> dict[str, dict[str, float]]:
    """Return the largest differences of gradients and losses from one process for each schedule, relative to the
    largest entry.

    All schedules have the same number of devices, and run on one group of processes.  Traces of the schedule `profile`
    are written to the folder as trace0.json and so on, one per rank.  Fails after two minutes.
    """
    import torch.multiprocessing as processes

    for name, schedule in schedules.items():
        assert not EXPORTS["pytorch-csv"].objection(schedule), name
        (folder / f"{name}.csv").write_bytes(EXPORTS["pytorch-csv"].made(schedule, None))
    ranks = len(next(iter(schedules.values())).plan.devices)
    group = processes.start_processes(_run, (str(folder), list(schedules), ranks, profile), ranks, join=False)
    gives_up = time.monotonic() + 120
    while not group.join(timeout=1):
        if time.monotonic() > gives_up:
            for process in group.processes:
                process.kill()
            raise AssertionError(f"the ranks did not end; {sorted(path.name for path in folder.iterdir())}")
    parts = [json.loads((folder / f"found{rank}.json").read_text()) for rank in range(ranks)]
    return {
        name: {what: max(part[name].get(what, 0.0) for part in parts) for what in ("gradient", "loss")}
        for name in schedules
    }


def _run(rank: int, folder: str, names: list[str], ranks: int, profile: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    try:
        found = {name: _compared(Path(folder), name, rank, traced=name == profile) for name in names}
    finally:
        dist.destroy_process_group()
    Path(folder, f"found{rank}.json").write_text(json.dumps(found))


def _compared(folder: Path, name: str, rank: int, *, traced: bool) -> dict[str, float]:
    """Compare one step of a CSV with the same step of the whole network in this process."""
    import torch
    from torch import nn
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    path = folder / f"{name}.csv"
    said = read_pytorch_csv(path.read_bytes(), name)
    stages, micro_batches = len(said.rank_of), 1 + max(action.micro_batch or 0 for _, _, action in said.each())

    def network() -> Any:
        torch.manual_seed(0)
        return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(stages)]

    split, whole = network(), network()
    inputs, targets = torch.randn(2, micro_batches * SAMPLES, WIDTH).unbind()
    mine = [stage for stage in range(stages) if said.rank_of[stage] == rank]
    parts = [PipelineStage(split[stage], stage, stages, torch.device("cpu")) for stage in mine]
    runtime = _PipelineScheduleRuntime(parts, micro_batches, loss_fn=nn.functional.mse_loss)
    runtime._load_csv(str(path))
    losses: list[Any] = []

    def step() -> None:
        more = {"target": targets, "losses": losses} if stages - 1 in mine else {}
        runtime.step(*([inputs] if 0 in mine else []), **more)

    step()
    alone = [
        nn.functional.mse_loss(nn.Sequential(*whole)(x), y)
        for x, y in zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True)
    ]
    (sum(alone) / micro_batches).backward()
    apart = {"gradient": 0.0}
    for stage in mine:
        for one, other in zip(split[stage].parameters(), whole[stage].parameters(), strict=True):
            difference = (one.grad - other.grad).abs().max() / other.grad.abs().max()
            apart["gradient"] = max(apart["gradient"], difference.item())
    if losses:
        apart["loss"] = (torch.stack(losses) - torch.stack(alone)).abs().max().item()
    if traced:
        with torch.profiler.profile() as profiler:
            for _ in range(3):
                step()
        profiler.export_chrome_trace(str(folder / f"trace{rank}.json"))
    return apart
