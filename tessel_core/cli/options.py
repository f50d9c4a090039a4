"""Options that several verbs have, as typer takes them."""

from __future__ import annotations

from typing import Annotated

import typer

from tessel_core.costs.costed import CostOptions
from tessel_core.model import Communication
from tessel_core.options import options_of

_CHOICES = {name: ", ".join(each.choices) for name, (each, _) in options_of(CostOptions).items()}

Graph = Annotated[
    str, typer.Argument(help="A sample's name, a tessel-graph or ONNX file, or the published device-placement JSON.")
]
Mesh = Annotated[str | None, typer.Option(help="File, sample or preset (such as h200-16) with devices and links.")]
Transfers = Annotated[
    Communication | None, typer.Option(help="On a mesh, whether transfers keep devices busy; overlapped if not said.")
]
Dtype = Annotated[str | None, typer.Option(help=f"On a mesh, number format: {_CHOICES['dtype']}.")]
Optimizer = Annotated[str | None, typer.Option(help=f"On a mesh, in training: {_CHOICES['optimizer']}.")]
InFlight = Annotated[int | None, typer.Option(help="On a mesh, micro-batches whose activations a device holds.")]
Pin = Annotated[list[str] | None, typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Where it may go; repeatable.")]
Forbid = Annotated[list[str] | None, typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Where not; repeatable.")]
Accelerators = Annotated[int | None, typer.Option(help="How many; else what a published graph says.")]
Cpus = Annotated[int | None, typer.Option(help="How many; else what a published graph says, else none.")]
Memory = Annotated[float | None, typer.Option(help="Bytes of one accelerator; else as published, or all.")]
Contiguous = Annotated[
    bool, typer.Option("--contiguous/--non-contiguous", help="Stages that follow each other, or any sets.")
]
SplitWeights = Annotated[
    bool, typer.Option("--split-weights", help="Weight gradients as blocks of their own, where the graph has them.")
]

MeshOrH200s = Annotated[
    str | None, typer.Option("--mesh", help="File, sample or preset (such as h200-16); else as many H200s as it takes.")
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
