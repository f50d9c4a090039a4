"""Presets of networks: their names, their families and their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tessel_core.networks.graphs.spec import GraphSpec
from tessel_core.networks.graphs.table import GRAPHS
from tessel_core.strategies.families import Family, find_family


def preset_network(name: str) -> tuple[Family, Mapping[str, Any]] | None:
    """Return the family and the sizes of a preset. None if no preset has this name."""
    for known in GRAPHS.values():
        if name in known.presets:
            return find_family(known.name), sizes_said(known.name, known.presets[name])
    return None


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, grouped by family."""
    return tuple(name for known in GRAPHS.values() for name in known.presets)


def sizes_said(family: str, spec: GraphSpec) -> dict[str, Any]:
    """Return the values of a spec of `GRAPHS` for the sizes and options of a family, by name."""
    asked = find_family(family)
    common = {each.name for each in fields(GraphSpec)}
    known = {size.name for size in asked.sizes} | set(asked.options)
    return {each.name: getattr(spec, each.name) for each in fields(spec) if each.name in known - common}
