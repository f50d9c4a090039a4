"""Solver options: a config's fields say how they are shown, and forms, command lines and records follow."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, cast

from tessel_core.errors import InputError


@dataclass(frozen=True, slots=True)
class Option:
    """How one field of a config is asked for.  `low` and `high` are inclusive."""

    label: str
    help: str
    low: float
    high: float
    unit: str = ""


def option(default: Any, option: Option) -> Any:
    """A dataclass field that carries its `Option`."""
    return field(default=default, metadata={"option": option})


def options_of(config: object) -> dict[str, tuple[Option, Any]]:
    """Per field of a config (class or instance), its `Option` and its default or value."""
    found = {}
    for each in fields(cast(Any, config)):
        value = each.default if isinstance(config, type) else getattr(config, each.name)
        found[each.name] = (cast(Option, each.metadata["option"]), value)
    return found


def check_options(config: object) -> None:
    """Raise InputError where a field of a config lies outside its range or has another type than its default."""
    defaults = options_of(type(config))
    for name, (shown, value) in options_of(config).items():
        wanted = type(defaults[name][1])
        if isinstance(value, bool) != (wanted is bool) or not isinstance(
            value, (int, float) if wanted is float else wanted
        ):
            raise InputError(shown.label, f"must be of type {wanted.__name__}, got {value!r}")
        if not shown.low <= value <= shown.high:
            raise InputError(shown.label, f"must be between {shown.low:g} and {shown.high:g}, got {value}")
