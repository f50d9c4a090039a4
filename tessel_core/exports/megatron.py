"""Write the layers of each stage, from a schedule or a placement, as arguments of Megatron-LM."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tessel_core.errors import InputError
from tessel_core.exports.stages import forward_chain, on_ranks, tensor_degree
from tessel_core.formats.megatron_layout import layout_text
from tessel_core.model import Block, MicroBatchPlan, Placement, Schedule
from tessel_core.placement.by_layer import stage_letters

_LAYERS = re.compile(r"layers? (\d+)(?:–(\d+))?")
_ANY_NUMBERED = re.compile(r"(?:.* )?\d+(?:–\d+)?|…|and \d+ more")
_NEAREST = "this export needs stages of GPT layers in a V or a loop; a PyTorch CSV can express any chain of stages"


def objection_of_megatron(schedule: Schedule) -> str:
    """Return why Megatron-LM's arguments cannot express the stages, in one sentence without a full stop.

    Empty if they can.
    """
    try:
        _layout(schedule.plan)
    except InputError as error:
        return f"{error.where} {error.why}; {_NEAREST}"
    return ""


def megatron_arguments(schedule: Schedule) -> str:
    """Return one line of arguments: the number of layers, the number of pipeline ranks, the layers of each stage, and
    the batch.

    The batch is left out if the plan has no number of samples. The order of runs is left out, too: Megatron-LM always
    runs 1F1B, interleaved if ranks have several stages.

    Raises InputError in the cases of `forward_chain`, for stages that are not placed in a loop, and for labels without
    consecutive layers.
    """
    plan = schedule.plan
    said = _arguments(*_layout(plan), tensor_degree(plan))
    if plan.samples is not None:
        said |= {"micro-batch-size": plan.samples, "global-batch-size": plan.samples * schedule.micro_batches}
    return _line(said)


def layout_arguments(placement: Placement) -> str:
    """Return the arguments of `megatron_arguments`, without the batch, for a placement with several stages per device.

    Raises InputError in the cases of `stage_letters`.
    """
    stages, groups = stage_letters(placement), placement.transfers.groups
    return _line(_arguments(stages, len(set(placement.assignment)), 1 if groups is None else groups.size))


def _arguments(stages: Sequence[str], ranks: int, degree: int) -> dict[str, object]:
    return {
        **({"tensor-model-parallel-size": degree} if degree > 1 else {}),
        "num-layers": sum(stage.count("t") for stage in stages),
        "pipeline-model-parallel-size": ranks,
        "pipeline-model-parallel-layout": f"'{layout_text(stages)}'",
    }


def _line(arguments: Mapping[str, object]) -> str:
    return " ".join(f"--{name} {value}" for name, value in arguments.items()) + "\n"


def _layout(plan: MicroBatchPlan) -> tuple[list[str], int]:
    """Return the layers of each stage as letters (E embedding, t layer, L loss), and the number of ranks."""
    plan = on_ranks(plan)
    chain = [plan.blocks[b] for b in forward_chain(plan)]
    ranks = _ranks(plan, chain)
    stages, next_layer = list[str](), None
    for s, block in enumerate(chain):
        first, count = _layers_of(block, is_first=s == 0, is_last=s == len(chain) - 1)
        if count and next_layer is not None and first != next_layer:
            raise InputError(
                f"block {block.name}", f"begins with layer {first}, but must begin with layer {next_layer}"
            )
        next_layer = first + count if count else next_layer
        stages.append("t" * count)
    if next_layer is None:
        raise InputError(f"plan {plan.name}", "has no block whose label names a transformer layer")
    stages[0] = f"E{stages[0]}"
    stages[-1] = f"{stages[-1]}L"
    return stages, ranks


def _ranks(plan: MicroBatchPlan, chain: Sequence[Block]) -> int:
    """Return the number of devices.

    Raises InputError unless the devices get stages in turn, and equally many.
    """
    devices = [block.devices[0] for block in chain]
    ranks = len(set(devices))
    for s, device in enumerate(devices):
        if devices.index(device) != s % ranks:
            where = plan.devices[device].name
            raise InputError(f"stage {s}", f"is on {where}, but Megatron-LM assigns stages to ranks in loops")
    if len(chain) % ranks:
        raise InputError(
            f"plan {plan.name}", f"has {len(chain)} stages on {ranks} ranks, but each rank needs the same number"
        )
    return ranks


def _layers_of(block: Block, *, is_first: bool, is_last: bool) -> tuple[int, int]:
    """Return the first layer and the number of layers that the label of a stage names.

    The first stage may also have the embedding, and the last stage the loss.
    """
    if not block.label:
        raise InputError(f"block {block.name}", 'has no label that names its layers, such as "layers 0–7"')
    parts = block.label.split(", ")
    at = next((i for i, part in enumerate(parts) if _LAYERS.fullmatch(part)), None)
    if at is None:  # The stage is the embedding or the loss alone.
        before, after = (parts, []) if is_first else ([], parts)
    else:
        before, after = parts[:at], parts[at + 1 :]
    odd = [part for part in (*before, *after) if _ANY_NUMBERED.fullmatch(part)]
    if odd or (before and not is_first) or (after and not is_last):
        why = f'runs "{block.label}", but Megatron-LM needs an embedding first, then consecutive layers, then a loss'
        raise InputError(f"block {block.name}", why)
    if at is None:
        return 0, 0
    match = _LAYERS.fullmatch(parts[at])
    assert match is not None
    first = int(match[1])
    return first, int(match[2] or first) - first + 1
