"""`tessel sweep`: the verbs of what is swept, beside each other."""

from __future__ import annotations

import typer

from tessel_core.cli_sweep_schedules import schedules

sweep = typer.Typer(help="Many questions at once, the best answers first.", no_args_is_help=True)
sweep.command()(schedules)
