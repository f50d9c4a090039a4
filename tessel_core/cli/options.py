"""Options that several verbs have, as typer takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from tessel_core.costs.costed import CostOptions
from tessel_core.model import Communication, LayoutShape
from tessel_core.options import options_of
from tessel_core.registry import Solver

_CHOICES = {name: ", ".join(each.choices) for name, (each, _) in options_of(CostOptions).items()}

Graph = Annotated[
    str, typer.Argument(help="A sample's name, a tessel-graph or ONNX file, or the published device-placement JSON.")
]
Mesh = Annotated[
    str | None,
    typer.Option(help="Devices and links: a file, a sample, or KIND-COUNT such as h100-512 in nodes of eight."),
]
PerNode = Annotated[
    int | None, typer.Option(min=1, max=8, help="Devices per node of a --mesh named KIND-COUNT. Default: 8.")
]
Transfers = Annotated[
    Communication | None, typer.Option(help="Whether transfers on a mesh keep devices busy. Default: overlapped.")
]
Dtype = Annotated[str | None, typer.Option(help=f"Number format on a mesh: {_CHOICES['dtype']}.")]
Optimizer = Annotated[str | None, typer.Option(help=f"Optimizer in training on a mesh: {_CHOICES['optimizer']}.")]
InFlight = Annotated[
    str | None,
    typer.Option(
        metavar="1f1b|gpipe|N",
        help="Activations that a stage of a mesh holds in training. 1f1b: the k-th stage from the end those of k "
        "micro-batches; gpipe: every stage those of all; N: every stage those of N. Default: 1f1b.",
    ),
]
PlacedMicroBatches = Annotated[
    int | None,
    typer.Option("--micro-batches", help="Micro-batches of a training step: no stage holds more. Default: 32."),
]
TensorGroups = Annotated[
    int | None,
    typer.Option(
        "--tensor",
        help="Tensor-parallel degree: groups of so many neighbours on a mesh share each operator. Default: 1.",
    ),
]
Pin = Annotated[
    list[str] | None,
    typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Devices that an operator may go to; repeatable."),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Devices that an operator may not go to; repeatable."),
]
Replicate = Annotated[
    bool,
    typer.Option("--replicate", help="A stage may have several devices, each with its part of every micro-batch."),
]
ReduceEvery = Annotated[
    int | None,
    typer.Option(
        help="With --replicate, number of micro-batches that add up gradients before a reduction. Default: 1."
    ),
]
ReductionBandwidth = Annotated[
    float | None,
    typer.Option(help="With --replicate and without --mesh, GB/s at which gradients are reduced. Default: 16."),
]
Accelerators = Annotated[int | None, typer.Option(help="Number of accelerators. Default: what a published graph says.")]
Cpus = Annotated[int | None, typer.Option(help="Number of CPUs. Default: what a published graph says, else 0.")]
Memory = Annotated[
    float | None,
    typer.Option(help="Memory of an accelerator in bytes. Default: what a published graph says, else unlimited."),
]
Contiguous = Annotated[
    bool,
    typer.Option(
        "--contiguous/--non-contiguous", help="Stages of operators that follow each other, or of any operators."
    ),
]
StagesPerDevice = Annotated[
    int | None,
    typer.Option(
        min=1, max=64, help="Number of pipeline stages per device, which --layout-shape lays out. Default: 1."
    ),
]
Shape = Annotated[
    LayoutShape | None,
    typer.Option(
        "--layout-shape",
        help="Way of the stages: loop goes round the devices, v goes down and up again. Default: loop.",
    ),
]
SplitWeights = Annotated[
    bool, typer.Option("--split-weights", help="Make weight gradients blocks of their own, where the graph has them.")
]

MeshOrH200s = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        help="Devices and links: a file, a sample, or KIND-COUNT such as h100-512 in nodes of eight. "
        "Default: as many H200s as needed.",
    ),
]
UniformMesh = Annotated[
    str | None,
    typer.Option(metavar="FLOPS,BYTES_PER_S,GBPS", help="Equal devices, equally linked; each in numbers like 1.4e13."),
]
Compat = Annotated[
    str | None, typer.Option(help="distir: times and memory as DistIR's published code counts them, faults included.")
]
Overlap = Annotated[
    bool, typer.Option("--overlap/--no-overlap", help="Compute and communicate at the same time, or in turn.")
]
LinkSharing = Annotated[
    bool, typer.Option("--link-sharing", help="Transfers that leave a node at one time share its uplink.")
]


def with_options(solvers: Iterable[Solver]) -> Callable[[Any], Any]:
    """The verb with every option of the solvers, which it takes as its `**given`; its own options stay as they are."""

    def with_theirs(verb: Any) -> Any:
        kind = inspect.Parameter.KEYWORD_ONLY
        own = inspect.signature(verb, eval_str=True).parameters
        parameters = {name: each.replace(kind=kind) for name, each in own.items() if each.kind is not each.VAR_KEYWORD}
        for solver in solvers:
            for name, (shown, default) in options_of(solver.config).items():
                unit = f" {shown.unit}" if shown.unit else ""
                text = f"{shown.label}: {shown.help} [dim](default {default}{unit})[/dim]"
                asked: Any = Annotated[type(default) | None, typer.Option(help=text, show_default=False)]
                parameters.setdefault(name, inspect.Parameter(name, kind, default=None, annotation=asked))
        verb.__signature__ = inspect.Signature(list(parameters.values()))
        return verb

    return with_theirs


def field_by_field(verb: Callable[..., None]) -> Any:
    """The verb with an option for each field of its parameters that are dataclasses."""
    parameters = dict(inspect.signature(verb, eval_str=True).parameters)
    kinds = dict[str, Any](
        (name, each.annotation) for name, each in parameters.items() if is_dataclass(each.annotation)
    )
    fields = {name: inspect.signature(kind, eval_str=True).parameters for name, kind in kinds.items()}

    @wraps(verb)
    def run(**given: Any) -> None:
        asked = {name: kind(**{field: given.pop(field) for field in fields[name]}) for name, kind in kinds.items()}
        verb(**asked, **given)

    every = (option for name in parameters for option in fields.get(name, {name: parameters[name]}).values())
    shown: Any = run
    shown.__signature__ = inspect.Signature(
        [each if each.kind is each.VAR_KEYWORD else each.replace(kind=each.KEYWORD_ONLY) for each in every]
    )
    shown.__annotations__ = {}  # typer asks for them and then reads the signature
    return shown
