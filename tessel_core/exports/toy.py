"""Write a strategy as a PyTorch script that trains a small network with the same degrees, stages and order of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from string import Template

from tessel_core.exports.pytorch_csv import pytorch_csv
from tessel_core.strategies.orders import stage_order
from tessel_core.strategies.strategy import Strategy

WRITTEN_BY = "Written by `tessel recommend --launch torch`"
"""Text in every such script. `tessel run` executes only scripts that contain it."""
_MAX_PROCESSES = 32
"""Largest number of processes of the script, unless one replica needs more. A laptop runs 16 in about 15 seconds."""
_MAX_MICRO_BATCHES_PER_DEVICE = 4
"""Largest number of micro-batches per pipeline device. Four are enough to fill, use and empty the pipeline."""


def toy_objection(strategy: Strategy) -> str:
    """Return why no script can be written for the strategy, as a clause. Empty if it can."""
    return f"{strategy.schedule} runs two copies of the network, but the toy has one" if _copies(strategy) > 1 else ""


def _copies(strategy: Strategy) -> int:
    return strategy.form.copies if strategy.pipeline > 1 else 1


def toy_script(title: str, strategy: Strategy, layers: Sequence[int]) -> str:
    """Return the text of the script. `layers` is the number of layers of each stage.

    Raises InputError if `toy_objection` has a reason.
    """
    data, micro_batches = _toy_counts(strategy)
    order = stage_order(strategy.schedule, strategy.pipeline, micro_batches, True, strategy.stages_per_device)
    text = resources.files("tessel_core.exports").joinpath("toy_script.txt").read_text(encoding="utf-8")
    return Template(text).substitute(
        title=title,
        ranks=data * strategy.tensor * strategy.pipeline,
        data=data,
        tensor=strategy.tensor,
        pipeline=strategy.pipeline,
        layers=list(layers),
        order=pytorch_csv(order).strip(),
        micro_batches=micro_batches,
    )


def toy_left_out(strategy: Strategy) -> Iterator[str]:
    """Yield one clause for each way in which the script differs from the strategy."""
    data, micro_batches = _toy_counts(strategy)
    if data < strategy.data:
        yield f"PyTorch's toy has {data} of the {strategy.data} replicas"
    if micro_batches < strategy.micro_batches:
        yield f"PyTorch's toy has {micro_batches} of the {strategy.micro_batches} micro-batches"
    ways = [f"ZeRO-{strategy.zero}"] if strategy.zero else []
    ways += ["context parallelism"] * (strategy.context > 1) + ["expert parallelism"] * (strategy.expert > 1)
    ways += ["sequence parallelism"] * (strategy.sequence_parallel and strategy.tensor > 1)
    ways += ["recomputation"] * (str(strategy.recompute) != "none")
    if ways:
        yield f"PyTorch's toy leaves out {', '.join(ways)}, which `tessel run` offers as options"


def _toy_counts(strategy: Strategy) -> tuple[int, int]:
    """Return the number of replicas and the number of micro-batches that the script runs."""
    data = min(strategy.data, max(1, _MAX_PROCESSES // (strategy.tensor * strategy.pipeline)))
    return data, min(strategy.micro_batches, _MAX_MICRO_BATCHES_PER_DEVICE * strategy.pipeline)
