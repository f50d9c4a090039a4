"""The verbs by name: `tessel --help` loads none of them, and a verb loads no other."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Verb:
    """The module of a command, and its line in `tessel --help`: the first sentence of its own help."""

    module: str
    help: str

    def load(self, name: str) -> Any:
        """The command itself, or a group of commands."""
        found = getattr(import_module(f"tessel_core.cli.{self.module}"), name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        alone.command(name)(found)
        return typer.main.get_command(alone)


VERBS: dict[str, Verb] = {
    "recommend": Verb("recommend", "Find the fastest strategy for a model on a cluster, with what is proved about it."),
    "samples": Verb("samples", "List the samples, or write one."),
    "check": Verb("check", "Ask the referee about any file; exit 1 where one is not valid, or can hang."),
    "graph": Verb(
        "graph", "Build the operator graph of a network, or add the backward to a graph, or merge its layers."
    ),
    "place": Verb("place", "Place the operators of a graph on devices, one pipeline stage per device or several."),
    "plan": Verb("plan", "Turn a placement into what one micro-batch does on each device."),
    "joint": Verb(
        "joint", "Search placement and schedule together: the best placements, each scheduled, ranked by period."
    ),
    "schedule": Verb("schedule", "Search or build a schedule of a plan, or time PyTorch's CSV as it is written."),
    "program": Verb("program", "Make the program of all devices from a network, its placement and a schedule."),
    "compare": Verb("schedule", "Schedules side by side: one table over (plan, scheduler) pairs."),
    "profile": Verb("profile", "Measure a list of PyTorch modules, and plan them as pipeline stages."),
    "simulate": Verb("simulate", "Time and live memory of a network under a strategy, or of a program."),
    "run": Verb("run", "Run a network under a strategy, a program, a schedule or a toy on processes of this machine."),
    "export": Verb("export", "Export a schedule as a report, a picture, a trace or a table."),
    "sweep": Verb("sweep", "Many questions at once, the best answers first."),
}
"""In the order in which people read of them."""


class Verbs(TyperGroup):
    """A group of its own commands and of all `VERBS`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, verb in VERBS.items():
            self.add_command(_Later(name, help=verb.help))


class _Later(TyperCommand):
    """A verb that is loaded when it is run."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the verb itself, which then runs in place of this."""
        assert self.name is not None
        return VERBS[self.name].load(self.name).make_context(info_name, args, parent, **extra)
