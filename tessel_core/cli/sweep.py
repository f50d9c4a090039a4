"""`tessel sweep`: evaluate a grid of strategies of a network, or (`sweep schedules`) of placements and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tessel_core.cli import options
from tessel_core.cli.output import Json, as_typed, console, print_json, print_notes, table
from tessel_core.cli.simulation_problem import (
    BUCKET_MIB,
    Bucket,
    assignments,
    bucket_bytes,
    given_mesh,
    given_sizes,
    listed,
    members,
    named_family,
    note_what_is_shared,
    semantics_of,
    size_option,
)
from tessel_core.cli.solving import solve
from tessel_core.cli.sweep_schedules import schedules
from tessel_core.errors import InputError
from tessel_core.exports.sweep_table import sweep_csv, sweep_document, sweep_json
from tessel_core.formats import write_file
from tessel_core.formats.files import check_place
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.strategies.evaluation import NOT_REACHED
from tessel_core.strategies.families import FAMILIES, Family, Value
from tessel_core.strategies.grid import OBJECTIVES, Grid, GridResult, doubling, evaluate_grid, ranges, read_range
from tessel_core.strategies.orders import DEFAULT_ORDER, chain_schedulers
from tessel_core.strategies.ranks import RankOrder, every_rank_order, read_rank_order
from tessel_core.strategies.strategy import MAX_TRACED, Semantics, count_operations, simulate_strategy
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.strategy import explain

_MAX_MICRO_BATCHES = 32

_RANGE = (
    "Range of layers: a list such as 1,2,4, an interval such as 1..8, or a geometric one such as 1..64x2 (1, 2, "
    "4 … 64)."
)
_Range = Annotated[
    str | None, typer.Option(metavar="RANGE", help="Range of degrees, written as for --layers. Default: powers of two.")
]
_Degree = Annotated[
    str | None, typer.Option(metavar="RANGE", help="Range of degrees, written as for --layers. Default: 1.")
]
_Sizes = Annotated[
    str | None,
    typer.Option(metavar="RANGE", help="Range of sizes, written as for --layers. Default: as in --size or the preset."),
]
_Orders = Annotated[str, typer.Option(help=f"List of pipeline schedules: {', '.join(chain_schedulers())}.")]

_WRITERS = {".csv": sweep_csv, ".json": sweep_json}


@dataclass(frozen=True)
class AskedGrid:
    """Options that give the sizes and degrees to try, one attribute per option."""

    size: Annotated[str | None, typer.Option(help="List of published sizes of a GPT, such as gpt2-xl,gpt3-6.7b.")] = (
        None
    )
    layers: Annotated[str | None, typer.Option(metavar="RANGE", help=_RANGE)] = None
    width: _Sizes = None
    hidden: _Sizes = None
    heads: _Sizes = None
    vocabulary: _Sizes = None
    sequence: _Sizes = None
    batch: _Sizes = None
    dtype: Annotated[str | None, typer.Option(help="List of number formats, such as fp16,fp32 or bf16,fp8.")] = None
    mode: Annotated[str | None, typer.Option(help="List of the work of a GPT, such as training,decode.")] = None
    tokens_before: _Sizes = None
    data: _Range = None
    tensor: _Range = None
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="With --tensor: also cut activations along the tokens.")
    ] = False
    context: _Degree = None
    context_method: Annotated[
        str,
        typer.Option(metavar="LIST", help=f"List of methods of attention under --context: {', '.join(ContextMethod)}."),
    ] = ContextMethod.RING
    expert: _Degree = None
    pipeline: _Range = None
    micro_batches: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            help="Range of micro-batches per replica and step, written as for --layers. Default: powers of two up to "
            f"{_MAX_MICRO_BATCHES}.",
        ),
    ] = None
    micro_batch_size: Annotated[
        str | None, typer.Option(metavar="RANGE", help="Range of samples per micro-batch, in place of --micro-batches.")
    ] = None
    stages_per_device: Annotated[
        str | None, typer.Option(metavar="RANGE", help="Range of pipeline stages per device. Default: 1.")
    ] = None
    schedule: _Orders = DEFAULT_ORDER
    recompute: Annotated[
        str,
        typer.Option(metavar="LIST", help=f"List of operators to recompute for the backward: {', '.join(Recompute)}."),
    ] = Recompute.NONE
    zero: Annotated[
        str,
        typer.Option(
            metavar="RANGE", help="Range of ZeRO stages, such as 0,1,3. Without replicas, only stage 0 is tried."
        ),
    ] = "0"
    grad_dtype: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="List of number formats of summed gradients. Default: that of the weights."),
    ] = None
    attention: Annotated[
        str, typer.Option(metavar="LIST", help=f"List of attention kernels: {', '.join(AttentionKernel)}.")
    ] = AttentionKernel.FUSED
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Fuse pointwise operators of each layer, as torch.compile does.")
    ] = False
    rank_order: Annotated[
        str | None,
        typer.Option(
            metavar="LIST|all",
            help="Order of the parallel dimensions, innermost first, as in `tessel simulate`. all: try every order "
            "that differs on the mesh.",
        ),
    ] = None
    bucket: Bucket = BUCKET_MIB
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUES", help="Option of the network with a range or list of values. Repeatable."
        ),
    ] = None

    def of(self, network: Family, said: Mapping[str, Value], most: int) -> Grid:
        """Build the grid of a network on up to `most` devices.

        The sizes `said` apply unless options replace them. Raises InputError for an invalid range or an unknown size.
        """
        if self.micro_batches is not None and self.micro_batch_size is not None:
            raise InputError("--micro-batch-size", "replaces --micro-batches, so give only one of them")
        given = {name: getattr(self, name) for name in _SIZES} | {"context": self.tokens_before}
        asked = given_sizes(network, given | assignments(self.changes or ()))
        numbers = {each.name for each in network.sizes if not each.choices and each.name != "dtype"}
        sizes: dict[str, Sequence[Value]] = {name: (value,) for name, value in said.items()}
        for name, text in asked.items():
            sizes[name] = read_range(text, size_option(name)) if name in numbers else listed(text)
        micro_batches = _range_or_all(self.micro_batches, "--micro-batches", _MAX_MICRO_BATCHES)
        return Grid(
            ranges(**sizes),
            data=_range_or_all(self.data, "--data", most),
            tensor=_range_or_all(self.tensor, "--tensor", most),
            pipeline=_range_or_all(self.pipeline, "--pipeline", most),
            micro_batches=(1,) if self.micro_batch_size else micro_batches,
            schedule=listed(self.schedule),
            recompute=members(Recompute, self.recompute, "--recompute"),
            zero=read_range(self.zero, "--zero"),
            micro_batch_size=read_range(self.micro_batch_size or "", "--micro-batch-size"),
            stages_per_device=_range_or_1(self.stages_per_device, "--stages-per-device"),
            rank_order=_rank_orders(self.rank_order),
            bucket_bytes=(bucket_bytes(self.bucket),),
            context=_range_or_1(self.context, "--context"),
            context_method=members(ContextMethod, self.context_method, "--context-method"),
            expert=_range_or_1(self.expert, "--expert"),
            grad_dtype=("",) if self.grad_dtype is None else listed(self.grad_dtype),
            attention=members(AttentionKernel, self.attention, "--attention"),
            sequence_parallel=self.sequence_parallel,
            compiled=self.compiled,
        )


_SIZES = ("size", "layers", "width", "hidden", "heads", "vocabulary", "sequence", "batch", "dtype", "mode")
"""Options with the same name as a size of a network."""


def strategies(
    what: str,
    *,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Largest number of devices per strategy. Default: all of --mesh, else 8.")
    ] = None,
    asked: AskedGrid,
    mesh: options.MeshOrH200s = None,
    per_node: options.PerNode = None,
    uniform_mesh: options.UniformMesh = None,
    compat: options.Compat = None,
    overlap: options.Overlap = True,
    link_sharing: options.LinkSharing = False,
    out: Annotated[Path | None, typer.Option(help="File for all strategies, .csv or .json.")] = None,
    json: Json = False,
) -> None:
    """Time every strategy of a grid by blocks of layers, and show the best ones, simulated operation by operation."""
    if out is not None:
        check_place(out)
        if out.suffix not in _WRITERS:
            raise InputError("--out", f"must end in {' or '.join(_WRITERS)}, got {out.name!r}")
    named = named_family(what)
    if named is None:
        raise InputError(what, "is not a Hugging Face config; a sweep needs a family, a preset or a config")
    (network, said), semantics = named, semantics_of(compat)
    place = given_mesh(mesh, uniform_mesh, devices or 8, semantics, per_node)
    most = min(devices or len(place.devices), len(place.devices))
    grid = asked.of(network, said, most)
    if semantics is Semantics.DISTIR:
        print_notes("--compat distir", ["evaluates strategies one by one, which is slower"])
    simulated = partial(
        evaluate_grid, network, grid, place, semantics, most=most, overlap=overlap, link_sharing=link_sharing
    )
    with as_typed(lambda name: size_option(name) if name in (*_SIZES, "context") else f"--set {name}"):
        found = solve(simulated, "ns")
    note_what_is_shared(place, range(1, most + 1), semantics, link_sharing=link_sharing)
    if out is not None:
        write_file(out, _WRITERS[out.suffix](found))
    if json:
        print_json(sweep_document(found))
    else:
        _show(found, most)
    raise typer.Exit(0 if found.feasible.any() else 1)


def _range_or_all(text: str | None, flag: str, most: int) -> tuple[int, ...]:
    return doubling(most) if text is None else read_range(text, flag)


def _range_or_1(text: str | None, flag: str) -> tuple[int, ...]:
    return (1,) if text is None else read_range(text, flag)


def _rank_orders(text: str | None) -> tuple[RankOrder | None, ...]:
    """Return the rank orders to try. None represents the default order."""
    if text == "all":
        return every_rank_order()
    return (None if text is None else read_rank_order(text, "--rank-order"),)


def _show(found: GridResult, most: int) -> None:
    feasible = int(found.feasible.sum())
    screen = console(f"{len(found):,} configurations on {found.mesh.name}, {feasible:,} feasible")
    sizes = ("sizes",) if found.several_networks else ()
    headings = ("best", *sizes, "D", "H", "P", "K", "order", "step", "samples/s", "peak memory")
    best_ones = table(*headings, padding=(0, 1))
    for objective in OBJECTIVES.values():
        for i in found.ranked(objective.name)[:1]:
            network = (found.family.describe(found.configurations[i].spec),) if sizes else ()
            best_ones.add_row(objective.title.lower(), *network, *_row(found, i))
    if not sizes and len(found):
        screen.print(found.family.describe(found.configurations[0].spec), soft_wrap=True)
    if feasible:
        screen.print(best_ones)
    best = found.configurations[found.ranked("throughput")[0]] if feasible else None
    # The explanation takes seconds, so it is left out after the user stopped the sweep.
    few = best is not None and count_operations(found.family, best.spec, best.strategy) <= MAX_TRACED
    if best is not None and few and not found.unreached:
        how = found.family, best.spec, best.strategy, found.mesh, found.semantics
        known = simulate_strategy(*how, overlap=found.overlap, link_sharing=found.link_sharing)
        screen.print(" ".join(explain(known.trace, known.ranks, found.mesh)), soft_wrap=True)
    for numbers in found.reason_kinds.values():
        reason, others = found.outcomes[numbers[0]].reason, len({found.outcomes[i].reason for i in numbers}) - 1
        alike = f" (and {others:,} similar reasons)" if others else ""
        what = "not reached" if reason == NOT_REACHED else "not feasible"
        screen.print(f"{len(numbers):,} {what}: {reason}{alike}", soft_wrap=True)
    if found.too_large:
        screen.print(f"{found.too_large:,} left out: they need more than {most} devices")


def _row(found: GridResult, i: int) -> tuple[str, ...]:
    strategy, columns = found.configurations[i].strategy, found.columns
    degrees = (strategy.data, strategy.tensor, strategy.pipeline, strategy.micro_batches)
    return (
        *map(str, degrees),
        strategy.how,
        show_time(float(columns["latency"][i]) * 1e9, "ns"),
        f"{columns['throughput'][i]:,.0f}",
        show_memory(float(columns["peak_memory"][i]), "B"),
    )


class Networks(TyperGroup):
    """The `tessel sweep` command. It accepts a preset or a Hugging Face config instead of a network family."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a family, preset or config. None for an unknown name."""
        found = super().get_command(ctx, cmd_name)
        if found is None and (Path(cmd_name).is_file() or named_family(cmd_name) is not None):
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
            alone.command(cmd_name, help=strategies.__doc__)(_strategies_of(cmd_name))
            return typer.main.get_command(alone)
        return found


def _strategies_of(what: str) -> Any:
    return options.field_by_field(partial(strategies, what))


sweep = typer.Typer(
    cls=Networks,
    help="Evaluate every combination of a grid, and list the best answers first. A preset, such as llama-3-8b, and the "
    "config.json of a Hugging Face model are accepted in place of a family.",
    no_args_is_help=True,
)
sweep.command()(schedules)


for _family in FAMILIES:
    sweep.command(_family, help=strategies.__doc__)(_strategies_of(_family))
