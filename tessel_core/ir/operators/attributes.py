"""Functions that read and check the attributes of operations."""

from __future__ import annotations

import numpy as np

from tessel_core.ir.operators.operator import Values, need


def axis_of(values: Values, rank: int) -> int:
    """Return the attribute `axis` as an index of at least 0. Negative values count from the last axis."""
    axis = values["axis"]
    need(isinstance(axis, int) and -rank <= axis < rank, f"has no axis {axis}, because the rank is {rank}")
    assert isinstance(axis, int)
    return axis % rank


def axes_of(values: Values, rank: int, name: str = "axes") -> tuple[int, ...]:
    """Return an attribute that lists distinct axes, as indices of at least 0.

    A negative index counts from the last axis.
    """
    axes = integers(values, name)
    need(all(-rank <= axis < rank for axis in axes), f"{name} must be axes of a tensor of rank {rank}, got {axes}")
    found = tuple(axis % rank for axis in axes)
    need(len(set(found)) == len(found), f"{name} must name each axis once, got {axes}")
    return found


def integer(values: Values, name: str, least: int = 0) -> int:
    """Return the integer attribute `name`. Raises InputError if it is below `least`."""
    value = values[name]
    need(isinstance(value, int) and value >= least, f"{name} must be a whole number of at least {least}, got {value}")
    assert isinstance(value, int)
    return value


def integers(values: Values, name: str, least: int | None = None) -> tuple[int, ...]:
    """Return the attribute `name`, a list of integers. Raises InputError if one is below `least`."""
    value = values[name]
    need(isinstance(value, tuple), f"{name} must be a list like (1 2), got {value!r}")
    assert isinstance(value, tuple)
    need(least is None or all(each >= least for each in value), f"{name} must be at least {least}, got {value}")
    return value


def number(values: Values, name: str) -> float:
    """Return the attribute `name`, a finite number."""
    value = values[name]
    need(isinstance(value, int | float) and bool(np.isfinite(value)), f"{name} must be a finite number, got {value}")
    assert isinstance(value, int | float)
    return float(value)


def device_list(values: Values, name: str = "devices") -> tuple[int, ...]:
    """Return the attribute `name`, a list of distinct devices."""
    value = values[name]
    need(isinstance(value, tuple) and len(set(value)) == len(value) > 0, f"{name} must list distinct devices")
    assert isinstance(value, tuple)
    return value
