"""`tessel sweep`: the verbs of what is swept, beside each other."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import typer

from tessel_core.cli.sweep_schedules import schedules
from tessel_core.cli.sweep_strategies import strategies
from tessel_core.strategies import FAMILIES

sweep = typer.Typer(help="Many questions at once, the best answers first.", no_args_is_help=True)
sweep.command()(schedules)


def _of_family(name: str) -> Any:
    """The verb of one family of programs: `strategies` with the family said."""

    def command(**given: Any) -> None:
        strategies(family=name, **given)

    hints = get_type_hints(strategies, include_extras=True)
    signature = inspect.signature(strategies)
    kept = [
        each.replace(annotation=hints[each.name]) for each in signature.parameters.values() if each.name != "family"
    ]
    command.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in kept}
    command.__doc__ = strategies.__doc__
    return command


for _family in FAMILIES:
    sweep.command(_family)(_of_family(_family))
