"""Command-line options that several commands share, and decorators that add options to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from tessel_core.costs.costed import CostOptions
from tessel_core.model import Communication, LayoutShape
from tessel_core.options import Option, options_of
from tessel_core.registry import Solver

_CHOICES = {name: ", ".join(each.choices) for name, (each, _) in options_of(CostOptions).items()}

Graph = Annotated[
    str,
    typer.Argument(
        help="Operator graph: the name of a sample, a tessel-graph file, an ONNX file, or a JSON graph of the "
        "published device-placement code."
    ),
]
Mesh = Annotated[
    str | None,
    typer.Option(
        help="Devices and links: a mesh file, a sample, a preset, or KIND-COUNT such as h100-512. "
        "Default: the devices of the graph, or those of --accelerators."
    ),
]
MeshOfPlacement = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        help="Mesh of the placement: a mesh file, a sample, a preset, or KIND-COUNT such as h100-512. "
        "Give it if the placement is on a mesh.",
    ),
]
PerNode = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=8,
        help="Devices per node of a --mesh KIND-COUNT. Fewer devices per node put more transfers on the links between "
        "nodes. Default: 8.",
    ),
]
Transfers = Annotated[
    Communication | None,
    typer.Option(
        help="Transfers on a mesh. overlapped: devices compute during a transfer; blocking: sender and receiver are "
        "busy until it ends. Default: overlapped."
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help=f"Number format of weights and activations, for costs on a mesh: {_CHOICES['dtype']}. Default: bf16."
    ),
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        help=f"Optimizer whose state occupies memory in training on a mesh: "
        f"{_CHOICES['optimizer']}. Default: adam-mixed."
    ),
]
InFlight = Annotated[
    str | None,
    typer.Option(
        metavar="1f1b|gpipe|N",
        help="Micro-batches whose activations a stage holds in training on a mesh. 1f1b: the k-th stage from the end "
        "holds k; gpipe: every stage holds all; N: every stage holds N. More need more memory. Default: 1f1b.",
    ),
]
PlacedMicroBatches = Annotated[
    int | None,
    typer.Option(
        "--micro-batches", help="Micro-batches per training step. No stage holds the activations of more. Default: 32."
    ),
]
TensorGroups = Annotated[
    int | None,
    typer.Option(
        "--tensor",
        help="Tensor-parallel degree: number of neighbouring devices of a mesh that share each operator as one group. "
        "Raising it leaves fewer, larger groups to place on. Default: 1.",
    ),
]
Pin = Annotated[
    list[str] | None,
    typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Allow an operator on these devices only. Repeatable."),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Forbid these devices to an operator. Repeatable."),
]
Replicate = Annotated[
    bool,
    typer.Option(
        "--replicate", help="Allow stages on several devices, each of which takes its share of every micro-batch."
    ),
]
ReduceEvery = Annotated[
    int | None,
    typer.Option(
        help="With --replicate: micro-batches whose gradients are summed before each reduction. Raising it makes "
        "replicas cheaper. Default: 1."
    ),
]
ReductionBandwidth = Annotated[
    float | None,
    typer.Option(
        help="With --replicate and without --mesh: bandwidth of gradient reductions in GB/s. Raising it makes replicas "
        "cheaper. Default: 16."
    ),
]
Accelerators = Annotated[
    int | None, typer.Option(help="Number of accelerators, without --mesh. Default: as in the published graph.")
]
Cpus = Annotated[
    int | None, typer.Option(help="Number of CPUs, without --mesh. Default: as in the published graph, else 0.")
]
Memory = Annotated[
    float | None,
    typer.Option(
        help="Memory per accelerator in bytes, without --mesh. Lowering it excludes placements. Default: as in the "
        "published graph, else unlimited."
    ),
]
Contiguous = Annotated[
    bool,
    typer.Option(
        "--contiguous/--non-contiguous",
        help="Require stages that can be ordered so that no forward tensor flows back, or allow any sets of operators. "
        "The second is slower to search, and can balance loads better.",
    ),
]
StagesPerDevice = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Pipeline stages per device, in the order of --layout-shape. More stages can shorten the bubble and add "
        "transfers. Default: 1.",
    ),
]
Shape = Annotated[
    LayoutShape | None,
    typer.Option(
        "--layout-shape",
        help="Order of stages with several per device. loop: each round begins again at the first device; v: every "
        "second round goes backwards. Default: loop.",
    ),
]
SplitWeights = Annotated[
    bool,
    typer.Option(
        "--split-weights",
        help="Make weight gradients blocks of their own, if the graph has them as operators of their own.",
    ),
]

MeshOrH200s = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        help="Devices and links: a mesh file, a sample, a preset, or KIND-COUNT such as h100-512. "
        "Default: as many H200s as needed.",
    ),
]
UniformMesh = Annotated[
    str | None,
    typer.Option(
        metavar="FLOPS,BYTES_PER_S,GBPS",
        help="Equal devices with equal links, in place of --mesh: FLOP/s, bytes/s of memory, Gbit/s of links, such as "
        "1.4e13,9e11,25.",
    ),
]
Compat = Annotated[
    str | None,
    typer.Option(
        help="distir: compute times and memory exactly as the published code of DistIR does, including its faults."
    ),
]
Overlap = Annotated[
    bool,
    typer.Option(
        "--overlap/--no-overlap",
        help="Let each device compute and communicate at the same time, or one after the other.",
    ),
]
LinkSharing = Annotated[
    bool,
    typer.Option(
        "--link-sharing", help="Let transfers that leave a node at the same time share the bandwidth of its uplink."
    ),
]


def with_options(solvers: Iterable[Solver]) -> Callable[[Any], Any]:
    """Return a decorator that adds every option of the solvers to a command.

    The command receives the options as `**given`. The help text of an option names the solvers that have it. Label,
    help and default are those of the first solver.
    """
    found: dict[str, tuple[Option, Any, list[str]]] = {}
    for solver in solvers:
        for name, (shown, default) in options_of(solver.config).items():
            found.setdefault(name, (shown, default, []))[2].append(solver.name)

    def extend(verb: Any) -> Any:
        """Add `options` to the signature of `verb`, after its own options.

        An option that `verb` already has is not added.
        """
        kind = inspect.Parameter.KEYWORD_ONLY
        own = inspect.signature(verb, eval_str=True).parameters
        parameters = {name: each.replace(kind=kind) for name, each in own.items() if each.kind is not each.VAR_KEYWORD}
        for name, (shown, default, users) in found.items():
            unit = f" {shown.unit}" if shown.unit else ""
            text = f"{shown.label}: {shown.help} [dim](default {default}{unit}; for {', '.join(users)})[/dim]"
            asked: Any = Annotated[type(default) | None, typer.Option(help=text, show_default=False)]
            parameters.setdefault(name, inspect.Parameter(name, kind, default=None, annotation=asked))
        verb.__signature__ = inspect.Signature(list(parameters.values()))
        return verb

    return extend


def field_by_field(verb: Callable[..., None]) -> Any:
    """Replace each parameter whose type is a dataclass by one option per field of the dataclass."""
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
    shown.__annotations__ = {}  # typer would prefer annotations to the signature
    return shown
