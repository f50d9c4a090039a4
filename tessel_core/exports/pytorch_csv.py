"""Write a schedule for torch.distributed.pipelining: a CSV file (`compute_only`), a script, and torchtitan settings."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from string import Template

from tessel_core.errors import InputError
from tessel_core.exports.stages import on_ranks, stages_of, tensor_degree
from tessel_core.model import MicroBatchPlan, Schedule

PYTORCH_CSV = "pytorch-csv"
NO_TORCHTITAN = "torchtitan places stages only in a loop or a V (ZB-V). The script supports these stages."
_NEAREST = "this export supports V, split V, loop and ZB-V shapes; tessel run runs any schedule"


def objection_of_pytorch(schedule: Schedule) -> str:
    """Return why the CSV cannot express the schedule, in one sentence without a full stop. Empty if it can."""
    plan = on_ranks(schedule.plan)
    try:
        stages = stages_of(plan)
    except InputError as error:
        return f"{error.where} {error.why}; {_NEAREST}"
    idle = set(range(len(plan.devices))) - {stage.device for stage in stages}
    if idle:
        return f"device {plan.devices[min(idle)].name} runs nothing, but every rank needs a stage; {_NEAREST}"
    return ""


def pytorch_csv(schedule: Schedule) -> str:
    """Return the CSV file: one row per device, and one cell per run in order of start.

    A cell names the stage, the kind and the micro-batch: 0F0 is a forward pass, 1B2 a whole backward pass, and 1I2 and
    1W2 are its input gradient and weight gradient. A tensor-parallel group is one rank of the pipeline and has one row.
    Micro-batches are numbered in the order in which the last stage runs them, because PyTorch expects losses in that
    order. Raises InputError in the cases of `stages_of`.
    """
    schedule = replace(schedule, plan=on_ranks(schedule.plan))
    stages = stages_of(schedule.plan)
    said = dict[int, str]()
    for s, stage in enumerate(stages):
        said[stage.forward] = f"{s}F"
        said[stage.backward] = f"{s}B" if stage.weight is None else f"{s}I"
        if stage.weight is not None:
            said[stage.weight] = f"{s}W"
    blocks, micro_batches = schedule.block.tolist(), schedule.micro_batch.tolist()
    last = [m for b, m in zip(blocks, micro_batches, strict=True) if b == stages[-1].forward]
    number = {m: i for i, m in enumerate(last)}
    rows = (
        ",".join(f"{said[blocks[row]]}{number[micro_batches[row]]}" for row in schedule.runs_on(device).tolist())
        for device in range(len(schedule.plan.devices))
    )
    return "\n".join(rows) + "\n"


def torchrun_script(schedule: Schedule, csv_name: str, name: str) -> str:
    """Return a Python script with the file name `name`. torchrun runs it, with the CSV file in the same folder.

    The script contains a toy model, which the user replaces.
    """
    text = resources.files("tessel_core.exports").joinpath("pytorch_script.txt").read_text(encoding="utf-8")
    return Template(text).substitute(
        csv=ascii(csv_name), ranks=len(on_ranks(schedule.plan).devices), script=ascii(name)[1:-1]
    )


def torchtitan_settings(schedule: Schedule, csv_name: str) -> tuple[str, ...]:
    """Return the settings with which torchtitan runs the CSV file. Empty if torchtitan cannot place the stages in this
    way.

    The schedule that the settings name decides where torchtitan places stages: in a V for ZBVZeroBubble, otherwise in a
    loop.
    """
    plan = on_ranks(schedule.plan)
    name = titan_schedule(plan)
    if not name:
        return ()
    stages, ranks, degree = stages_of(plan), len(plan.devices), tensor_degree(schedule.plan)
    settings = (
        *((f"tensor_parallel_degree = {degree}",) if degree > 1 else ()),
        f"pipeline_parallel_degree = {ranks}",
        f'pipeline_parallel_schedule = "{name}"',
        f'pipeline_parallel_schedule_csv = "{csv_name}"',
        f"training.local_batch_size = {schedule.micro_batches} * pipeline_parallel_microbatch_size",
    )
    more = (f"module_fqns_per_model_part = [… a list of modules for each of {len(stages)} stages]",)
    return settings if len(stages) // ranks <= 2 else (*settings, *more)


def titan_schedule(plan: MicroBatchPlan) -> str:
    """Return the torchtitan schedule that places the stages on the same ranks. Empty if there is none.

    Raises InputError in the cases of `stages_of`.
    """
    devices, ranks = [stage.device for stage in stages_of(plan)], len(plan.devices)
    if len(devices) % ranks == 0 and all(device == s % ranks for s, device in enumerate(devices)):
        return "1F1B" if len(devices) == ranks else "Interleaved1F1B"
    return "ZBVZeroBubble" if devices == [*range(ranks), *reversed(range(ranks))] else ""
