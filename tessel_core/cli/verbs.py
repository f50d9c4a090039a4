"""Table of commands. `tessel --help` imports no command, and a command imports no other command."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: its module, and its line in `tessel --help`, which is the first sentence of its own help."""

    module: str
    help: str

    def load(self, name: str) -> Any:
        """Import the module, and return the command or group of commands called `name`."""
        found = getattr(import_module(f"tessel_core.cli.{self.module}"), name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        alone.command(name)(found)
        return typer.main.get_command(alone)


VERBS: dict[str, Verb] = {
    "recommend": Verb(
        "recommend", "Find the fastest strategy for a model on a cluster, and show what is proved about it."
    ),
    "samples": Verb("samples", "List the samples, or write one of them to a file."),
    "check": Verb("check", "Check files against all rules; exit with 1 if a file is invalid or its ranks can hang."),
    "graph": Verb(
        "graph", "Build the operator graph of a network, add the backward pass to a graph, or merge its layers."
    ),
    "place": Verb("place", "Place the operators of a graph on devices, with one or more pipeline stages per device."),
    "plan": Verb("plan", "Turn a placement into a micro-batch plan, the input of every scheduler."),
    "joint": Verb(
        "joint", "Search placement and schedule together: schedule the best placements, and rank them by period."
    ),
    "schedule": Verb("schedule", "Search or build a schedule of a plan, or time the order of a PyTorch CSV file."),
    "program": Verb("program", "Build the program of all devices from a network, its placement and a schedule."),
    "compare": Verb("schedule", "Compare schedules in one table, with one row per plan and scheduler."),
    "profile": Verb("profile", "Measure a list of PyTorch modules, and divide them into pipeline stages."),
    "simulate": Verb("simulate", "Simulate the time and live memory of a network under a strategy, or of a program."),
    "run": Verb("run", "Run a network under a strategy, a program, a schedule or a toy in processes on this machine."),
    "export": Verb("export", "Export a schedule as a report, a picture, a trace or a table."),
    "sweep": Verb("sweep", "Evaluate every combination of a grid, and list the best answers first."),
}
"""Commands in the order of `tessel --help`."""


class Verbs(TyperGroup):
    """The `tessel` command. It has its own commands and all of `VERBS`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, verb in VERBS.items():
            self.add_command(_Later(name, help=verb.help))


class _Later(TyperCommand):
    """A command whose module is imported when it runs."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and return its context, so that the imported command runs instead of this one."""
        assert self.name is not None
        return VERBS[self.name].load(self.name).make_context(info_name, args, parent, **extra)
