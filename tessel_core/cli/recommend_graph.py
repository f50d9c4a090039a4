"""`tessel recommend` for an operator graph, which is placed as it is: find the fastest strategy and write its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tessel_core.cli import options
from tessel_core.cli.output import option, print_json, print_notes
from tessel_core.cli.recommendation import for_half, show_recommendation
from tessel_core.cli.simulation_problem import listed
from tessel_core.cli.solving import solve
from tessel_core.errors import InputError, find
from tessel_core.exports.recommendation import recommendation_document, searched_document
from tessel_core.exports.table import export_for
from tessel_core.formats import plan_text, write_file
from tessel_core.ir.operators.formats import FP8
from tessel_core.scheduling import BASELINES
from tessel_core.strategies.graphs.question import GraphQuestion, GraphRanges
from tessel_core.strategies.graphs.search import (
    GraphRecommendation,
    SearchedStep,
    placed_candidates,
    recommend_graph,
    searched_steps,
)
from tessel_core.strategies.graphs.timing import PlacedCandidate
from tessel_core.strategies.grid import read_range
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.recommended_graph import strategy_placement_text

_SIZES = "an operator graph has fixed sizes"
_TENSORS = "an operator graph has no tensors to cut"
_FIXED = "the operators of an operator graph are fixed"
_REPLICAS = "each replica of a placement holds whole weights, gradients and optimizer state, in the format of --dtype"
_FRAMEWORKS = "frameworks build networks, and cannot build an operator graph"
REFUSED = {
    "sequence": _SIZES,
    "set": _SIZES,
    "torch": "an operator graph is a file that is not executed",
    **dict.fromkeys(("tensor", "context", "context_method", "expert"), _TENSORS),
    "micro_batch_size": "an operator graph is the work of one micro-batch",
    **dict.fromkeys(("recompute", "compiled"), _FIXED),
    **dict.fromkeys(("zero", "grad_dtype"), _REPLICAS),
    **dict.fromkeys(("launch", "out"), _FRAMEWORKS),
    "prices": "they move layers and change sizes, and an operator graph has neither",
    **dict.fromkeys(("workers", "executor"), "the search of an operator graph runs in one process"),
}
"""Options that mean nothing for an operator graph, with the reason."""


@dataclass(frozen=True)
class GraphOptions:
    """Options that apply only to operator graphs. None for each option that the user has not given."""

    as_graph: Annotated[
        bool, typer.Option("--as-graph", help="Place an operator graph as it is, even if it names a known network.")
    ] = False
    data: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            help="For an operator graph: replicas of the whole pipeline to try. Default: all that divide the batch.",
        ),
    ] = None
    optimizer: options.Optimizer = None
    communication: options.Transfers = None
    placement_out: Annotated[
        Path | None, typer.Option(help="For an operator graph: file for the placement of the fastest strategy.")
    ] = None
    plan_out: Annotated[
        Path | None, typer.Option(help="For an operator graph: file for the plan of the fastest strategy.")
    ] = None

    def refuse_for(self, model: str) -> None:
        """Raise InputError if an option was given, because the model is a network."""
        for name, value in vars(self).items():
            if value not in (None, False):
                raise InputError(option(name), f"applies only to an operator graph, but {model} is a network")


def graph_ranges(given: Mapping[str, Any]) -> GraphRanges:
    """Return the ranges of the options in `given`.

    Raises InputError for an option that means nothing for an operator graph, and for a malformed range.
    """
    for name, why in REFUSED.items():
        if given[name]:
            raise InputError(option(name), f"does not apply, because {why}")
    if given["dtype"] == FP8:
        raise InputError("--dtype", f"{FP8} does not apply, because {_TENSORS}")
    texts = {name: given[name] for name in ("data", "pipeline", "stages_per_device") if given[name] is not None}
    found: dict[str, Any] = {name: read_range(text, option(name)) for name, text in texts.items()}
    if given["schedule"] is not None:
        found["schedule"] = tuple(find(BASELINES, name, "--schedule").name for name in listed(given["schedule"]))
    return GraphRanges(**found)


@dataclass(frozen=True)
class GraphSearch:
    """A question about an operator graph, with the limits of its searches and the files to write."""

    question: GraphQuestion
    placing: Placing
    """Graph, mesh and cost options, with which placements are written."""
    order_seconds: float
    time_limit: float
    placement_out: Path | None = None
    plan_out: Path | None = None
    schedule_out: Path | None = None

    def answer(self, *, as_json: bool) -> bool:
        """Search, write the files, and print the answer. Return whether a strategy was found."""
        found = solve(lambda control: recommend_graph(self.question, control), "s", self.time_limit)
        if found.best is None:
            return self._print(found, None, (), None, as_json=as_json)
        half = for_half(self.question.halved, recommend_graph, self.time_limit)
        orders = tuple[SearchedStep, ...]()
        if self.order_seconds:
            orders = solve(lambda control: searched_steps(found, control, self.order_seconds), "s", self.time_limit)
        shorter = [each.found for each in orders if each.is_shorter]
        fastest = min((*placed_candidates(found)[:1], *shorter), key=lambda each: each.outcome.latency)
        self._write(fastest)
        return self._print(found, half, orders, fastest, as_json=as_json)

    def _print(
        self,
        found: GraphRecommendation,
        half: GraphRecommendation | None,
        orders: Sequence[SearchedStep],
        fastest: PlacedCandidate | None,
        *,
        as_json: bool,
    ) -> bool:
        schedule = None if fastest is None or fastest.strategy.stages == 1 else fastest.schedule
        if as_json:
            print_json(recommendation_document(found, half, schedule) | searched_document(found, orders))
        else:
            show_recommendation(found, half, orders, schedule)
        return fastest is not None

    def _write(self, fastest: PlacedCandidate) -> None:
        """Write the placement, the plan and the schedule of a strategy to the files that were asked for."""
        if self.placement_out is not None:
            write_file(self.placement_out, strategy_placement_text(self.placing, fastest))
        if self.plan_out is not None:
            write_file(self.plan_out, plan_text(fastest.placed.plans[0]))
        if self.schedule_out is not None:
            made = export_for(self.schedule_out.name).made(fastest.schedule, fastest.report)
            write_file(self.schedule_out, made)
        if fastest.strategy.data > 1 and (self.placement_out or self.plan_out or self.schedule_out):
            count = fastest.strategy.data
            print_notes(self.question.graph.name, [f"the files hold one of the {count} equal replicas of the pipeline"])
