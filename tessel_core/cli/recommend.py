"""`tessel recommend`: find the fastest strategy of a network on a cluster, and show what is proved about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tessel_core.cli import options
from tessel_core.cli.named_model import graph_to_place, named_model, short_name
from tessel_core.cli.output import Json, print_json, print_notes
from tessel_core.cli.problem import PlacementArguments, find_mesh_file
from tessel_core.cli.recommend_graph import GraphOptions, GraphSearch, graph_ranges
from tessel_core.cli.recommendation import for_half, show_recommendation
from tessel_core.cli.simulation_problem import listed, members
from tessel_core.cli.solving import solve
from tessel_core.control import Control
from tessel_core.errors import InputError, find
from tessel_core.exports.launch import LAUNCHERS, Job, Launcher
from tessel_core.exports.recommendation import recommendation_document, searched_document
from tessel_core.exports.table import export_for
from tessel_core.formats import write_file
from tessel_core.formats.files import check_place
from tessel_core.ir.operators.formats import FP8
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.closely import look_at
from tessel_core.strategies.graphs.question import GraphQuestion
from tessel_core.strategies.grid import read_range
from tessel_core.strategies.imported import ImportedFamily
from tessel_core.strategies.price_tags import PriceTag, price_tags
from tessel_core.strategies.recommendation import Question, Recommendation, SearchRanges, searchable_orders
from tessel_core.strategies.recommendation import recommend as search
from tessel_core.strategies.searched_order import (
    SEARCH_SECONDS,
    SEARCHED_PIPELINES,
    SearchedOrder,
    searched_orders,
)
from tessel_core.sweeps.pools import PROCESSES, open_pool
from tessel_core.sweeps.shared_search import recommend_shared

_Range = Annotated[
    str | None,
    typer.Option(
        metavar="RANGE",
        help="Values of this setting to try, such as 1,2,4 or 1..64x2 (doubling). Default: values that suit the "
        "network and the cluster.",
    ),
]
Searcher = Callable[[Question, Control], Recommendation[Question]]


@dataclass(frozen=True)
class AskedRanges:
    """Options for the ranges to search.

    If an option is not given, its range follows from the network and the cluster.
    """

    tensor: _Range = None
    context: _Range = None
    expert: _Range = None
    pipeline: _Range = None
    stages_per_device: _Range = None
    micro_batch_size: _Range = None
    recompute: Annotated[
        str | None, typer.Option(metavar="LIST", help=f"Values to try, from {', '.join(Recompute)}. Default: all.")
    ] = None
    zero: Annotated[str | None, typer.Option(metavar="RANGE", help="Stages of ZeRO to try. Default: 1,2,3.")] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help=f"Orders to try for pipelines with one stage per device, from {', '.join(searchable_orders())}. "
            "Default: 1f1b. Several stages per device always use interleaved.",
        ),
    ] = None
    context_method: Annotated[
        str | None, typer.Option(metavar="LIST", help=f"Values to try, from {', '.join(ContextMethod)}. Default: ring.")
    ] = None
    grad_dtype: Annotated[
        str | None, typer.Option(help="Number format in which gradients are summed. Default: fp32.")
    ] = None
    compiled: Annotated[bool, typer.Option("--compiled", help="Compile each layer with torch.compile.")] = False

    def ranges(self, *, fp8: bool) -> SearchRanges:
        """Return the ranges to search.  Raises InputError for an option that is not a range or list."""
        numbers = ("tensor", "context", "expert", "pipeline", "stages_per_device", "micro_batch_size", "zero")
        given: dict[str, Any] = {}
        for name in numbers:
            text = getattr(self, name)
            if text is not None:
                given[name] = read_range(text, f"--{name.replace('_', '-')}")
        if self.recompute is not None:
            given["recompute"] = members(Recompute, self.recompute, "--recompute")
        if self.context_method is not None:
            given["context_method"] = members(ContextMethod, self.context_method, "--context-method")
        if self.schedule is not None:
            given["schedule"] = listed(self.schedule)
        return SearchRanges(**given, grad_dtype=self.grad_dtype or "fp32", fp8=fp8, compiled=self.compiled)


@options.field_by_field
def recommend(
    model: Annotated[
        str,
        typer.Argument(
            help="A preset such as llama-3.1-70b, a family such as llama, the name of a sample graph, or a file: a "
            "Hugging Face config.json, an ONNX model or an operator graph. With --torch: FILE.py:FUNCTION."
        ),
    ],
    mesh: Annotated[str, typer.Option(help="Cluster: KIND-COUNT such as h100-64, a sample or a file.")],
    global_batch: Annotated[
        int,
        typer.Option(
            min=1,
            help="Samples per step, over all replicas. In a file, the first axis of the inputs counts samples. For an "
            "operator graph that was not made from a known network: micro-batches per step. The graph is one of them.",
        ),
    ],
    *,
    sequence: Annotated[int | None, typer.Option(min=1, help="Tokens per sample. Default: the model's own.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Number format: bf16, fp16, fp32, or fp8 for linear layers. Default: bf16, or that of an ONNX file."
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Option of the model, mode=inference, or a size that an ONNX file leaves open; repeatable.",
        ),
    ] = None,
    torch: Annotated[
        bool, typer.Option("--torch", help="Execute FILE.py:FUNCTION, which returns a PyTorch module and its inputs.")
    ] = False,
    per_node: options.PerNode = None,
    memory: Annotated[
        float | None, typer.Option(min=1, help="Memory of each device in bytes. Default: the cluster's.")
    ] = None,
    asked: AskedRanges,
    of_graph: GraphOptions,
    order_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help=f"Seconds to search for a shorter order of each of the {SEARCHED_PIPELINES} fastest pipelines; "
            "0 for no search.",
        ),
    ] = SEARCH_SECONDS,
    schedule_out: Annotated[
        Path | None,
        typer.Option(help="File for the shortest order of the fastest pipeline, in a format of `tessel export`."),
    ] = None,
    launch: Annotated[
        str | None, typer.Option(help=f"Write the fastest strategy as settings for one of {', '.join(LAUNCHERS)}.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for --launch.")] = None,
    prices: Annotated[
        bool,
        typer.Option(
            "--prices",
            help="Also show how more memory, other links, a moved layer and larger micro-batches change the step.",
        ),
    ] = False,
    executor: Annotated[
        str, typer.Option(help="Executor of --workers: processes, or a Dask cluster dask://HOST:PORT.")
    ] = PROCESSES,
    workers: Annotated[
        int | None, typer.Option(help="Processes that share the search, for large ranges. Default: this process only.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option(min=0.1, help="Seconds until the search stops with the best so far.")
    ] = 600.0,
    json: Json = False,
) -> None:
    """Find the fastest strategy for a model on a cluster, and show what is proved about it."""
    for place in (places := [*filter(None, (out, schedule_out, of_graph.placement_out, of_graph.plan_out))]):
        check_place(place, Path(model))
        if places.count(place) > 1:
            raise InputError(str(place), "is named by several options, but holds only one answer")
    if schedule_out is not None:
        export_for(schedule_out.name)
    file = None if torch and not of_graph.as_graph else graph_to_place(model, as_graph=of_graph.as_graph)
    if file is not None:
        given = {"sequence": sequence, "set": sizes, "torch": torch, "launch": launch, "out": out, "prices": prices}
        given |= {"workers": workers, "executor": executor != PROCESSES, "dtype": dtype, "data": of_graph.data}
        wanted = graph_ranges(asdict(asked) | given)
        costs = PlacementArguments(
            mesh, per_node, dtype=dtype, optimizer=of_graph.optimizer, communication=of_graph.communication
        )
        placing = costs.posed_on(file)
        on = placing.mesh.mesh if memory is None else placing.mesh.mesh.with_capacity(round(memory))
        about = GraphQuestion(file.graph, on, global_batch, wanted, placing.costs, placing.communication)
        outs = of_graph.placement_out, of_graph.plan_out, schedule_out
        print_notes(model, file.warnings)
        answered = GraphSearch(about, placing, order_seconds, time_limit, *outs).answer(as_json=json)
        raise typer.Exit(0 if answered else 1)
    of_graph.refuse_for(model)
    if (launch is None) != (out is None):
        raise InputError("--launch", "and --out go together: settings are written to a file")
    launcher = None if launch is None else find(LAUNCHERS, launch, "--launch")
    ranges = asked.ranges(fp8=dtype == FP8)
    family, spec = named_model(
        model,
        global_batch,
        torch=torch,
        sequence=sequence,
        dtype=dtype,
        changes=sizes or (),
        micro_batches=() if asked.micro_batch_size is None else ranges.micro_batch_size,
    )
    if isinstance(family, ImportedFamily):
        ranges = replace(ranges, micro_batch_size=family.samples)
    cluster = find_mesh_file(mesh, per_node).mesh
    cluster = cluster if memory is None else cluster.with_capacity(round(memory))
    question = Question(family, spec, cluster, ranges)
    blocks = BlockTable(family, spec, cluster)
    with _searcher(blocks, executor, workers) as searcher:
        found = solve(lambda control: searcher(question, control), "s", time_limit)
        half = for_half(question.halved, searcher, time_limit) if found.best else None
    best, orders, tags = found.best, tuple[SearchedOrder, ...](), tuple[PriceTag, ...]()
    if order_seconds:
        orders = solve(lambda control: searched_orders(found, blocks, control, order_seconds), "s", time_limit)
    if prices and best:
        tags = solve(lambda control: price_tags(question, best, control, blocks), "s", time_limit)
    if schedule_out is not None:
        _write_order(orders, schedule_out)
    if launcher is not None and out is not None and best is not None:
        searched = next((each.schedule for each in orders if each.is_shorter and each.candidate == best), None)
        _write_launch(launcher, Job(short_name(model), family, spec, best.strategy, searched=searched), out)
    schedule = look_at(question, best, blocks).schedule if best else None
    if json:
        print_json(recommendation_document(found, half, schedule, tags) | searched_document(found, orders))
    else:
        show_recommendation(found, half, orders, schedule, tags)
    raise typer.Exit(0 if best else 1)


def _write_order(orders: Sequence[SearchedOrder], out: Path) -> None:
    """Write the order with the shortest step time. If no order was searched, print a note instead."""
    if orders:
        write_file(out, export_for(out.name).made(orders[0].schedule, orders[0].report))
    else:
        print_notes(str(out), ["not written: no order of a pipeline was searched"])


def _write_launch(launcher: Launcher, job: Job, out: Path) -> None:
    """Write the launch file for a training framework. Raises InputError if the framework cannot run the strategy."""
    if objection := launcher.objection(job):
        raise InputError("--launch", objection)
    written = launcher.write(job)
    write_file(out, written.text.encode())
    print_notes(str(out), written.left_out)


@contextmanager
def _searcher(blocks: BlockTable, executor: str, workers: int | None) -> Iterator[Searcher]:
    """Yield a function that answers questions. It runs in this process, or on the workers that the options name."""
    if workers is None and executor == PROCESSES:
        yield lambda question, control: search(question, control, blocks)
        return
    with open_pool(executor, workers) as pool:
        yield lambda question, control: recommend_shared(question, pool, control)
